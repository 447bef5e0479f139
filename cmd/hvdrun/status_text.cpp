#include "cmd/hvdrun/status_text.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/printable.h"
#include "base/text.h"

namespace hvd::cli {
namespace {

using Json = nlohmann::json;

// The widest cell makes all lines of a table as long.
constexpr std::size_t kWidestCell = 1000;

// Below a line of headings.
std::string table(std::vector<std::vector<std::string>> rows) {
  for (auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      const bool is_cut = i + 1 < row.size() && row[i].size() > kWidestCell;
      row[i] = is_cut ? cat(printable(row[i].substr(0, kWidestCell)), "...") : printable(row[i]);
    }
  }
  return text_table(rows);
}

std::string command_text(const Json& status) {
  std::vector<std::string> words;
  for (const auto& word : status.at("command"))
    words.push_back(printable_word(word.get<std::string>()));
  return join(words, " ");
}

std::string printable_text(const Json& value) { return printable(value.get<std::string>()); }

std::string text_or_dash(const Json& value) {
  if (value.is_number_integer()) return cat(value.get<long long>());
  const std::string text = value.is_string() ? printable_text(value) : std::string();
  return text.empty() ? "-" : text;
}

std::string percent_text(const Json& share) {
  return share.is_number() ? cat(std::lround(share.get<double>() * 100), " %") : "-";
}

// "1.2 GB": three digits, in steps of a thousand.
std::string bytes_text(double bytes) {
  constexpr std::array kUnits{"B", "kB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  for (; bytes >= 999.5 && unit + 1 < kUnits.size(); ++unit) bytes /= 1000;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3g %s", bytes, kUnits[unit]);  // NOLINT: bounded
  return text.data();
}

// "works at: 12.3 steps/s, 1.2 GB/s in collectives"; empty while that is not known.
std::string pace_text(const Json& status) {
  const Json& work = status.at("work");
  if (!work.at("bytes_per_second").is_number()) return {};
  std::array<char, 32> steps{};
  std::snprintf(steps.data(), steps.size(), "%.3g",  // NOLINT: bounded
                work.at("steps_per_second").get<double>());
  return cat("works at: ", steps.data(), " steps/s, ",
             bytes_text(work.at("bytes_per_second").get<double>()), "/s in collectives\n");
}

// One line for each slow rank.
std::string slow_ranks_text(const Json& status) {
  std::string text;
  for (const auto& member : status.at("world").at("members")) {
    const Json& work = member.at("work");
    if (!work.is_object() || !work.at("slow").get<bool>()) continue;
    text += cat("slow: rank ", text_or_dash(member.at("rank")), " on ",
                printable_text(member.at("worker")), ": the other ranks wait for it for ",
                percent_text(work.at("late")), " of the time\n");
  }
  return text;
}

std::string worker_state(const Json& worker) {
  const std::string membership = worker.at("membership");
  std::string text = worker.at("state");
  if (membership != "member") text += cat(", ", membership);
  if (const auto why = worker.find("leaves"); why != worker.end()) {
    text += cat(", leaves: ", why->get<std::string>());
  }
  return text;
}

// The share of its time during which it waits for others.
std::string waits_text(const Json& worker) {
  const auto work = worker.find("work");
  return work != worker.end() && work->is_object() ? percent_text(work->at("waited")) : "-";
}

std::string workers_table(const Json& status) {
  std::vector<std::vector<std::string>> rows{{"RANK", "WORKER", "HOST", "PID", "WAITS", "STATE"}};
  for (const auto* const group : {&status.at("world").at("members"), &status.at("other_workers")}) {
    for (const auto& worker : *group) {
      rows.push_back({text_or_dash(worker.at("rank")), worker.at("worker"), worker.at("host"),
                      text_or_dash(worker.at("pid")), waits_text(worker), worker_state(worker)});
    }
  }
  return rows.size() > 1 ? table(std::move(rows)) : std::string();
}

std::string hosts_table(const Json& status) {
  std::vector<std::vector<std::string>> rows{{"HOST", "STATE", "WORKERS", "SLOTS", "ADDRESS"}};
  for (const auto& host : status.at("hosts")) {
    std::string state = host.at("state");
    if (host.at("leaves").get<bool>()) state += ", leaves";
    if (const auto error = host.find("error"); error != host.end()) {
      state += cat(", ", error->get<std::string>());
    }
    rows.push_back({host.at("host"), state, text_or_dash(host.at("workers")),
                    text_or_dash(host.at("slots")), text_or_dash(host.at("address"))});
  }
  return rows.size() > 1 ? table(std::move(rows)) : std::string();
}

// While not all members of a world are at work, and of a hvdrun of an older version, nothing is
// known.
std::string entry_seconds_text(const Json& world) {
  const auto entry = world.find("entry");
  if (entry == world.end() || !entry->is_object()) return "-";
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3f s",  // NOLINT: bounded
                entry->at("seconds").get<double>());
  return text.data();
}

