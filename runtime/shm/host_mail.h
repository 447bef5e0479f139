// What the ranks of one host write to each other while they are awake anyway: letters in the memory
// that they share, instead of bytes on the connection between them, which cost a dozen
// microseconds of system calls on either side. Only those next to each other in the control tree
// write to each other, and of these each has one neighbour below its own number (its parent) on
// this host.
//
// Nobody is woken by a letter. So one is left only to who looks for letters at the moment, or has
// ceased to a moment ago and will probably be back; all else goes over the connection. Who ceases
// to look looks once more after he has said so, and who has left a letter looks after that whether
// it will be seen: a letter is never forgotten by both.
//
// For one thread at a time, the one that does the work of the control loop; has_news() may be asked
// by any.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "runtime/shm/host_memory.h"
#include "runtime/shm/letter_box.h"

namespace hvd::runtime {

class HostMail {
 public:
  // For so long who has ceased to look is taken for one who will be back.
  static constexpr std::chrono::microseconds kMoment{200};

  // `ranks`: those of the world on this host, ascending; `self`: the own position among them.
  HostMail(HostMemory memory, std::vector<int> ranks, std::size_t self);
  HostMail(const HostMail&) = delete;
  HostMail& operator=(const HostMail&) = delete;

  // --- the writer ---

  enum class Left {
    no,      // it must go over the connection
    seen,    // it will be read at once
    unseen,  // nobody looks; it is read when he comes back, or is told
  };
  // A letter to a rank. `may_wait`: who has ceased to look a moment ago need not hear of it before
  // this rank goes to sleep.
  Left leave(int rank, std::uint64_t after, std::string_view bytes, bool may_wait);
  // What was left there lies there still, and nobody looks.
  bool is_unseen(int rank) const;

  // --- the reader ---

  // From now on this rank looks for letters, often.
  void attend() { own().attended = true; }
  // Not any more; true: there are some, which nobody else will see to. `is_back_soon`: for the
  // moment; else it hears only what comes over its connections.
  bool cease(bool is_back_soon);
  bool has_news() const { return own().arrived != seen_; }
  // What has_news() said is being looked at.
  void note_news() { seen_ = own().arrived.load(); }
  // The oldest letter of a rank, until take().
  std::optional<LetterBox::Letter> look(int rank) const;
  void take(int rank);

 private:
  struct Neighbour {
    int rank;
    Desk* desk;
    LetterBox* to;
    LetterBox* from;
  };
  const Neighbour* find(int rank) const;
  Desk& own() const { return *own_; }

  HostMemory memory_;
  Desk* own_;
  std::vector<Neighbour> neighbours_;  // all ranks of the host, ascending
  std::atomic<std::uint64_t> seen_ = 0;
};

}  // namespace hvd::runtime
