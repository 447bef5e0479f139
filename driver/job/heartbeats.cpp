#include "driver/job/heartbeats.h"

#include <algorithm>

namespace hvd::driver {
namespace {

constexpr int kStall = 3;     // a third of the timeout
constexpr int kTogether = 2;  // half of it

}  // namespace

Heartbeats::Heartbeats(Options options, std::vector<bool> local)
    : options_(options), hosts_(local.size()) {
  for (std::size_t host = 0; host < local.size(); ++host) hosts_[host].local = local[host];
}

bool Heartbeats::watch(std::size_t index, TimePoint now) {
  Host& host = hosts_[index];
  if (options_.timeout.count() == 0 || host.watched) return false;
  if (watched_ == 0) next_judgement_ = now + options_.timeout / kHeartbeatsPerTimeout;
  host.watched = true;
  ++watched_;
  if (!host.local) ++watched_machines_;
  return hear(index, now);
}

void Heartbeats::forget(std::size_t index) {
  Host& host = hosts_[index];
  if (!host.watched) return;
  host.watched = false;
  --watched_;
  if (!host.local) --watched_machines_;
  if (watched_ != 0) return;
  next_judgement_ = kNever;
  delay_ = Delay::none;
}

void Heartbeats::held_up(Duration time, TimePoint now) {
  if (time <= options_.timeout / kStall) return;
  // Also what is known of the time before counts no longer: nobody knows who spoke meanwhile.
  for (auto& host : hosts_) host.heard = host.counted = now;
  delay_ = Delay::none;
}

bool Heartbeats::hear(std::size_t index, TimePoint now) {
  Host& host = hosts_[index];
  if (!host.watched) return false;
  host.heard = host.counted = now;
  if (!concerns(delay_, host)) return false;
  if (host.local && watched_machines_ > 1) {
    // The machines out there are as silent as before.
    give_fresh_timeout(now, true);
    delay_ = Delay::machines;
    return false;
  }
  give_fresh_timeout(now, false);
  delay_ = Delay::none;
  return true;
}

void Heartbeats::give_fresh_timeout(TimePoint now, bool only_local) {
  for (auto& host : hosts_) {
    if (host.local || !only_local) host.counted = now;
  }
}

Heartbeats::Delay Heartbeats::silent_together(TimePoint now) const {
  bool everybody = watched_ > 1;
  bool machines = watched_machines_ > 1;
  for (const auto& host : hosts_) {
    if (!host.watched || now - host.counted >= options_.timeout / kTogether) continue;
    everybody = false;
    machines = machines && host.local;
  }
  if (everybody) return Delay::everybody;
  return machines ? Delay::machines : Delay::none;
}

// The limit holds however often the end of a delay gives the hosts a fresh timeout.
TimePoint Heartbeats::limit(const Host& host) const {
  if (options_.orphan_timeout.count() == 0) return kNever;
  return std::max(host.heard, host.excused) + std::max(options_.timeout, options_.orphan_timeout);
}

Heartbeats::Judgement Heartbeats::judge(TimePoint now) {
  Judgement judgement;
  if (watched_ == 0) return judgement;
  next_judgement_ = now + options_.timeout / kHeartbeatsPerTimeout;

  const Delay together = silent_together(now);
  bool delayed = false;
  bool at_once = false;
  for (std::size_t index = 0; index < hosts_.size(); ++index) {
    const Host& host = hosts_[index];
    if (!host.watched) continue;
    const TimePoint due = std::max(host.counted, host.excused) + options_.timeout;
    const TimePoint last = limit(host);
    if (last <= now) {
      judgement.lost.push_back(index);
    } else if (due > now) {
      next_judgement_ = std::min(next_judgement_, due);
    } else if (concerns(together, host)) {
      delayed = true;
      next_judgement_ = std::min(next_judgement_, last);
    } else {
      judgement.lost.push_back(index);
      at_once = true;
    }
  }

  judgement.delayed = !at_once && options_.orphan_timeout > options_.timeout;
  judgement.silent_for = judgement.delayed ? options_.orphan_timeout : options_.timeout;
  judgement.delay_begins = delayed && delay_ == Delay::none;
  // A delay stays until somebody is heard, or until too few are left to be silent together.
  if (delayed || together == Delay::none) delay_ = together;
  return judgement;
}

TimePoint Heartbeats::next_look() const { return next_judgement_; }

std::optional<Duration> Heartbeats::longest_silence(TimePoint now) const {
  std::optional<Duration> longest;
  for (const auto& host : hosts_) {
    if (host.watched) longest = std::max(longest.value_or(Duration::zero()), now - host.heard);
  }
  return longest;
}

TimePoint Heartbeats::delay_ends() const {
  TimePoint ends = kNever;
  for (const auto& host : hosts_) {
    if (host.watched && concerns(delay_, host)) ends = std::min(ends, limit(host));
  }
  return ends;
}

}  // namespace hvd::driver
