#include "worker/process/world_teardown.h"

#include <chrono>
#include <exception>
#include <unistd.h>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "runtime/core/threads.h"

namespace hvd::worker {
namespace {

// A world that ends takes milliseconds, unless a GPU event or a NCCL call never returns. Nothing
// can interrupt these two, so the process ends without them.
constexpr std::chrono::seconds kTeardownTimeout{1};

}  // namespace

void WorldTeardown::retire(std::shared_ptr<runtime::World> world) {
  if (retired_.joinable()) retired_.join();
  owner_ = ::getpid();
  // On the heap, since a thread that does not start would drop the reference, and not abandon the
  // world before.
  const auto gone = std::make_shared<std::shared_ptr<runtime::World>>(std::move(world));
  const auto end = [gone] {
    (*gone)->abandon();
    gone->reset();
  };
  try {
    retired_ = std::thread(end);
  } catch (const std::exception&) {
    end();  // the next world needs its threads
  }
}

void WorldTeardown::release(std::shared_ptr<runtime::World> world) {
  if (!world) return;
  // On the heap, since a group that refuses the work would drop the reference here, and wait.
  auto* const held = new std::shared_ptr<runtime::World>(std::move(world));
  start([held] { delete held; });
}

void WorldTeardown::destroy(runtime::World* world) {
  if (runtime::is_runtime_thread) {
    start([world] { delete world; });
  } else {
    delete world;
  }
}

// A world for which there is no thread stays in memory: no other place can wait for its threads.
void WorldTeardown::start(std::function<void()> work) {
  owner_ = ::getpid();
  const Status started = others_.start(std::move(work));
  // A closed group means that the program ends, and the world with it.
  if (!started.ok() && started.code() != Code::aborted) {
    HVD_LOG(warning, "a world stays in memory: " << started.to_string());
  }
}

void WorldTeardown::close() {
  if (owner_ != ::getpid()) return;
  if (retired_.joinable()) retired_.join();
  others_.join_until(Clock::now() + kTeardownTimeout);
}

}  // namespace hvd::worker
