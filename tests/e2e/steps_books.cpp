#include "tests/e2e/steps_books.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <stdexcept>

#include "base/text.h"

namespace hvd::test {
namespace {

namespace fs = std::filesystem;

std::int64_t number(const std::string& file, const std::vector<std::string>& words,
                    std::size_t at) {
  const auto value = at < words.size() ? parse_number<std::int64_t>(words[at]) : std::nullopt;
  if (!value) throw std::runtime_error(cat(file, ": no book: ", join(words, " ")));
  return *value;
}

template <typename Value>
void keep_max(Value& value, Value other) {
  value = std::max(value, other);
}

}  // namespace

const std::vector<StepsBook>& StepsBooks::read() {
  for (const auto& directory : directories_) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(directory, error)) {
      const auto [found, fresh] = files_.try_emplace(entry.path(), File{books_.size(), 0});
      if (fresh) books_.emplace_back();
      File& file = found->second;
      const auto size = entry.file_size(error);
      if (error || size == file.taken) continue;
      std::string text(size - file.taken, '\0');
      std::ifstream in(entry.path(), std::ios::binary);
      in.seekg(static_cast<std::streamoff>(file.taken));
      in.read(text.data(), static_cast<std::streamsize>(text.size()));
      text.resize(static_cast<std::size_t>(in.gcount()));
      text.resize(text.rfind('\n') + 1);  // npos + 1 is 0
      file.taken += text.size();
      for (const auto& line : split(text, '\n')) {
        if (!line.empty()) take(entry.path().string(), books_[file.book], line);
      }
    }
  }
  return books_;
}

void StepsBooks::take(const std::string& name, StepsBook& book, const std::string& line) {
  const auto words = split(line, ' ');
  const auto us = number(name, words, 0);
  const std::string& what = words.at(1);
  if (what == "start") {
    book.worker = words.at(2);
    book.pid = static_cast<pid_t>(number(name, words, 3));
    book.started = us;
  } else if (what == "init") {
    book.initialised = us;
  } else if (what == "world") {
    book.worlds.push_back({us, number(name, words, 2), static_cast<int>(number(name, words, 3)),
                           static_cast<int>(number(name, words, 4)), number(name, words, 5),
                           words.size() > 6 ? words[6] : ""});
  } else if (what == "draw") {
    StepsBook::Draw draw{
        number(name, words, 2), number(name, words, 3), number(name, words, 4), {}};
    for (std::size_t at = 5; at < words.size(); ++at) {
      draw.samples.push_back(static_cast<std::int32_t>(number(name, words, at)));
    }
    book.draws.push_back(std::move(draw));
  } else if (what == "commit") {
    book.commits.push_back({us, number(name, words, 2), number(name, words, 3)});
  } else if (what == "obeys") {
    book.obeyed = us;
  } else if (what == "left") {
    book.left = us;
  } else if (what == "done") {
    book.done = us;
    book.done_step = number(name, words, 2);
    book.weights = words.at(3);
  } else if (what == "error") {
    book.error = line.substr(line.find("error ") + 6);
  } else {
    throw std::runtime_error(cat(name, ": no book: ", line));
  }
}

bool StepsBooks::wait(const std::function<bool()>& condition, std::chrono::milliseconds limit) {
  return eventually(
      [&] {
        read();
        return condition();
      },
      limit);
}

bool StepsBooks::wait_for_step(std::int64_t step) {
  return wait([&] { return newest_step() >= step; });
}

std::int64_t StepsBooks::wait_for_world(int size, std::int64_t after) {
  std::int64_t found = 0;
  wait([&] {
    const auto all = members();
    if (all.size() != static_cast<std::size_t>(size)) return false;
    const auto id = newest_world();
    const bool committed = std::all_of(all.begin(), all.end(), [&](const StepsBook* book) {
      return !book->commits.empty() && book->commits.back().world == id;
    });
    if (id <= after || !committed) return false;
    found = id;
    return true;
  });
  return found;
}

