#include "runtime/shm/host_ranks.h"

#include <algorithm>
#include <sched.h>

#include "base/log.h"
#include "base/text.h"
#include "runtime/world.h"

namespace hvd::runtime {
namespace {

int cores_of_this_thread() {
  cpu_set_t cores;
  if (::sched_getaffinity(0, sizeof(cores), &cores) != 0) return 1;
  return CPU_COUNT(&cores);
}

}  // namespace

std::string HostRanks::open() {
  const auto& own = spec_.members[static_cast<std::size_t>(spec_.rank)].host;
  for (int rank = 0; rank < spec_.size(); ++rank) {
    if (spec_.members[static_cast<std::size_t>(rank)].host == own) ranks_.push_back(rank);
  }
  if (ranks_.size() < 2 || !spec_.config.shared_memory) return {};
  const std::lock_guard lock(mutex_);
  door_.emplace(spec_.token, spec_.rank, spec_.generation, spec_.config.handshake_timeout);
  closed_ = door_->open();
  return door_->name();
}

Status HostRanks::form(const std::vector<std::string>& names, TimePoint deadline) {
  if (!door_) return {};
  std::vector<HostRank> ranks;
  for (const int rank : ranks_) ranks.push_back({rank, names[static_cast<std::size_t>(rank)]});
  auto shared = door_->form(ranks, spec_.config.window_bytes, deadline);
  const std::lock_guard lock(mutex_);
  door_.reset();
  HVD_RETURN_IF_ERROR(shared.status());
  if (!shared->memory) {
    if (spec_.rank == ranks_.front()) {
      const Status& why = closed_.ok() ? shared->why_not : closed_;
      HVD_LOG(warning, "the workers of this host do without shared memory: " << why.message());
    }
    return {};
  }
  const auto self = std::find(ranks_.begin(), ranks_.end(), spec_.rank);
  const Host::Options options{spec_.config.collective_timeout,
                              static_cast<int>(ranks_.size()) <= cores_of_this_thread()};
  host_ = std::make_shared<Host>(std::move(*shared->memory), ranks_,
                                 static_cast<int>(self - ranks_.begin()), options);
  if (aborted_) host_->abort();
  return {};
}

void HostRanks::abort() {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  if (door_) door_->abort();
  if (host_) host_->abort();
}

}  // namespace hvd::runtime
