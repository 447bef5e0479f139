#include "runtime/shm/local_ranks.h"

#include <algorithm>
#include <unistd.h>

#include "base/log.h"
#include "base/text.h"
#include "runtime/core/affinity.h"
#include "runtime/core/world_spec.h"

namespace hvd::runtime {
LocalRanks::LocalRanks(const WorldSpec& spec) : spec_(spec), cores_(usable_cores()) {
  if (spec_.rank < 0 || spec_.rank >= spec_.size()) return;
  const auto& own = spec_.members[static_cast<std::size_t>(spec_.rank)].host;
  for (int rank = 0; rank < spec_.size(); ++rank) {
    if (spec_.members[static_cast<std::size_t>(rank)].host == own) ranks_.push_back(rank);
  }
  share_all_cores_ = ranks_.size() == spec_.members.size() &&
                     static_cast<long>(ranks_.size()) > ::sysconf(_SC_NPROCESSORS_ONLN);
}

std::optional<int> LocalRanks::core() const {
  if (spec_.config.core >= 0 || cores_.empty() || own_cores()) return {};
  const auto self = std::find(ranks_.begin(), ranks_.end(), spec_.rank) - ranks_.begin();
  return cores_[static_cast<std::size_t>(self) % cores_.size()];
}

// A user who has chosen cores may have chosen one for all.
bool LocalRanks::own_cores() const {
  return spec_.config.core < 0 && (spec_.config.bound || ranks_.size() <= cores_.size());
}

std::string LocalRanks::open() {
  if (ranks_.size() < 2 || !spec_.config.shared_memory) return {};
  const std::lock_guard lock(mutex_);
  rendezvous_.emplace(spec_.token, spec_.rank, spec_.generation, spec_.config.handshake_timeout);
  closed_ = rendezvous_->open();
  return rendezvous_->name();
}

Status LocalRanks::form(const std::vector<std::string>& names, TimePoint deadline) {
  if (!rendezvous_) return {};
  std::vector<LocalRank> ranks;
  for (const int rank : ranks_) ranks.push_back({rank, names[static_cast<std::size_t>(rank)]});
  auto shared = rendezvous_->form(ranks, spec_.config.chunk_bytes, deadline);
  const std::lock_guard lock(mutex_);
  rendezvous_.reset();
  HVD_RETURN_IF_ERROR(shared.status());
  if (!shared->memory) {
    if (spec_.rank == ranks_.front()) {
      const Status& why = closed_.ok() ? shared->why_not : closed_;
      HVD_LOG(warning, "the workers of this host do without shared memory: " << why.message());
    }
    return {};
  }
  const auto self = std::find(ranks_.begin(), ranks_.end(), spec_.rank) - ranks_.begin();
  ShmGroup::Options options{spec_.config.collective_timeout, own_cores()};
  if (!options.own_core && !cores_.empty()) {
    const auto cores = static_cast<double>(cores_.size());
    options.ranks_per_core = std::max(1.0, static_cast<double>(ranks_.size()) / cores);
  }
  memory_ = shared->memory;
  mailbox_ = std::make_shared<ShmMailbox>(*shared->memory, ranks_, static_cast<std::size_t>(self));
  host_ = std::make_shared<ShmGroup>(std::move(*shared->memory), ranks_, static_cast<int>(self),
                                     options, std::move(shared->heaps));
  if (aborted_) host_->abort();
  return {};
}

void LocalRanks::abort() {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  if (rendezvous_) rendezvous_->abort();
  if (host_) host_->abort();
}

}  // namespace hvd::runtime