std::int64_t StepsBooks::newest_step() const {
  std::int64_t newest = 0;
  for (const auto& book : books_) {
    if (!book.commits.empty()) keep_max(newest, book.commits.back().step);
  }
  return newest;
}

std::int64_t StepsBooks::newest_world() const {
  std::int64_t newest = 0;
  for (const auto& book : books_) {
    if (!book.worlds.empty()) keep_max(newest, book.worlds.back().id);
  }
  return newest;
}

std::vector<const StepsBook*> StepsBooks::members() const {
  const auto newest = newest_world();
  std::vector<const StepsBook*> found;
  std::size_t size = 0;
  for (const auto& book : books_) {
    if (book.worlds.empty() || book.worlds.back().id != newest) continue;
    size = static_cast<std::size_t>(book.worlds.back().size);
    found.push_back(&book);
  }
  if (found.size() != size) return {};
  std::sort(found.begin(), found.end(), [](const StepsBook* one, const StepsBook* other) {
    return one->worlds.back().rank < other->worlds.back().rank;
  });
  return found;
}

int StepsBooks::steps_done_again() const {
  int again = 0;
  for (const auto& book : books_) {
    for (std::size_t at = 1; at < book.draws.size(); ++at) {
      if (book.draws[at].step <= book.draws[at - 1].step) ++again;
    }
  }
  return again;
}

int StepsBooks::workers_that_left() const {
  return static_cast<int>(std::count_if(books_.begin(), books_.end(),
                                        [](const StepsBook& book) { return book.left != 0; }));
}

void StepsBooks::check_worlds(const StepsRules& rules, std::string& trouble) const {
  struct Seen {
    std::int64_t begin = -1;
    std::int64_t last = 0;
    std::string weights = {};
  };
  std::map<std::int64_t, Seen> worlds;
  std::map<std::int64_t, std::int64_t> world_of_step;
  for (const auto& book : books_) {
    for (const auto& world : book.worlds) {
      Seen& seen = worlds[world.id];
      if (seen.begin >= 0 && seen.begin != world.step) {
        trouble += cat("world ", world.id, " goes on from step ", seen.begin, " and from ",
                       world.step, " (", book.worker, ")\n");
      }
      if (seen.begin >= 0 && seen.weights != world.weights) {
        trouble += cat("world ", world.id, " begins with weights ", seen.weights, " and with ",
                       world.weights, " (", book.worker, ")\n");
      }
      seen.weights = world.weights;
      seen.begin = world.step;
      keep_max(seen.last, world.step);
    }
    std::map<std::int64_t, std::int64_t> next;  // by world
    for (const auto& world : book.worlds) next[world.id] = world.step + 1;
    for (const auto& commit : book.commits) {
      if (commit.step != next[commit.world]++) {
        trouble += cat(book.worker, " committed step ", commit.step, " out of turn in world ",
                       commit.world, "\n");
      }
      keep_max(worlds[commit.world].last, commit.step);
      const auto [found, fresh] = world_of_step.emplace(commit.step, commit.world);
      if (!fresh && found->second != commit.world && !rules.may_go_back) {
        trouble += cat("step ", commit.step, " was committed in world ", found->second, " and in ",
                       commit.world, " (", book.worker, ")\n");
      }
    }
  }
  std::int64_t reached = 0;
  for (const auto& [id, seen] : worlds) {
    if (seen.begin < reached && !rules.may_go_back) {
      trouble += cat("step ", reached, " was committed, and world ", id, " goes on from ",
                     seen.begin, "\n");
    }
    keep_max(reached, seen.last);
  }
}

