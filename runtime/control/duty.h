// Who does the work that comes from a poller: its keeper, the thread that is there for it, or a
// helper, a thread that has to wait for what comes of that work, and rather does it itself than be
// woken by somebody who was woken for it. There is one keeper, and at most one helper at a time.
//
//     keeper   turn = take_turn(); loop: do what there is to do, keep(turn, until when)
//     helper   come(); turn = take_turn(), step_in(turn); loop: do what there is to do, and if what
//              it waits for is still to come, look_briefly(turn, events), and if there are none
//              help(turn, until when), or something else without the turn, and then glance(turn);
//              leave(turn, until when)
//
// Work is done by whoever has the turn; the three that wait give it away meanwhile. As long as a
// helper is on duty, events do not wake the keeper, and letters (shm/host_mail.h) are looked for.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "runtime/net/poller.h"
#include "runtime/shm/host_mail.h"

namespace hvd::runtime {

class Duty {
 public:
  using Turn = std::unique_lock<std::mutex>;

  // `own_core`: each rank of this host can have one.
  Duty(Poller& poller, bool own_core) : poller_(poller), own_core_(own_core) {}
  Duty(const Duty&) = delete;
  Duty& operator=(const Duty&) = delete;

  // Once, after the poller, before anything else.
  Status open();
  Turn take_turn() { return Turn(mutex_); }
  // From now on letters are events, too, though none that is returned. Within a turn.
  void watch_letters(std::shared_ptr<HostMail> mail);

  // --- the keeper; `until`: when there is something to do although nothing has happened ---

  std::vector<Poller::Event> keep(Turn& turn, TimePoint until);

  // --- the helper ---

  // False: somebody helps already.
  bool come() { return !is_taken_.exchange(true); }
  void step_in(Turn& turn);
  // False: nothing came soon.
  bool look_briefly(Turn& turn, std::vector<Poller::Event>& events);
  std::vector<Poller::Event> help(Turn& turn, TimePoint until);
  // What has happened, for one that does something else again and again; nothing, if it has looked
  // a moment ago.
  std::vector<Poller::Event> glance(Turn& turn);
  // Until it steps in again it sleeps elsewhere, however often, and the keeper is on duty.
  void step_aside(Turn& turn, TimePoint until);
  void leave(Turn& turn, TimePoint until);

  // --- any thread ---

  // The keeper looks around, whoever is on duty.
  void wake_keeper() { keepers_.wake(); }
  // What the helper waits for has come, through somebody else; after that is to be seen.
  void tell_helper() {
    if (helps_) poller_.wake();
  }

 private:
  void go(Turn& turn, TimePoint until, bool is_back_soon);

  Poller& poller_;
  const bool own_core_;
  std::shared_ptr<HostMail> mail_;  // set once, within a turn
  Poller keepers_;                  // watches the other one, unless a helper does
  std::mutex mutex_;                // the turn
  TimePoint keeper_until_{};
  TimePoint looked_{};  // the helper, for events
  std::atomic<bool> is_taken_ = false;
  std::atomic<bool> helps_ = false;  // changes within a turn
};

}  // namespace hvd::runtime
