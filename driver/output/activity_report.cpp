#include "driver/output/activity_report.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "base/machine/proc.h"
#include "base/printable.h"
#include "base/text.h"
#include "driver/job/job_io.h"

namespace hvd::driver {
namespace {

// Tensor names come from the program and may have any length.
constexpr std::size_t kMaxTextWidth = 200;

// Rank 0 names six ranks and counts the others (runtime/negotiation/stall_inspector.cpp).
constexpr std::size_t kMaxMissing = 7;
constexpr std::size_t kMaxMissingWidth = 400;

std::string fitting(std::string text, std::size_t width = kMaxTextWidth) {
  if (text.size() > width) text = cat(text.substr(0, width), "...");
  return printable(text);
}

std::string_view process_text(char state) {
  return state == '\0' ? "has not started its program" : process_state_text(state);
}

// "rank 3 on h2#1 has not asked for "sums"; ...", and rank 3 itself says that it waits for "sums".
bool is_contradicted(std::string_view line, const std::vector<ActivityRow>& rows) {
  const auto words = split(line, ' ');
  const auto begin = line.find('"');
  const auto end = begin == std::string_view::npos ? begin : line.find('"', begin + 1);
  if (words.size() < 2 || words[0] != "rank" || end == std::string_view::npos) return false;
  const auto rank = parse_number<int>(words[1]);
  const std::string_view tensor = line.substr(begin, end + 1 - begin);
  return rank && std::any_of(rows.begin(), rows.end(), [&](const ActivityRow& row) {
           return row.rank == *rank && row.in_flight.find(tensor) != std::string::npos;
         });
}

}  // namespace

std::string in_flight_text(const agent_link::WorkerActivity& activity) {
  if (activity.answered) return activity.in_flight;
  const auto process = process_text(activity.process_state);
  return activity.initialised ? cat("no answer; its process ", process)
                              : cat("no hvd::init() yet; its process ", process);
}

bool is_listed_before(const ActivityRow& a, const ActivityRow& b) {
  return std::tuple(a.rank < 0, a.rank, a.host, a.slot) <
         std::tuple(b.rank < 0, b.rank, b.host, b.slot);
}

std::string activity_table(std::vector<ActivityRow> rows) {
  std::sort(rows.begin(), rows.end(), is_listed_before);

  std::vector<std::vector<std::string>> lines{{"rank", "worker", "pid", "in flight", "ended last"}};
  for (const auto& row : rows) {
    lines.push_back({row.rank < 0 ? "-" : cat(row.rank), fitting(cat(row.host, '#', row.slot)),
                     row.pid == 0 ? "-" : cat(row.pid), fitting(row.in_flight), fitting(row.last)});
  }

  std::string text;
  for (const auto& line : split(trim(text_table(lines)), '\n')) text += cat("  ", line, '\n');
  return text;
}

std::string missing_lines(const std::string& missing, const std::vector<ActivityRow>& rows) {
  std::string text;
  std::size_t lines = 0;
  for (const auto& line : split(missing, '\n')) {
    if (trim(line).empty() || is_contradicted(trim(line), rows)) continue;
    if (++lines > kMaxMissing) break;
    text += cat("  ", fitting(std::string(trim(line)), kMaxMissingWidth), '\n');
  }
  return text;
}

void ActivityReport::request_from_worker() {
  if (!running_ && Clock::now() < reported_at_ + kMinInterval) return;
  request();
}

void ActivityReport::request() {
  is_to_say_ = true;
  gather();
}

void ActivityReport::request_for(Tell tell) {
  askers_.push_back(std::move(tell));
  gather();
}

void ActivityReport::tell(std::string_view text) {
  if (std::exchange(is_to_say_, false)) callbacks_.say(text);
  for (const auto& asker : std::exchange(askers_, {})) asker(text);
}

void ActivityReport::gather() {
  if (running_) return;
  expected_ = callbacks_.workers().size();
  if (expected_ == 0) return tell("no worker is running");

  running_ = true;
  answers_.clear();
  callbacks_.ask({++id_, static_cast<std::uint32_t>(kWorkersTimeout.count())});

  timeout_.expires_after(kAgentsTimeout);
  timeout_.async_wait([this](const boost::system::error_code& error) {
    if (!error && running_) report();
  });
}

void ActivityReport::answered(agent_link::WorkerActivity activity) {
  if (!running_ || activity.id != id_) return;
  answers_[activity.incarnation] = std::move(activity);
  if (answers_.size() >= expected_) report();
}

void ActivityReport::report() {
  running_ = false;
  timeout_.cancel();
  reported_at_ = Clock::now();

  std::vector<ActivityRow> rows;
  std::string missing;
  std::size_t silent = 0;
  auto workers = callbacks_.workers();
  for (auto& [incarnation, row] : workers) {
    const auto found = answers_.find(incarnation);
    if (found == answers_.end()) {
      row.in_flight = "no answer from the agent of its host";
      ++silent;
    } else {
      if (!found->second.answered) ++silent;
      row.in_flight = in_flight_text(found->second);
      row.last = found->second.last;
      missing = missing.empty() ? found->second.missing : missing;
    }
    rows.push_back(row);
  }
  answers_.clear();

  const std::size_t all = rows.size();
  std::string text = cat("what the ", all, all == 1 ? " worker does" : " workers do");
  if (silent > 0) text += cat(" (", silent, " did not answer)");
  const std::string lines = missing_lines(missing, rows);
  text += cat(":\n", activity_table(std::move(rows)), lines);
  text.pop_back();  // the last newline
  tell(text);
}

namespace {

// As flight_digest() says it (runtime/trace/flight_recorder.h).
constexpr std::string_view kNothing = "nothing";

}  // namespace

void LastActivities::add(std::uint64_t incarnation, ActivityRow worker) {
  rows_.emplace(incarnation, std::move(worker));
}

std::string LastActivities::text() const {
  const auto has_done_something = [](const auto& row) {
    return row.second.in_flight != kNothing || row.second.last != kNothing;
  };
  if (std::none_of(rows_.begin(), rows_.end(), has_done_something)) return {};
  std::vector<ActivityRow> rows;
  rows.reserve(rows_.size());
  for (const auto& [incarnation, row] : rows_) rows.push_back(row);
  std::string missing;
  for (const auto& row : rows) {
    if (row.rank == 0) missing += missing_lines(row.missing, rows);
  }
  const auto listed = std::min(rows.size(), kListed);
  std::partial_sort(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(listed), rows.end(),
                    is_listed_before);
  rows.resize(listed);

  std::string text = cat("what ", counted(rows_.size(), "worker"), " did last:\n");
  text += activity_table(std::move(rows));
  if (rows_.size() > listed) text += cat("  and ", rows_.size() - listed, " more\n");
  return text + missing;
}

}  // namespace hvd::driver
