// How the communicators of a GpuWorld end: in peace, or because the world has failed.
#include <algorithm>

#include "base/log.h"
#include "runtime/gpu/gpu_world.h"

namespace hvd::runtime::gpu {
namespace {

using Action = CommunicatorTeardown::Action;

}  // namespace

// In peace: the other members come to this point, too.
void GpuWorld::leave(const Links& links) {
  const auto deadline = Clock::now() + options_.limits.closing;
  for (const auto& link : links) {
    for (const auto place : link->places()) {
      const Status left = leave(*link, place, deadline);
      if (left.ok()) continue;
      HVD_LOG(warning, "a communicator does not end in peace: " << left.message());
      Communicator* const it = ((*link).*place).get();
      const std::lock_guard in_call(calls_);
      if (const Status ended = gpu_->abort_together({&it, 1}); !ended.ok()) {
        HVD_LOG(warning, "nor otherwise: " << ended.message());
      }
    }
  }
}

Status GpuWorld::leave(Link& link, Link::Place place, TimePoint deadline) {
  {
    const std::lock_guard in_call(calls_);
    HVD_RETURN_IF_ERROR((link.*place)->finalize());
  }
  HVD_RETURN_IF_ERROR(wait_settled(link, place, deadline));
  const std::lock_guard in_call(calls_);
  return (link.*place)->destroy();
}

GpuWorld::Links GpuWorld::all_links() {
  const std::lock_guard lock(mutex_);
  Links links = leaving_;
  for (const auto& [key, link] : links_) {
    if (link->communicator) links.push_back(link);
  }
  return links;
}

std::vector<Communicator*> GpuWorld::all_communicators() {
  std::vector<Communicator*> all;
  for (const auto& link : all_links()) {
    for (const auto place : link->places()) all.push_back(((*link).*place).get());
  }
  return all;
}

// After the world has failed.
void GpuWorld::retire() {
  auto teardown = std::make_unique<AsyncDestroy>(options_.limits);
  perform(*teardown,
          teardown->tell([](CommunicatorTeardown& it) { return it.failed(Clock::now()); }));
  // The work in flight comes to its end now; the memory is the caller's again.
  const auto quiet_by = Clock::now() + kQuietWithin;
  std::list<Flight> flights;
  {
    const std::lock_guard lock(mutex_);
    flights.swap(flights_);  // no others come
  }
  for (auto& flight : flights) {
    for (;;) {
      const auto reached = gpu_->reached(flight.mark);
      if (reached.ok() && *reached) flight.mark = nullptr;
      if (!reached.ok() || *reached || Clock::now() > quiet_by) break;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  for (auto& flight : flights) {
    if (flight.mark != nullptr) gpu_->forget(flight.mark);
    if (flight.over) flight.over(was_aborted());
  }
  RetiredCommunicators retired{gpu_, {}, std::move(teardown)};
  const std::lock_guard in_call(calls_);
  for (const auto& link : all_links()) {
    for (const auto place : link->places()) {
      retired.communicators.push_back(std::move((*link).*place));
    }
  }
  if (retired.teardown->state() == CommunicatorTeardown::State::resting)
    retire_communicators(std::move(retired));
}

void GpuWorld::perform(AsyncDestroy& teardown, CommunicatorTeardown::Action action) {
  while (action != Action::none) {
    switch (action) {
      case Action::close: {
        closed_ = true;
        const std::lock_guard everybody_is_out(calls_);
        const auto all = all_communicators();
        const bool can_revoke =
            std::all_of(all.begin(), all.end(), [](const auto* one) { return one->can_revoke(); });
        action = teardown.tell(
            [&](CommunicatorTeardown& it) { return it.all_out(can_revoke, Clock::now()); });
        break;
      }
      case Action::revoke: {
        const bool all_of_them = revoke_all(all_communicators());
        action = teardown.tell(
            [&](CommunicatorTeardown& it) { return it.revoked(all_of_them, Clock::now()); });
        break;
      }
      case Action::abort: {
        const auto all = all_communicators();
        if (const Status aborted = gpu_->abort_together(all); !aborted.ok()) {
          HVD_LOG(warning, "the communicators of the world that has failed: " << aborted.message());
        }
        action = teardown.tell([](CommunicatorTeardown& it) { return it.ended(); });
        break;
      }
      default:
        return;
    }
  }
}

bool GpuWorld::revoke_all(const std::vector<Communicator*>& communicators) {
  for (auto* const one : communicators) {
    if (!one->revoke().ok()) return false;
  }
  for (auto* const one : communicators) {
    for (;;) {
      const auto settled = one->settled();
      if (!settled.ok()) return false;
      if (*settled) break;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  return true;
}

}  // namespace hvd::runtime::gpu
