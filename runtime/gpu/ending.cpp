#include "runtime/gpu/ending.h"

#include <cstdlib>
#include <utility>

#include "base/log.h"
#include "runtime/core/threads.h"

namespace hvd::runtime::gpu {
namespace {

// EX_SOFTWARE.
constexpr int kStuckExitCode = 70;

// Never destroyed: what rests when the process ends goes with it.
struct Place {
  std::mutex mutex;
  std::vector<Resting> all;
};
Place& place() {
  static auto& only = *new Place();
  return only;
}

}  // namespace

Ending::Ending(Retirement::Limits limits)
    : retirement_(limits), clock_(start_thread("hvd-gpu-end", [this] { watch_the_clock(); })) {}

Ending::~Ending() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
    changed_.notify_all();
  }
  clock_.join();
}

void Ending::watch_the_clock() {
  std::unique_lock lock(mutex_);
  while (!over_) {
    if (retirement_.tick(Clock::now()) == Retirement::Action::end_process) {
      HVD_LOG(fatal, "the world has failed, but "
                         << retirement_.stuck_in()
                         << ". Nothing in this process can free the GPU, so it ends.");
      std::_Exit(kStuckExitCode);
    }
    if (retirement_.deadline() == kNever) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock, retirement_.deadline());
    }
  }
}

void lay_to_rest(Resting resting) {
  const std::lock_guard lock(place().mutex);
  place().all.push_back(std::move(resting));
}

void destroy_what_rests() {
  std::vector<Resting> all;
  {
    const std::lock_guard lock(place().mutex);
    all.swap(place().all);
  }
  for (auto& resting : all) {
    resting.ending->tell([](Retirement& it) { return it.peers_are_quiet(Clock::now()); });
    for (auto& communicator : resting.communicators) {
      if (const Status ended = communicator->destroy(); !ended.ok()) {
        HVD_LOG(warning, "a communicator of a world that has failed: " << ended.message());
      }
    }
    resting.ending->tell([](Retirement& it) { return it.ended(); });
  }
}

}  // namespace hvd::runtime::gpu
