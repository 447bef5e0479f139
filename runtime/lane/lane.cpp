#include "runtime/lane/lane.h"

#include <algorithm>
#include <array>

#include "base/log.h"
#include "runtime/core/batch_arithmetic.h"
#include "runtime/core/reduce_in_order.h"

namespace hvd::runtime {

static_assert(Lane::kMostBytes <= kReducedAtOnce);

std::size_t Lane::payload_bytes(const Request& request) {
  const DataType wire = wire_type(request.type, request.op, request.compression);
  return static_cast<std::size_t>(request.elements()) * size_of(wire);
}

std::size_t Lane::room_for(std::size_t bytes) {
  if (bytes <= LaneHead::kRoom) return 0;
  return (bytes + kSharedLine - 1) / kSharedLine * kSharedLine;
}

Lane::Lane(const ShmLayout& memory, const LaneSpot& spot, int position, int members)
    : memory_(memory), spot_(spot), position_(position), members_(members) {}

std::atomic<std::uint64_t>& Lane::mark(int position) const {
  return memory_.lane_head(spot_.lane, position).mark;
}

std::byte* Lane::buffer(int position) const {
  const std::size_t turn = use_ % 2;
  if (spot_.room == 0) return memory_.lane_head(spot_.lane, position).payloads[turn];
  const std::size_t before = 2 * static_cast<std::size_t>(position) + turn;
  return memory_.lane_payloads() + spot_.offset + before * spot_.room;
}

// False: another member has closed the lane for this use in the name of this one.
bool Lane::move_own_mark(std::uint64_t to) {
  auto& own = mark(position_);
  std::uint64_t before = own.load();
  return !is_closed(before, use_) && own.compare_exchange_strong(before, to);
}

bool Lane::publish(const Entry& entry) {
  for (int member = 0; member < members_; ++member) {
    if (!is_closed(mark(member).load(), use_)) continue;
    leave();
    return false;
  }

  const BatchArithmetic arithmetic(entry.request, members_);
  arithmetic.pack(entry.input, buffer(position_),
                  static_cast<std::size_t>(entry.request.elements()));
  if (!move_own_mark(2 * use_)) {
    leave();
    return false;
  }
  in_use_ = true;
  if (look() == State::complete) memory_.lane_event().notify();
  return true;
}

Lane::State Lane::look() const {
  bool all = true;
  for (int member = 0; member < members_; ++member) {
    const std::uint64_t there = mark(member).load();
    if (is_closed(there, use_)) return State::closed;
    all = all && is_published(there, use_);
  }
  return all ? State::complete : State::waiting;
}

Lane::State Lane::settle() {
  State state = look();
  for (int member = 0; member < members_ && state == State::waiting; ++member) {
    auto& late = mark(member);
    std::uint64_t before = late.load();
    if (is_published(before, use_)) continue;
    if (!is_closed(before, use_) && !late.compare_exchange_strong(before, 2 * use_ + 1)) {
      // The member itself was faster, or another one that closes it.
      --member;
      continue;
    }
    memory_.lane_event().notify();
    state = State::closed;
  }
  // All that were late have published meanwhile.
  return state == State::waiting ? State::complete : state;
}

void Lane::add_up(Entry& entry) const {
  const BatchArithmetic arithmetic(entry.request, members_);
  const auto count = static_cast<std::size_t>(entry.request.elements());
  alignas(64) std::array<std::byte, kReducedAtOnce> sum;  // NOLINT: it is written before it is read
  reduce_in_order(
      reduce_function(arithmetic.wire, arithmetic.op), members_,
      [this](int member) { return payload(member); }, sum.data(), count);
  if (arithmetic.changes_sums()) arithmetic.finish(sum.data(), count);
  arithmetic.unpack(sum.data(), entry.output, count);
}

void Lane::end() {
  in_use_ = false;
  ++use_;
}

void Lane::leave() {
  end();
  is_open_ = false;
}

void Lane::close() {
  if (move_own_mark(2 * use_ + 1)) memory_.lane_event().notify();
  leave();
}

Lane& Lanes::open(const LaneSpot& spot, int position, int members) {
  const bool is_reserved = reserve(spot, members);
  Lane& lane = lanes_.try_emplace(spot.lane, memory_, spot, position, members).first->second;
  lane.open();
  if (!is_reserved) lane.close();
  return lane;
}

// In blocks. Another rank may have reserved, and use, the same memory: so a block must be small
// enough that nothing of it is given back if it cannot be reserved.
bool Lanes::reserve(const LaneSpot& spot, int members) {
  constexpr std::size_t kBlock = std::size_t{1} << 20;
  if (spot.room == 0) return true;
  const std::size_t end = spot.offset + 2 * spot.room * static_cast<std::size_t>(members);
  while (reserved_ < end && !has_no_memory_) {
    const std::size_t bytes = std::min(kBlock, ShmLayout::lane_bytes(ranks_) - reserved_);
    const Status reserved = memory_.reserve_lane_payloads(reserved_, bytes);
    has_no_memory_ = !reserved.ok();
    if (has_no_memory_) {
      HVD_LOG(info, "small tensors take more time: " << reserved.message());
    } else {
      reserved_ += bytes;
    }
  }
  return reserved_ >= end;
}

}  // namespace hvd::runtime
