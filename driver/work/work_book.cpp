#include "driver/work/work_book.h"

#include <algorithm>

namespace hvd::driver {
namespace {

void add_to(WorkBook::Totals& totals, const WorkReading& reading) {
  for (const auto& work : reading.collectives) {
    auto& total = totals[static_cast<std::size_t>(work.kind)];
    total.operations += work.operations;
    total.bytes += work.bytes;
  }
}

bool goes_back(const WorkReading& before, const WorkReading& after) {
  return after.time_ns <= before.time_ns || after.steps < before.steps ||
         after.waited_ns < before.waited_ns || after.operations() < before.operations() ||
         after.bytes() < before.bytes();
}

}  // namespace

void WorkBook::add(std::uint64_t incarnation, const WorkReading& reading, TimePoint now) {
  auto& samples = samples_[incarnation];
  if (!samples.empty() && goes_back(samples.back().reading, reading)) return;

  samples.push_back({now, reading});
  // The last sample before the window is where the window's work begins.
  while (samples.size() > 2 && samples[1].at + kWindow <= now) samples.pop_front();
}

void WorkBook::end(std::uint64_t incarnation) {
  const auto found = samples_.find(incarnation);
  if (found == samples_.end()) return;
  add_to(ended_, found->second.back().reading);
  samples_.erase(found);
}

const WorkReading* WorkBook::newest(std::uint64_t incarnation) const {
  const auto found = samples_.find(incarnation);
  return found == samples_.end() ? nullptr : &found->second.back().reading;
}

std::optional<WorkBook::Rate> WorkBook::rate(std::uint64_t incarnation, TimePoint now) const {
  const auto found = samples_.find(incarnation);
  if (found == samples_.end() || found->second.size() < 2) return std::nullopt;
  if (found->second.back().at + kWindow < now) return std::nullopt;

  const WorkReading& first = found->second.front().reading;
  const WorkReading& last = found->second.back().reading;
  const double seconds = static_cast<double>(last.time_ns - first.time_ns) / 1e9;
  const auto per_second = [seconds](std::uint64_t from, std::uint64_t to) {
    return static_cast<double>(to - from) / seconds;
  };

  Rate rate;
  rate.steps = per_second(first.steps, last.steps);
  rate.operations = per_second(first.operations(), last.operations());
  rate.bytes = per_second(first.bytes(), last.bytes());
  rate.waited = std::min(per_second(first.waited_ns, last.waited_ns) / 1e9, 1.0);
  return rate;
}

WorkBook::Totals WorkBook::totals() const {
  Totals totals = ended_;
  for (const auto& [incarnation, samples] : samples_) add_to(totals, samples.back().reading);
  return totals;
}

}  // namespace hvd::driver
