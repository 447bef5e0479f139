#include "runtime/shm/shm_mailbox.h"

#include <algorithm>

#include "runtime/core/activity.h"

namespace hvd::runtime {

ShmMailbox::ShmMailbox(ShmLayout memory, std::vector<int> ranks, std::size_t self)
    : memory_(std::move(memory)), own_(&memory_.slot(self)) {
  for (std::size_t other = 0; other < ranks.size(); ++other) {
    if (other == self) continue;
    RankSlot& slot = memory_.slot(other);
    if (other < self) {
      neighbours_.push_back({ranks[other], &slot, &own_->to_parent, &own_->from_parent});
    } else {
      neighbours_.push_back({ranks[other], &slot, &slot.from_parent, &slot.to_parent});
    }
  }
}

const ShmMailbox::Neighbour* ShmMailbox::find(int rank) const {
  const auto found = std::lower_bound(neighbours_.begin(), neighbours_.end(), rank,
                                      [](const Neighbour& one, int of) { return one.rank < of; });
  return found != neighbours_.end() && found->rank == rank ? &*found : nullptr;
}

ShmMailbox::SendResult ShmMailbox::send(int rank, std::uint64_t after, std::string_view bytes,
                                        bool may_wait) {
  const auto* const neighbour = find(rank);
  if (neighbour == nullptr) return SendResult::no;
  RankSlot& slot = *neighbour->slot;
  if (!slot.polling) {
    const auto moment = std::chrono::duration_cast<std::chrono::nanoseconds>(kMoment).count();
    const auto now = trace::nanoseconds_now();
    const auto stopped_at = slot.stopped_at.load();
    if (!may_wait || stopped_at <= 0 || stopped_at > now || now - stopped_at > moment)
      return SendResult::no;
  }
  if (!neighbour->to->put(after, bytes)) return SendResult::no;
  ++slot.arrived;
  return slot.polling ? SendResult::seen : SendResult::unseen;
}

bool ShmMailbox::is_unseen(int rank) const {
  const auto* const neighbour = find(rank);
  return neighbour != nullptr && !neighbour->slot->polling && !neighbour->to->all_read();
}

bool ShmMailbox::stop_polling(bool is_back_soon) {
  own().stopped_at = is_back_soon ? trace::nanoseconds_now() : 0;
  own().polling = false;
  return has_new();
}

std::optional<SpscRing::Message> ShmMailbox::look(int rank) const {
  const auto* const neighbour = find(rank);
  return neighbour == nullptr ? std::nullopt : neighbour->from->look();
}

void ShmMailbox::take(int rank) { find(rank)->from->take(); }

}  // namespace hvd::runtime
