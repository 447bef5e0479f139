// Short messages between ranks of one host that are awake anyway, in the memory that they share:
// sending them over their connection would cost a dozen microseconds of system calls on either
// side. Only neighbours in the control tree write to each other, and each rank has one neighbour
// with a lower number (its parent) on this host.
//
// A message wakes no thread. So a sender uses the mailbox only if the receiver polls at the moment,
// or has stopped a moment ago and will probably be back; all else goes over the connection. A
// receiver checks once more after it has announced that it stops, and a sender checks after each
// message whether it will be seen: no message is forgotten by both.
//
// For one thread at a time, the one that drives the control loop; has_new() is safe from any.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "runtime/shm/shm_layout.h"
#include "runtime/shm/spsc_ring.h"

namespace hvd::runtime {

class ShmMailbox {
 public:
  // For so long a receiver that has stopped polling is expected to be back.
  static constexpr std::chrono::microseconds kMoment{200};

  // `ranks`: those of the world on this host, ascending; `self`: the own position among them.
  ShmMailbox(ShmLayout memory, std::vector<int> ranks, std::size_t self);
  ShmMailbox(const ShmMailbox&) = delete;
  ShmMailbox& operator=(const ShmMailbox&) = delete;

  // --- the writer ---

  enum class SendResult {
    no,      // it must go over the connection
    seen,    // it will be read at once
    unseen,  // the receiver does not poll: it reads the message when it is back or is told
  };
  // Sends a message to a rank. `may_wait`: a receiver that stopped a moment ago need not hear of it
  // before this rank goes to sleep.
  SendResult send(int rank, std::uint64_t after, std::string_view bytes, bool may_wait);
  // The message is still there, and the receiver does not poll.
  bool is_unseen(int rank) const;

  // --- the reader ---

  // From now on this rank polls.
  void start_polling() { own().polling = true; }
  // Stops polling. Returns true if messages are there, which this rank has to read now.
  // `is_back_soon`: it stops for a moment; else it reads only its connections from now on.
  bool stop_polling(bool is_back_soon);
  bool has_new() const { return own().arrived != seen_; }
  // The messages that has_new() told of are being read.
  void note_new() { seen_ = own().arrived.load(); }
  // The oldest message of a rank, until take().
  std::optional<SpscRing::Message> look(int rank) const;
  void take(int rank);

 private:
  struct Neighbour {
    int rank;
    RankSlot* slot;
    SpscRing* to;
    SpscRing* from;
  };
  const Neighbour* find(int rank) const;
  RankSlot& own() const { return *own_; }

  ShmLayout memory_;
  RankSlot* own_;
  std::vector<Neighbour> neighbours_;  // all ranks of the host, ascending
  std::atomic<std::uint64_t> seen_ = 0;
};

}  // namespace hvd::runtime
