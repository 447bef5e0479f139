// Decides which hosts have been silent for too long, and whether that is their fault or the
// driver's. Pure: the job (driver/job/job.h) tells what it heard and when, and carries the verdicts
// out.
//
// A host is lost when it was not heard for `timeout`, in which the driver was listening. Three
// things speak against such a verdict, for they look alike from here and are the driver's own
// fault:
//   - All hosts of two or more are silent at the same moment, which means for at least half the
//     timeout when the first verdict is due. Machines seldom die together, a cable does that. The
//     verdict waits until one is heard again, whereupon the others get a fresh timeout, or until
//     `orphan_timeout` of silence is over: then the agents have killed their workers themselves.
//     An agent on this machine says nothing of the network: all *other* machines silent at once,
//     of two or more, is enough, however well the local agents are heard. The reverse is not: a
//     local agent that is silent while a machine out there is heard hangs by itself.
//   - The driver was held up (driver/job/job_time.h), for more than a third of the timeout.
//     Messages that arrived meanwhile lie unread, so all get a fresh timeout.
//   - The driver is busy and has not come round to this host: what its agent sent lies unread, or
//     what the agent is asked has not left yet. Such a host is excused: its silence counts from the
//     last moment at which the driver was behind. It vouches for nobody else.
//
// A value for one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

#include "base/clock.h"

namespace hvd::driver {

// As many heartbeats are sent to each host within the timeout, and as often silence is judged.
constexpr int kHeartbeatsPerTimeout = 10;

class Heartbeats {
 public:
  struct Options {
    std::chrono::milliseconds timeout{0};         // 0: silence means nothing
    std::chrono::milliseconds orphan_timeout{0};  // 0: verdicts may be delayed for ever
  };

  // Nobody is watched at first. `local`, by host: its agent is on this machine.
  Heartbeats(Options options, std::vector<bool> local);

  // One more host, whose number is the next.
  void add(bool local) { hosts_.push_back({.local = local}); }

  // From now on, which counts as the first word from it. True if that ended a delay.
  bool watch(std::size_t host, TimePoint now);
  void forget(std::size_t host);

  // The driver was held up for `time`. `now` is the job's own time, which leaves it out.
  void held_up(Duration time, TimePoint now);
  // True if this ended a delay.
  bool hear(std::size_t host, TimePoint now);
  // The driver is behind with this host.
  void excuse(std::size_t host, TimePoint now) { hosts_[host].excused = now; }

  struct Judgement {
    std::vector<std::size_t> lost;            // to be forgotten by the caller
    std::chrono::milliseconds silent_for{0};  // they, at least
    bool delayed = false;                     // the verdict on all of them was
    bool delay_begins = false;
  };
  // To be called at next_look(), and harmless at any time. Every host of which something had
  // arrived was heard or excused before.
  Judgement judge(TimePoint now);
  // kNever if nobody is watched.
  TimePoint next_look() const;

  // Since the last sign of life of the host that has been silent for the longest time. Nothing if
  // nobody is watched.
  std::optional<Duration> longest_silence(TimePoint now) const;

  // Whether a verdict is being delayed: on the silence of everybody, or of all other machines.
  bool delaying() const { return delay_ != Delay::none; }
  bool delaying_everybody() const { return delay_ == Delay::everybody; }
  // When the delay ends at the latest; kNever if there is none, or it has no end.
  TimePoint delay_ends() const;

 private:
  enum class Delay { none, machines, everybody };
  struct Host {
    bool local = false;
    bool watched = false;
    TimePoint heard{};    // last
    TimePoint counted{};  // from when its silence counts: later than `heard` after a delay
    TimePoint excused{};  // last
  };

  Delay silent_together(TimePoint now) const;
  static bool concerns(Delay delay, const Host& host) {
    return delay == Delay::everybody || (delay == Delay::machines && !host.local);
  }
  TimePoint limit(const Host& host) const;
  void give_fresh_timeout(TimePoint now, bool only_local);

  Options options_;
  std::vector<Host> hosts_;
  std::size_t watched_ = 0;
  std::size_t watched_machines_ = 0;  // those that are not local
  Delay delay_ = Delay::none;
  TimePoint next_judgement_ = kNever;
};

}  // namespace hvd::driver
