// A Retirement with a clock beside it: a thread that ends the process when a step takes too long,
// since whoever takes that step hangs in it. And the place where communicators rest which may not
// be destroyed yet.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/gpu/gpu.h"
#include "runtime/gpu/retirement.h"

namespace hvd::runtime::gpu {

// Safe from any thread.
class Ending {
 public:
  explicit Ending(Retirement::Limits limits);
  ~Ending();
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;

  // Tells the machine of an event, and returns what is to be done now.
  template <typename Event>
  Retirement::Action tell(Event event) {
    const std::lock_guard lock(mutex_);
    const auto action = event(retirement_);
    changed_.notify_all();
    return action;
  }
  Retirement::State state() const {
    const std::lock_guard lock(mutex_);
    return retirement_.state();
  }

 private:
  void watch_the_clock();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Retirement retirement_;
  bool over_ = false;
  std::thread clock_;
};

// Communicators of a world that has failed, which free nothing until their peers no longer touch
// what is theirs: until the members have met again in the world after, which nobody enters before
// the one before has ended for it.
struct Resting {
  std::shared_ptr<Gpu> gpu;
  std::vector<std::unique_ptr<Communicator>> communicators;
  std::unique_ptr<Ending> ending;
};
void lay_to_rest(Resting resting);
// All that rest in this process: the peers are quiet.
void destroy_what_rests();

}  // namespace hvd::runtime::gpu
