#include "tests/e2e/step_logs.h"

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
  if (!value) throw std::runtime_error(cat(file, ": invalid step log: ", join(words, " ")));
  return *value;
}

template <typename Value>
void keep_max(Value& value, Value other) {
  value = std::max(value, other);
}

}  // namespace

const std::vector<StepLog>& StepLogs::read() {
  for (const auto& directory : directories_) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(directory, error)) {
      const auto [found, fresh] = files_.try_emplace(entry.path(), File{step_logs_.size(), 0});
      if (fresh) step_logs_.emplace_back();
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
        if (!line.empty()) take(entry.path().string(), step_logs_[file.step_log], line);
      }
    }
  }
  return step_logs_;
}

void StepLogs::take(const std::string& name, StepLog& step_log, const std::string& line) {
  const auto words = split(line, ' ');
  const auto us = number(name, words, 0);
  const std::string& what = words.at(1);
  if (what == "start") {
    step_log.worker = words.at(2);
    step_log.pid = static_cast<pid_t>(number(name, words, 3));
    step_log.started = us;
  } else if (what == "init") {
    step_log.initialised = us;
  } else if (what == "world") {
    step_log.worlds.push_back({us, number(name, words, 2), static_cast<int>(number(name, words, 3)),
                               static_cast<int>(number(name, words, 4)), number(name, words, 5),
                               words.size() > 6 ? words[6] : ""});
  } else if (what == "draw") {
    StepLog::Draw draw{number(name, words, 2), number(name, words, 3), number(name, words, 4), {}};
    for (std::size_t at = 5; at < words.size(); ++at) {
      draw.samples.push_back(static_cast<std::int32_t>(number(name, words, at)));
    }
    step_log.draws.push_back(std::move(draw));
  } else if (what == "commit") {
    step_log.commits.push_back(
        {us, number(name, words, 2), number(name, words, 3), words.size() > 4 ? words[4] : ""});
  } else if (what == "obeys") {
    step_log.obeyed = us;
  } else if (what == "left") {
    step_log.left = us;
  } else if (what == "done") {
    step_log.done = us;
    step_log.done_step = number(name, words, 2);
    step_log.weights = words.at(3);
  } else if (what == "error") {
    step_log.error = line.substr(line.find("error ") + 6);
  } else {
    throw std::runtime_error(cat(name, ": invalid step log: ", line));
  }
}

bool StepLogs::wait(const std::function<bool()>& condition, std::chrono::milliseconds limit) {
  return eventually(
      [&] {
        read();
        return condition();
      },
      limit);
}

bool StepLogs::wait_for_step(std::int64_t step) {
  return wait([&] { return newest_step() >= step; });
}

std::int64_t StepLogs::wait_for_world(int size, std::int64_t after) {
  std::int64_t found = 0;
  wait([&] {
    const auto all = members();
    if (all.size() != static_cast<std::size_t>(size)) return false;
    const auto id = newest_world();
    const bool committed = std::all_of(all.begin(), all.end(), [&](const StepLog* step_log) {
      return !step_log->commits.empty() && step_log->commits.back().world == id;
    });
    if (id <= after || !committed) return false;
    found = id;
    return true;
  });
  return found;
}

std::int64_t StepLogs::newest_step() const {
  std::int64_t newest = 0;
  for (const auto& step_log : step_logs_) {
    if (!step_log.commits.empty()) keep_max(newest, step_log.commits.back().step);
  }
  return newest;
}

std::int64_t StepLogs::newest_world() const {
  std::int64_t newest = 0;
  for (const auto& step_log : step_logs_) {
    if (!step_log.worlds.empty()) keep_max(newest, step_log.worlds.back().id);
  }
  return newest;
}

std::vector<const StepLog*> StepLogs::members() const {
  const auto newest = newest_world();
  std::vector<const StepLog*> found;
  std::size_t size = 0;
  for (const auto& step_log : step_logs_) {
    if (step_log.worlds.empty() || step_log.worlds.back().id != newest) continue;
    size = static_cast<std::size_t>(step_log.worlds.back().size);
    found.push_back(&step_log);
  }
  if (found.size() != size) return {};
  std::sort(found.begin(), found.end(), [](const StepLog* one, const StepLog* other) {
    return one->worlds.back().rank < other->worlds.back().rank;
  });
  return found;
}

int StepLogs::steps_done_again() const {
  int again = 0;
  for (const auto& step_log : step_logs_) {
    for (std::size_t at = 1; at < step_log.draws.size(); ++at) {
      if (step_log.draws[at].step <= step_log.draws[at - 1].step) ++again;
    }
  }
  return again;
}

int StepLogs::workers_that_left() const {
  return static_cast<int>(
      std::count_if(step_logs_.begin(), step_logs_.end(),
                    [](const StepLog& step_log) { return step_log.left != 0; }));
}

std::map<std::int64_t, std::string> StepLogs::weights_of_steps() const {
  std::map<std::int64_t, std::string> weights;
  for (const auto& step_log : step_logs_) {
    for (const auto& commit : step_log.commits) weights.emplace(commit.step, commit.weights);
  }
  return weights;
}

