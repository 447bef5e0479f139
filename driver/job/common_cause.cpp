#include "driver/job/common_cause.h"

#include <algorithm>
#include <csignal>

#include "base/text.h"

namespace hvd::driver {
namespace {

constexpr std::size_t kManyHosts = 3;
constexpr std::size_t kManyWorkers = 3;

}  // namespace

bool comes_from_outside(int signal_number) {
  return signal_number == SIGKILL || signal_number == SIGTERM || signal_number == SIGINT ||
         signal_number == SIGHUP;
}

void CommonCause::launched(Incarnation worker) {
  fresh_.insert(worker);
  if (fresh_failures_ == 0) first_.insert(worker);
}

void CommonCause::lost(Incarnation worker) {
  fresh_.erase(worker);
  first_.erase(worker);
}

void CommonCause::joined(Incarnation worker) {
  fresh_.erase(worker);
  anybody_joined_ = true;
  fresh_failures_ = 0;
  fresh_hosts_.clear();
}

std::string CommonCause::failed(const Failed& failure, std::size_t world_size, std::size_t hosts,
                                TimePoint now) {
  const bool was_fresh = fresh_.erase(failure.worker) != 0;
  first_.erase(failure.worker);
  if (was_fresh) {
    if (fresh_how_ != failure.how) {
      fresh_failures_ = 0;
      fresh_hosts_.clear();
    }
    fresh_how_ = failure.how;
    ++fresh_failures_;
    fresh_hosts_.insert(failure.host);
    if (auto fault = judge_fresh(hosts); !fault.empty()) return fault;
  }
  while (!recent_.empty() && recent_.front().at + together_ < now) recent_.pop_front();
  recent_.push_back({now, failure.how, world_size});
  return judge_together();
}

std::string CommonCause::judge_fresh(std::size_t hosts) const {
  if (!anybody_joined_) {
    return first_.empty() ? "no worker got as far as joining the others" : "";
  }
  const bool everywhere =
      fresh_hosts_.size() >= std::min(kManyHosts, std::max<std::size_t>(hosts, 2));
  if (!everywhere || fresh_failures_ < kManyWorkers) return "";
  return cat("the last ", fresh_failures_, " workers that were started, on ", fresh_hosts_.size(),
             " hosts, all failed this way before they joined the others");
}

std::string CommonCause::judge_together() const {
  if (recent_.empty()) return "";
  // As large as the world was when it began: each failure makes it smaller.
  std::size_t world_size = 0;
  for (const auto& one : recent_) world_size = std::max(world_size, one.world_size);
  const auto same = static_cast<std::size_t>(
      std::count_if(recent_.begin(), recent_.end(),
                    [&](const Recent& one) { return one.how == recent_.back().how; }));
  if (same < kManyWorkers || same * 4 < world_size * 3) return "";
  return cat(same, " of ", world_size, " workers failed this way at once");
}

}  // namespace hvd::driver
