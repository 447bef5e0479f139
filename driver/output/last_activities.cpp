#include "driver/output/last_activities.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/text.h"
#include "driver/job/job_io.h"

namespace hvd::driver {
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