void StepLogs::check_worlds(const StepLogRules& rules, std::string& errors) const {
  struct Seen {
    std::int64_t begin = -1;
    std::int64_t last = 0;
    std::string weights = {};
  };
  std::map<std::int64_t, Seen> worlds;
  std::map<std::int64_t, std::int64_t> world_of_step;
  const auto weights = weights_of_steps();
  for (const auto& step_log : step_logs_) {
    for (const auto& world : step_log.worlds) {
      Seen& seen = worlds[world.id];
      if (seen.begin >= 0 && seen.begin != world.step) {
        errors += cat("world ", world.id, " goes on from step ", seen.begin, " and from ",
                      world.step, " (", step_log.worker, ")\n");
      }
      if (seen.begin >= 0 && seen.weights != world.weights) {
        errors += cat("world ", world.id, " begins with weights ", seen.weights, " and with ",
                      world.weights, " (", step_log.worker, ")\n");
      }
      seen.weights = world.weights;
      seen.begin = world.step;
      keep_max(seen.last, world.step);
    }

    std::map<std::int64_t, std::int64_t> next;  // by world
    for (const auto& world : step_log.worlds) next[world.id] = world.step + 1;
    for (const auto& commit : step_log.commits) {
      if (commit.step != next[commit.world]++) {
        errors += cat(step_log.worker, " committed step ", commit.step, " out of turn in world ",
                      commit.world, "\n");
      }
      keep_max(worlds[commit.world].last, commit.step);
      const auto [found, fresh] = world_of_step.emplace(commit.step, commit.world);
      if (!fresh && found->second != commit.world && !rules.may_go_back) {
        errors += cat("step ", commit.step, " was committed in world ", found->second, " and in ",
                      commit.world, " (", step_log.worker, ")\n");
      }
      const auto& digest = weights.at(commit.step);
      if (digest != commit.weights && !rules.may_go_back) {
        errors += cat("step ", commit.step, " was committed with weights ", digest, " and with ",
                      commit.weights, " (", step_log.worker, ")\n");
      }
    }
  }
  if (rules.weights.empty()) return;
  for (const auto& [step, digest] : weights) {
    const auto right = rules.weights.find(step);
    if (right != rules.weights.end() && right->second == digest) continue;
    errors += cat("step ", step, " was committed with weights ", digest, " in place of ",
                  right == rules.weights.end() ? "none" : right->second, "\n");
  }

  std::int64_t reached = 0;
  for (const auto& [id, seen] : worlds) {
    if (seen.begin < reached && !rules.may_go_back) {
      errors += cat("step ", reached, " was committed, and world ", id, " goes on from ",
                    seen.begin, "\n");
    }
    keep_max(reached, seen.last);
  }
}

void StepLogs::check_ledger(const StepLogRules& rules, std::string& errors) const {
  // A step counts as it was done last.
  struct Attempt {
    std::int64_t world = 0;
    std::int64_t epoch = 0;
    std::vector<std::int32_t> samples;
  };
  std::map<std::int64_t, Attempt> steps;
  const auto last_step = newest_step();
  for (const auto& step_log : step_logs_) {
    for (const auto& draw : step_log.draws) {
      if (draw.step > last_step) continue;
      Attempt& attempt = steps[draw.step];
      if (draw.world < attempt.world) continue;
      if (draw.world > attempt.world) attempt = {draw.world, draw.epoch, {}};
      attempt.samples.insert(attempt.samples.end(), draw.samples.begin(), draw.samples.end());
    }
    for (const auto& commit : step_log.commits) keep_max(steps[commit.step].world, commit.world);
  }

  std::map<std::int64_t, std::vector<int>> epochs;  // how often each sample was drawn
  std::map<std::int64_t, std::size_t> in_last_step;
  std::int64_t expected = 0;
  for (const auto& [step, attempt] : steps) {
    if (step != ++expected) {
      errors += cat("nobody drew samples for step ", expected, "\n");
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
      errors +=
          cat("epoch ", epoch, ": ", missing, " samples were never drawn, ", again, " again\n");
    }
  }
}

void StepLogs::check_end(std::string& errors) const {
  const auto all = members();
  if (all.empty()) errors += "the last world never was whole\n";
  for (const auto* const step_log : all) {
    if (step_log->done == 0) errors += cat(step_log->worker, " is not done\n");
    if (step_log->done_step != all.front()->done_step ||
        step_log->weights != all.front()->weights) {
      errors += cat(step_log->worker, " ended at step ", step_log->done_step, " with weights ",
                    step_log->weights, ", rank 0 at step ", all.front()->done_step, " with ",
                    all.front()->weights, "\n");
    }
  }
}

std::string StepLogs::errors(const StepLogRules& rules) {
  read();
  std::string errors;
  if (step_logs_.empty()) return "there is no step log\n";
  for (const auto& step_log : step_logs_) {
    if (step_log.error.empty() || rules.may_end_in_error) continue;
    if (!rules.may_end_with.empty() &&
        step_log.error.find(rules.may_end_with) != std::string::npos) {
      continue;
    }
    errors += cat(step_log.worker, " ended with: ", step_log.error, "\n");
  }
  check_worlds(rules, errors);
  if (!rules.may_go_back) check_ledger(rules, errors);
  if (rules.ends_well) check_end(errors);
  if (!errors.empty()) errors += summary();
  return errors;
}

std::string StepLogs::summary() const {
  std::map<std::int64_t, std::string> lines;  // by time, of which no two are the same
  for (const auto& step_log : step_logs_) {
    for (const auto& world : step_log.worlds) {
      std::string& line = lines[world.id];
      if (line.empty()) line = cat("world ", world.id, " of ", world.size, ":");
      std::int64_t last = world.step;
      for (const auto& commit : step_log.commits) {
        if (commit.world == world.id) last = commit.step;
      }
      line += cat(" [", world.rank, " ", step_log.worker, ":", step_log.pid, " ", world.step, "-",
                  last, "]");
    }
  }
  std::string text;
  for (const auto& [id, line] : lines) text += line + "\n";
  return text;
}

}  // namespace hvd::test
