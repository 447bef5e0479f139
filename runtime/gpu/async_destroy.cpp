#include "runtime/gpu/async_destroy.h"

#include <cstdlib>
#include <utility>

#include "base/log.h"
#include "runtime/core/threads.h"

namespace hvd::runtime::gpu {
namespace {

// EX_SOFTWARE.
constexpr int kStuckExitCode = 70;

// Never destroyed: communicators that are left when the process ends go with it.
struct Place {
  std::mutex mutex;
  std::vector<RetiredCommunicators> all;
};
Place& place() {
  static auto& only = *new Place();
  return only;
}

}  // namespace

AsyncDestroy::AsyncDestroy(CommunicatorTeardown::Limits limits)
    : teardown_(limits), clock_(start_thread("hvd-gpu-end", [this] { watch_deadline(); })) {}

AsyncDestroy::~AsyncDestroy() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
    changed_.notify_all();
  }
  clock_.join();
}

void AsyncDestroy::watch_deadline() {
  std::unique_lock lock(mutex_);
  while (!over_) {
    if (teardown_.tick(Clock::now()) == CommunicatorTeardown::Action::end_process) {
      HVD_LOG(fatal, "the world has failed, but "
                         << teardown_.stuck_in()
                         << ". Nothing in this process can free the GPU, so it ends.");
      std::_Exit(kStuckExitCode);
    }
    if (teardown_.deadline() == kNever) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock, teardown_.deadline());
    }
  }
}

void retire_communicators(RetiredCommunicators retired) {
  const std::lock_guard lock(place().mutex);
  place().all.push_back(std::move(retired));
}

void destroy_retired() {
  std::vector<RetiredCommunicators> all;
  {
    const std::lock_guard lock(place().mutex);
    all.swap(place().all);
  }
  for (auto& retired : all) {
    retired.teardown->tell([](CommunicatorTeardown& it) { return it.peers_idle(Clock::now()); });
    for (auto& communicator : retired.communicators) {
      if (const Status ended = communicator->destroy(); !ended.ok()) {
        HVD_LOG(warning, "a communicator of a world that has failed: " << ended.message());
      }
    }
    retired.teardown->tell([](CommunicatorTeardown& it) { return it.ended(); });
  }
}

}  // namespace hvd::runtime::gpu