// How long it took until all were at work in the newest world of which that is known, part by part.
std::string last_entry_text(const Json& worlds) {
  for (auto world = worlds.rbegin(); world != worlds.rend(); ++world) {
    const auto entry = world->find("entry");
    if (entry == world->end() || !entry->is_object()) continue;
    return cat("\nworld ", text_or_dash(world->at("generation")), ": ",
               text_or_dash(entry->at("worker")), " took the longest, ",
               printable_text(entry->at("text")), "\n");
  }
  return {};
}

std::string worlds_table(const Json& status) {
  constexpr std::size_t kShown = 10;
  const Json& worlds = status.at("worlds");
  if (worlds.empty()) return {};
  std::vector<std::vector<std::string>> rows{{"WORLD", "SINCE", "WORKERS", "TOOK", "BECAUSE"}};
  const std::size_t first = worlds.size() > kShown ? worlds.size() - kShown : 0;
  for (std::size_t i = first; i < worlds.size(); ++i) {
    rows.push_back({text_or_dash(worlds[i].at("generation")), worlds[i].at("at"),
                    text_or_dash(worlds[i].at("size")), entry_seconds_text(worlds[i]),
                    text_or_dash(worlds[i].at("why"))});
  }
  return cat("\n", table(std::move(rows)), last_entry_text(worlds));
}

// A hvdrun of an older version has no requests.
std::string requests_text(const Json& status) {
  std::string text;
  const auto drained = status.value("drained", std::vector<std::string>());
  if (!drained.empty()) text += cat("drained: ", printable(join(drained, ", ")), "\n");
  if (const auto size = status.find("scaled_to"); size != status.end() && !size->is_null()) {
    text +=
        cat("scaled to: at most ", text_or_dash(*size), *size == 1 ? " worker\n" : " workers\n");
  }
  return text;
}

std::string text_of(const Json& status) {
  std::string text =
      cat("job ", printable_text(status.at("job")), ": ", printable_text(status.at("state")),
          ", for ", duration_text(status.at("seconds")), " (hvdrun has pid ",
          text_or_dash(status.at("pid")), ")\n");
  text += cat("command: ", command_text(status), "\n");
  // Jobs of older versions do not say it.
  if (const auto security = status.find("data_security"); security != status.end()) {
    text += cat("data security: ", printable_text(security->get<std::string>()), "\n");
  }
  const std::string waits = printable_text(status.at("waits_for"));
  if (!waits.empty()) text += cat("waits for: ", waits, "\n");
  text += pace_text(status);
  text += slow_ranks_text(status);
  text += requests_text(status);
  text += "\n";
  const std::string workers = workers_table(status);
  if (!workers.empty()) text += workers + "\n";
  return text + hosts_table(status) + worlds_table(status);
}

}  // namespace

bool is_job_status(const Json& answer) {
  try {
    job_row(answer);
    return true;
  } catch (const Json::exception&) {
    return false;
  }
}

std::vector<std::string> job_row(const Json& status) {
  return {status.at("job"),
          text_or_dash(status.at("pid")),
          status.at("state"),
          duration_text(status.at("seconds")),
          cat(status.at("world").at("members").size()),
          command_text(status)};
}

std::string jobs_text(const std::vector<std::vector<std::string>>& rows) {
  if (rows.empty()) return "no job of this user runs on this machine\n";
  std::vector<std::vector<std::string>> lines{{"JOB", "PID", "STATE", "FOR", "WORKERS", "COMMAND"}};
  lines.insert(lines.end(), rows.begin(), rows.end());
  return table(std::move(lines));
}

Result<std::string> status_text(const Json& answer) {
  try {
    return text_of(answer);
  } catch (const Json::exception& error) {
    return Status(Code::data_loss,
                  cat("the answer is not the status of a job (is its hvdrun of another version?): ",
                      printable(error.what())));
  }
}

}  // namespace hvd::cli
