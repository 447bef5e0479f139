// The fast lane: small allreduces of the ranks of one host that are repeated, without negotiation.
//
// A lane belongs to one tensor, by its name and process set. Its uses are numbered, the same on all
// members. In each use a member writes its payload into shared memory and then marks it as there,
// in the thread that calls; once the marks of all members are there, each of them adds the payloads
// up for itself.
//
// A member that does not take part in use n, because it calls with another shape, has joined, or
// shuts down, closes the lane for n instead; then all leave it, and use n is negotiated. Both are a
// change of one value, the member's mark:
//
//     2 n       the member has published its payload of use n
//     2 n + 1   it has not, and never will
//
// A mark only grows, by compare-and-exchange, so that the two exclude each other. A use is complete
// when all have published it, and closed when one has not and never will; both are final, and no
// two members can see different ones. A waiting member may close the lane in the name of one that
// is late: the late one then fails to publish, and leaves, too. So all members leave at the same
// use, and count on from the one after it when they come to the lane again.
//
// Two buffers for each member, used in turn. A member writes its payload of use n + 2 after it has
// ended n + 1, so when all had published n + 1, which each of them did after it had read all
// payloads of use n: nobody reads any more what is overwritten. The mark that says "published" is
// a release of the payload and of these reads, and looking at marks acquires them. All accesses to
// marks are sequentially consistent, as FutexEvent demands: of the last two members that publish at
// the same time, at least one sees that the use is complete, and wakes those that sleep.
//
// A Lane is one member's view of it, for one thread at a time, the holder of the tensor queue's
// lock; only payload() may be called without it, by the thread that adds up a complete use.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>

#include "runtime/core/request.h"
#include "runtime/shm/shm_layout.h"

namespace hvd::runtime {

class Lane {
 public:
  static constexpr std::size_t kMostBytes = 8 << 10;
  // The bytes of one member's payload.
  static std::size_t payload_bytes(const Request& request);
  // LaneSpot::room for payloads of so many bytes.
  static std::size_t room_for(std::size_t bytes);

  enum class State { waiting, complete, closed };

  // Its payloads are reserved. `position`: that of this rank among the members.
  Lane(const ShmLayout& memory, const LaneSpot& spot, int position, int members);

  const LaneSpot& spot() const { return spot_; }
  int members() const { return members_; }
  // All members have left, if they ever were in it, and come to it with the next use.
  void open() { is_open_ = true; }
  bool is_open() const { return is_open_; }
  // This member has published the use, and has not ended it.
  bool in_use() const { return in_use_; }

  // Publishes this member's payload, which it makes of the entry's input. False: the lane is closed
  // for this use, and this member has left it.
  bool publish(const Entry& entry);
  // --- in use ---
  State look() const;
  // The same, but closes the lane in the name of those that are late: never `waiting`.
  State settle();
  // Of a complete use: what each member has published, and the sum, into the entry's output.
  const std::byte* payload(int position) const { return buffer(position); }
  void add_up(Entry& entry) const;
  // After a complete use: the next one may come.
  void end();
  // After a closed one.
  void leave();
  // --- not in use ---
  // Closes the lane for the next use, and leaves it.
  void close();

 private:
  static bool is_published(std::uint64_t mark, std::uint64_t use) {
    return mark == 2 * use || mark > 2 * use + 1;
  }
  static bool is_closed(std::uint64_t mark, std::uint64_t use) { return mark == 2 * use + 1; }
  std::atomic<std::uint64_t>& mark(int position) const;
  std::byte* buffer(int position) const;
  bool move_own_mark(std::uint64_t to);

  ShmLayout memory_;
  LaneSpot spot_;
  int position_;
  int members_;
  std::uint64_t use_ = 1;  // the current one, or the next
  bool is_open_ = false;
  bool in_use_ = false;
};

// The lanes of one rank. For one thread at a time, but for event().
class Lanes {
 public:
  // Shared by so many ranks.
  Lanes(ShmLayout memory, int ranks) : memory_(std::move(memory)), ranks_(ranks) {}

  // The lane, open; all members do this with the response that gives it to them. Closed: this rank
  // has no memory for it.
  Lane& open(const LaneSpot& spot, int position, int members);
  FutexEvent& event() const { return memory_.lane_event(); }

 private:
  bool reserve(const LaneSpot& spot, int members);

  ShmLayout memory_;
  int ranks_;
  std::map<int, Lane> lanes_;   // by number
  std::size_t reserved_ = 0;    // bytes of payloads
  bool has_no_memory_ = false;  // for more
};

}  // namespace hvd::runtime
