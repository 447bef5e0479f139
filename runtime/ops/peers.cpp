#include "runtime/ops/peers.h"

#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>
#include <utility>

namespace hvd::runtime {
namespace {

// Gloo's own collectives use other numbers in the upper eight bits.
constexpr std::uint64_t kSlots = std::uint64_t{0x48} << 56;
constexpr std::uint64_t kSetMask = 0xFFFF'FFFF;

}  // namespace

MessageMemory::MessageMemory(const Peers& peers, void* data, std::size_t bytes) : peers_(&peers) {
  if (bytes > 0) buffer_ = peers.transport_.createUnboundBuffer(data, bytes);
}

MessageMemory::MessageMemory() = default;
MessageMemory::~MessageMemory() = default;
MessageMemory::MessageMemory(MessageMemory&&) noexcept = default;
MessageMemory& MessageMemory::operator=(MessageMemory&&) noexcept = default;

void MessageMemory::send(int to, std::size_t offset, std::size_t bytes) {
  if (bytes == 0) return;
  buffer_->send(peers_->ranks_[static_cast<std::size_t>(to)], peers_->slot_, offset, bytes);
  ++sending_;
}

void MessageMemory::receive(int from, std::size_t offset, std::size_t bytes) {
  if (bytes == 0) return;
  buffer_->recv(peers_->ranks_[static_cast<std::size_t>(from)], peers_->slot_, offset, bytes);
}

void MessageMemory::wait_received() { buffer_->waitRecv(nullptr, peers_->timeout_); }

void MessageMemory::wait_all_sent() {
  for (; sending_ > 0; --sending_) buffer_->waitSend(nullptr, peers_->timeout_);
}

Peers::Peers(gloo::transport::Context& transport, std::vector<int> ranks, int rank, int process_set,
             std::chrono::milliseconds timeout)
    : transport_(transport),
      ranks_(std::move(ranks)),
      rank_(rank),
      slot_(kSlots | ((static_cast<std::uint64_t>(process_set) & kSetMask) << 24)),
      timeout_(timeout) {}

Peers Peers::part(const std::vector<int>& positions) const {
  Peers part(*this);
  part.ranks_.clear();
  for (const int position : positions) {
    if (position == rank_) part.rank_ = static_cast<int>(part.ranks_.size());
    part.ranks_.push_back(ranks_[static_cast<std::size_t>(position)]);
  }
  return part;
}

}  // namespace hvd::runtime
