#include "runtime/gpu/gpu_world.h"

#include <algorithm>
#include <sys/prctl.h>

#include "base/log.h"
#include "base/text.h"
#include "runtime/gpu/acquaintance.h"
#include "runtime/gpu/plan.h"
#include "runtime/threads.h"

namespace hvd::runtime::gpu {
namespace {

using Action = Retirement::Action;

// How often communicators are asked for errors, at most.
constexpr std::chrono::milliseconds kErrorInterval{1};
// Kernels of a communicator that was ended come to their own end within that.
constexpr std::chrono::milliseconds kQuietWithin{5'000};

Status was_aborted() { return {Code::aborted, "the world has failed"}; }

// Longer and longer, the longer something takes: it costs a share of what there is to win.
std::chrono::microseconds pause_after(Duration waited) {
  using std::chrono::microseconds;
  const auto tenth = std::chrono::duration_cast<microseconds>(waited / 16);
  return std::clamp(tenth, microseconds(2), microseconds(500));
}

}  // namespace

GpuWorld::GpuWorld(GpuWorldOptions options)
    : options_(std::move(options)), buffers_(static_cast<std::size_t>(options_.lanes)) {}

void GpuWorld::close() {
  if (!watchdog_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  watchdog_.join();
  for (std::size_t lane = 0; lane < buffers_.size(); ++lane) {
    if (buffers_[lane].memory != nullptr) {
      gpu_->release(static_cast<int>(lane), buffers_[lane].memory);
    }
  }
}

Status GpuWorld::open(int device) {
  if (device == device_ && gpu_) return {};
  if (gpu_) {
    return {Code::invalid_argument, cat("this rank works on CUDA device ", device_, ", not on ",
                                        device, ": a rank of a world has one")};
  }
  auto opened = options_.open(device, options_.lanes);
  HVD_RETURN_IF_ERROR(opened.status());
  HVD_RETURN_IF_ERROR((*opened)->enter());
  gpu_ = std::move(*opened);
  device_ = device;
  watchdog_ = start_thread("hvd-gpu", [this] { watch(); });
  return {};
}

Result<std::byte*> GpuWorld::buffer(int lane, std::size_t bytes) {
  auto& buffer = buffers_[static_cast<std::size_t>(lane)];
  if (buffer.bytes < bytes) {
    if (buffer.memory != nullptr) gpu_->release(lane, std::exchange(buffer, {}).memory);
    auto memory = gpu_->allocate(lane, bytes);
    HVD_RETURN_IF_ERROR(memory.status());
    buffer = {*memory, bytes};
  }
  return static_cast<std::byte*>(buffer.memory);
}

Result<std::shared_ptr<Link>> GpuWorld::link(const Group& group, const Active& active, int lane,
                                             int device) {
  {
    const std::lock_guard lock(mutex_);
    const auto link = links_.find({group.id, active.ranks, lane});
    if (link != links_.end()) return link->second;
  }
  auto made = std::make_shared<Link>();
  made->process_set = group.id;
  made->ranks = active.ranks;
  made->lane = lane;
  HVD_RETURN_IF_ERROR(form(made, group, active, device));
  const std::lock_guard lock(mutex_);
  links_[{group.id, active.ranks, lane}] = made;
  return made;
}

Status GpuWorld::form(const std::shared_ptr<Link>& link, const Group& group, const Active& active,
                      int device) {
  Acquaintance own;
  own.ready = open(device);
  own.lanes = options_.lanes;
  if (gpu_) own.identity = gpu_->identity();
  const int roots = roots_of(active.size(), own.identity.library_version);
  const auto meet_at = root_ranks(active.size(), roots);
  if (own.ready.ok() && std::binary_search(meet_at.begin(), meet_at.end(), active.rank)) {
    auto id = gpu_->new_id();
    own.ready = id.status();
    if (id.ok()) own.id = std::move(*id);
  }
  std::vector<Acquaintance> all{own};
  if (active.size() > 1) {
    all.clear();
    for (const auto& bytes : options_.tell(group, active, own.encode())) {
      auto one = Acquaintance::decode(bytes);
      HVD_RETURN_IF_ERROR(one.status());
      all.push_back(std::move(*one));
    }
  }
  std::vector<std::string> names;
  for (const int rank : active.ranks)
    names.push_back(options_.names[static_cast<std::size_t>(rank)]);
  link->refused = check_acquaintances(all, names);
  if (!link->refused.ok()) return {};
  link->adds_float8 = all_add_float8(all);
  // All these have left the world before.
  destroy_what_rests();
  Joining joining;
  for (const int root : meet_at) joining.ids.push_back(all[static_cast<std::size_t>(root)].id);
  joining.rank = active.rank;
  joining.size = active.size();
  joining.lane = link->lane;
  joining.shares_device = share_device(all);
  {
    const std::lock_guard in_call(calls_);
    if (closed_) return was_aborted();
    auto joined = gpu_->join(joining);
    HVD_RETURN_IF_ERROR(joined.status());
    link->communicator = std::move(*joined);
    // Before it is complete: it must end with the others.
    const std::lock_guard lock(mutex_);
    links_[{group.id, active.ranks, link->lane}] = link;
  }
  return wait_settled(*link, Clock::now() + options_.connect_timeout)
      .with_context(cat("a communicator of ", active.size(), " ranks"));
}

Status GpuWorld::wait_settled(const Link& link, TimePoint deadline) {
  const auto begun = Clock::now();
  for (;;) {
    {
      const std::lock_guard in_call(calls_);
      if (closed_) return was_aborted();
      auto settled = link.communicator->settled();
      HVD_RETURN_IF_ERROR(settled.status());
      if (*settled) return {};
    }
    const auto now = Clock::now();
    if (now >= deadline) {
      return {Code::deadline_exceeded, "the library was not ready for more in time"};
    }
    std::this_thread::sleep_for(pause_after(now - begun));
  }
}

Status GpuWorld::together(Link& link, const std::function<Status(Communicator&)>& calls) {
  {
    const std::lock_guard in_call(calls_);
    if (closed_) return was_aborted();
    auto& communicator = *link.communicator;
    HVD_RETURN_IF_ERROR(communicator.begin());
    const Status called = calls(communicator);
    const Status ended = communicator.end();  // also what has failed half-way
    HVD_RETURN_IF_ERROR(called);
    HVD_RETURN_IF_ERROR(ended);
    auto settled = communicator.settled();
    HVD_RETURN_IF_ERROR(settled.status());
    if (*settled) return {};
  }
  // New connections take a while; a member that is gone is the control plane's to notice.
  return wait_settled(link, kNever);
}

Status GpuWorld::take_off(const std::shared_ptr<Link>& link, std::span<void* const> temporary,
                          std::span<void* const> streams, const Over& over) {
  for (void* const memory : temporary) gpu_->release(link->lane, memory);
  auto mark = gpu_->mark(link->lane);
  HVD_RETURN_IF_ERROR(mark.status());
  for (void* const stream : streams) {
    if (Status held = gpu_->hold(stream, *mark); !held.ok()) {
      gpu_->forget(*mark);
      return held;
    }
  }
  // The user's streams wait, so nobody else has to.
  const bool at_once = !streams.empty();
  {
    const std::lock_guard lock(mutex_);
    if (abort_) {
      gpu_->forget(*mark);
      return was_aborted();
    }
    flights_.push_back({link, *mark, at_once ? Over() : over, Clock::now()});
    changed_.notify_all();
  }
  if (at_once) over({});
  return {};
}

void GpuWorld::forget(int process_set) {
  const std::lock_guard lock(mutex_);
  for (auto link = links_.begin(); link != links_.end();) {
    if (std::get<0>(link->first) == process_set) {
      if (link->second->communicator) leaving_.push_back(link->second);
      link = links_.erase(link);
    } else {
      ++link;
    }
  }
  changed_.notify_all();
}

void GpuWorld::abort() {
  closed_ = true;  // so that the executor's thread stops waiting
  const std::lock_guard lock(mutex_);
  abort_ = true;
  changed_.notify_all();
}

// --- the watchdog -------------------------------------------------------------------------------

void GpuWorld::watch() {
  // The system rounds every sleep up to 50 us otherwise.
  ::prctl(PR_SET_TIMERSLACK, 1'000UL, 0, 0, 0);
  if (const Status entered = gpu_->enter(); !entered.ok()) options_.on_broken(entered);
  auto next_look = Clock::now() + kErrorInterval;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock,
                  [this] { return abort_ || stop_ || !flights_.empty() || !leaving_.empty(); });
    if (abort_) {
      lock.unlock();
      return retire();
    }
    if (flights_.empty()) {
      Links links = std::exchange(leaving_, {});
      const bool last = stop_;
      if (last) {
        for (const auto& [key, link] : links_) {
          if (link->communicator) links.push_back(link);
        }
        links_.clear();
      }
      lock.unlock();
      leave(links);
      if (last) return;
      lock.lock();
      continue;
    }
    if (look_at_flights(lock) || flights_.empty()) continue;
    const auto now = Clock::now();
    Links links;
    if (now >= next_look) {
      next_look = now + kErrorInterval;
      for (const auto& flight : flights_) links.push_back(flight.link);
    }
    const auto pause = pause_after(now - flights_.front().since);
    if (links.empty()) {
      changed_.wait_for(lock, pause, [this] { return abort_; });
      continue;
    }
    lock.unlock();
    look_for_errors(links);
    lock.lock();
  }
}

// Whether something has landed; the lock is given up while it is told.
bool GpuWorld::look_at_flights(std::unique_lock<std::mutex>& lock) {
  for (auto flight = flights_.begin(); flight != flights_.end(); ++flight) {
    auto reached = gpu_->reached(flight->mark);
    if (!reached.ok() && !reported_.exchange(true)) {
      lock.unlock();
      options_.on_broken(reached.status());
      lock.lock();
      return true;
    }
    if (!reached.ok() || !*reached) continue;
    const Over over = std::move(flight->over);
    flights_.erase(flight);
    lock.unlock();
    if (over) over({});
    lock.lock();
    return true;
  }
  return false;
}

void GpuWorld::look_for_errors(const Links& links) {
  // Whoever is in a call will be told of errors there.
  const std::unique_lock in_call(calls_, std::try_to_lock);
  if (!in_call.owns_lock() || closed_) return;
  for (const auto& link : links) {
    if (!link->communicator) continue;
    const auto settled = link->communicator->settled();
    if (!settled.ok() && !reported_.exchange(true)) options_.on_broken(settled.status());
  }
}

// In peace: the other members come to this point, too.
void GpuWorld::leave(const Links& links) {
  const auto deadline = Clock::now() + options_.limits.closing;
  for (const auto& link : links) {
    Status left;
    {
      const std::lock_guard in_call(calls_);
      left = link->communicator->finalize();
    }
    if (left.ok()) left = wait_settled(*link, deadline);
    const std::lock_guard in_call(calls_);
    if (left.ok()) left = link->communicator->destroy();
    if (left.ok()) continue;
    HVD_LOG(warning, "a communicator does not end in peace: " << left.message());
    Communicator* const one = link->communicator.get();
    if (const Status ended = gpu_->abort_together({&one, 1}); !ended.ok()) {
      HVD_LOG(warning, "nor otherwise: " << ended.message());
    }
  }
}

GpuWorld::Links GpuWorld::all_links() {
  const std::lock_guard lock(mutex_);
  Links links = leaving_;
  for (const auto& [key, link] : links_) {
    if (link->communicator) links.push_back(link);
  }
  return links;
}

// After the world has failed.
void GpuWorld::retire() {
  auto ending = std::make_unique<Ending>(options_.limits);
  perform(*ending, ending->tell([](Retirement& it) { return it.failed(Clock::now()); }));
  // What ran comes to its end now; the memory is the caller's again.
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
  Resting resting{gpu_, {}, std::move(ending)};
  const std::lock_guard in_call(calls_);
  for (const auto& link : all_links()) {
    resting.communicators.push_back(std::move(link->communicator));
  }
  if (resting.ending->state() == Retirement::State::resting) lay_to_rest(std::move(resting));
}

void GpuWorld::perform(Ending& ending, Retirement::Action action) {
  while (action != Action::none) {
    switch (action) {
      case Action::close: {
        closed_ = true;
        const std::lock_guard everybody_is_out(calls_);
        bool can_revoke = true;
        for (const auto& link : all_links()) {
          can_revoke = can_revoke && link->communicator->can_revoke();
        }
        action = ending.tell([&](Retirement& it) { return it.all_out(can_revoke, Clock::now()); });
        break;
      }
      case Action::revoke: {
        const bool all_of_them = revoke_all(all_links());
        action = ending.tell([&](Retirement& it) { return it.revoked(all_of_them, Clock::now()); });
        break;
      }
      case Action::abort: {
        std::vector<Communicator*> all;
        for (const auto& link : all_links()) all.push_back(link->communicator.get());
        if (const Status aborted = gpu_->abort_together(all); !aborted.ok()) {
          HVD_LOG(warning, "the communicators of the world that has failed: " << aborted.message());
        }
        action = ending.tell([](Retirement& it) { return it.ended(); });
        break;
      }
      default:
        return;
    }
  }
}

bool GpuWorld::revoke_all(const Links& links) {
  for (const auto& link : links) {
    if (!link->communicator->revoke().ok()) return false;
  }
  for (const auto& link : links) {
    for (;;) {
      const auto settled = link->communicator->settled();
      if (!settled.ok()) return false;
      if (*settled) break;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  return true;
}

}  // namespace hvd::runtime::gpu