void StepsBooks::check_ledger(const StepsRules& rules, std::string& trouble) const {
  // A step counts as it was done last.
  struct Attempt {
    std::int64_t world = 0;
    std::int64_t epoch = 0;
    std::vector<std::int32_t> samples;
  };
  std::map<std::int64_t, Attempt> steps;
  const auto last_step = newest_step();
  for (const auto& book : books_) {
    for (const auto& draw : book.draws) {
      if (draw.step > last_step) continue;
      Attempt& attempt = steps[draw.step];
      if (draw.world < attempt.world) continue;
      if (draw.world > attempt.world) attempt = {draw.world, draw.epoch, {}};
      attempt.samples.insert(attempt.samples.end(), draw.samples.begin(), draw.samples.end());
    }
    for (const auto& commit : book.commits) keep_max(steps[commit.step].world, commit.world);
  }
  std::map<std::int64_t, std::vector<int>> epochs;  // how often each sample was drawn
  std::map<std::int64_t, std::size_t> in_last_step;
  std::int64_t expected = 0;
  for (const auto& [step, attempt] : steps) {
    if (step != ++expected) {
      trouble += cat("nobody drew samples for step ", expected, "\n");
      return;
    }
    auto& counts = epochs[attempt.epoch];
    counts.resize(static_cast<std::size_t>(rules.samples));
    for (const auto sample : attempt.samples) ++counts.at(static_cast<std::size_t>(sample));
    in_last_step[attempt.epoch] = attempt.samples.size();
  }
  for (const auto& [epoch, counts] : epochs) {
    const bool whole = epoch != epochs.rbegin()->first;
    std::size_t missing = 0;
    std::size_t again = 0;
    for (const int count : counts) {
      missing += count == 0 ? 1U : 0U;
      again += count > 1 ? static_cast<std::size_t>(count - 1) : 0U;
    }
    if ((whole && missing != 0) || (missing != 0 && again != 0) ||
        (again != 0 && again >= in_last_step[epoch])) {
      trouble +=
          cat("epoch ", epoch, ": ", missing, " samples were never drawn, ", again, " again\n");
    }
  }
}

void StepsBooks::check_end(std::string& trouble) const {
  const auto all = members();
  if (all.empty()) trouble += "the last world never was whole\n";
  for (const auto* const book : all) {
    if (book->done == 0) trouble += cat(book->worker, " is not done\n");
    if (book->done_step != all.front()->done_step || book->weights != all.front()->weights) {
      trouble +=
          cat(book->worker, " ended at step ", book->done_step, " with weights ", book->weights,
              ", rank 0 at step ", all.front()->done_step, " with ", all.front()->weights, "\n");
    }
  }
}

std::string StepsBooks::trouble(const StepsRules& rules) {
  read();
  std::string trouble;
  if (books_.empty()) return "nobody wrote a book\n";
  for (const auto& book : books_) {
    if (book.error.empty() || rules.may_end_in_error) continue;
    if (!rules.may_end_with.empty() && book.error.find(rules.may_end_with) != std::string::npos) {
      continue;
    }
    trouble += cat(book.worker, " ended with: ", book.error, "\n");
  }
  check_worlds(rules, trouble);
  if (!rules.may_go_back) check_ledger(rules, trouble);
  if (rules.ends_well) check_end(trouble);
  if (!trouble.empty()) trouble += summary();
  return trouble;
}

std::string StepsBooks::summary() const {
  std::map<std::int64_t, std::string> lines;  // by time, of which no two are the same
  for (const auto& book : books_) {
    for (const auto& world : book.worlds) {
      std::string& line = lines[world.id];
      if (line.empty()) line = cat("world ", world.id, " of ", world.size, ":");
      std::int64_t last = world.step;
      for (const auto& commit : book.commits) {
        if (commit.world == world.id) last = commit.step;
      }
      line +=
          cat(" [", world.rank, " ", book.worker, ":", book.pid, " ", world.step, "-", last, "]");
    }
  }
  std::string text;
  for (const auto& [id, line] : lines) text += line + "\n";
  return text;
}

}  // namespace hvd::test
