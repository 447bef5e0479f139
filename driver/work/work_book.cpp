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

// A kind that is missing has done no work.
CollectiveWork work_of(const WorkReading& reading, Collective kind) {
  for (const auto& work : reading.collectives) {
    if (work.kind == kind) return work;
  }
  return {kind, 0, 0};
}

// A number that was heard is never taken back, whatever a worker says.
WorkReading at_least(const WorkReading& before, WorkReading now) {
  now.steps = std::max(now.steps, before.steps);
  now.waited_ns = std::max(now.waited_ns, before.waited_ns);
  for (auto& work : now.collectives) {
    const CollectiveWork old = work_of(before, work.kind);
    work.operations = std::max(work.operations, old.operations);
    work.bytes = std::max(work.bytes, old.bytes);
  }
  for (const auto& old : before.collectives) {
    if (work_of(now, old.kind).operations == 0) now.collectives.push_back(old);
  }
  return now;
}

}  // namespace

void WorkBook::add(std::uint64_t incarnation, const WorkReading& reading, TimePoint now) {
  auto& samples = samples_[incarnation];
  if (samples.empty()) {
    samples.push_back({now, reading});
    return;
  }
  if (reading.time_ns <= samples.back().reading.time_ns) return;

  const WorkReading newest = at_least(samples.back().reading, reading);
  if (samples.size() > 1 && samples.back().at + kApart > now) samples.pop_back();
  samples.push_back({now, newest});
  // The first sample is where the window's work begins: with long steps, some steps ago.
  while (samples.size() > 2 && (samples.size() > kMaxSamples || is_before_window(samples, now))) {
    samples.pop_front();
  }
}

bool WorkBook::is_before_window(const std::deque<Sample>& samples, TimePoint now) {
  return samples[1].at + kWindow <= now &&
         samples.back().reading.steps >= samples[1].reading.steps + kSteps;
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
  if (found->second.back().at + kSilence < now) return std::nullopt;

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

double WorkBook::received_per_second(std::uint64_t incarnation) const {
  const auto found = samples_.find(incarnation);
  if (found == samples_.end()) return 0;
  const WorkReading& last = found->second.back().reading;
  const auto is_of_this_transfer = [&](const Sample& sample) {
    return sample.at + kWindow >= found->second.back().at &&
           sample.reading.entry.generation == last.entry.generation &&
           sample.reading.entry.expected_bytes == last.entry.expected_bytes;
  };
  const auto first =
      std::find_if(found->second.begin(), found->second.end(), is_of_this_transfer)->reading;
  if (first.time_ns >= last.time_ns || first.entry.received_bytes >= last.entry.received_bytes) {
    return 0;
  }
  return static_cast<double>(last.entry.received_bytes - first.entry.received_bytes) /
         (static_cast<double>(last.time_ns - first.time_ns) / 1e9);
}

WorkBook::Totals WorkBook::totals() const {
  Totals totals = ended_;
  for (const auto& [incarnation, samples] : samples_) add_to(totals, samples.back().reading);
  return totals;
}

}  // namespace hvd::driver
