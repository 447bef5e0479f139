#include "runtime/shm/host_mail.h"

#include <algorithm>

#include "runtime/core/activity.h"

namespace hvd::runtime {

HostMail::HostMail(HostMemory memory, std::vector<int> ranks, std::size_t self)
    : memory_(std::move(memory)), own_(&memory_.desk(self)) {
  for (std::size_t other = 0; other < ranks.size(); ++other) {
    if (other == self) continue;
    Desk& desk = memory_.desk(other);
    if (other < self) {
      neighbours_.push_back({ranks[other], &desk, &own_->to_parent, &own_->from_parent});
    } else {
      neighbours_.push_back({ranks[other], &desk, &desk.from_parent, &desk.to_parent});
    }
  }
}

const HostMail::Neighbour* HostMail::find(int rank) const {
  const auto found = std::lower_bound(neighbours_.begin(), neighbours_.end(), rank,
                                      [](const Neighbour& one, int of) { return one.rank < of; });
  return found != neighbours_.end() && found->rank == rank ? &*found : nullptr;
}

HostMail::Left HostMail::leave(int rank, std::uint64_t after, std::string_view bytes,
                               bool may_wait) {
  const auto* const neighbour = find(rank);
  if (neighbour == nullptr) return Left::no;
  Desk& desk = *neighbour->desk;
  if (!desk.attended) {
    const auto moment = std::chrono::duration_cast<std::chrono::nanoseconds>(kMoment).count();
    const auto now = trace::nanoseconds_now();
    const auto left_at = desk.left_at.load();
    if (!may_wait || left_at <= 0 || left_at > now || now - left_at > moment) return Left::no;
  }
  if (!neighbour->to->put(after, bytes)) return Left::no;
  ++desk.arrived;
  return desk.attended ? Left::seen : Left::unseen;
}

bool HostMail::is_unseen(int rank) const {
  const auto* const neighbour = find(rank);
  return neighbour != nullptr && !neighbour->desk->attended && !neighbour->to->all_read();
}

bool HostMail::cease(bool is_back_soon) {
  own().left_at = is_back_soon ? trace::nanoseconds_now() : 0;
  own().attended = false;
  return has_news();
}

std::optional<LetterBox::Letter> HostMail::look(int rank) const {
  const auto* const neighbour = find(rank);
  return neighbour == nullptr ? std::nullopt : neighbour->from->look();
}

void HostMail::take(int rank) { find(rank)->from->take(); }

}  // namespace hvd::runtime
