#include "runtime/gpu/gpu_world.h"

#include <algorithm>
#include <sys/prctl.h>

#include "base/log.h"
#include "base/text.h"
#include "runtime/core/threads.h"
#include "runtime/gpu/capability_exchange.h"
#include "runtime/gpu/plan.h"

namespace hvd::runtime::gpu {
namespace {

// How often communicators are asked for errors, at most.
constexpr std::chrono::milliseconds kErrorInterval{1};

// Longer and longer, the longer something takes: it costs a share of what there is to win.
std::chrono::microseconds pause_after(Duration waited) {
  using std::chrono::microseconds;
  const auto tenth = std::chrono::duration_cast<microseconds>(waited / 16);
  return std::clamp(tenth, microseconds(2), microseconds(500));
}

}  // namespace

GpuWorld::GpuWorld(GpuWorldOptions options)
    : options_(std::move(options)),
      buffers_(static_cast<std::size_t>(options_.lanes)),
      host_buffers_(buffers_.size()) {}

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
    if (host_buffers_[lane].memory != nullptr) {
      gpu_->release_host(static_cast<int>(lane), host_buffers_[lane].memory);
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

Result<std::byte*> GpuWorld::host_buffer(int lane, std::size_t bytes) {
  auto& buffer = host_buffers_[static_cast<std::size_t>(lane)];
  if (buffer.bytes < bytes) {
    if (buffer.memory != nullptr) {
      HVD_RETURN_IF_ERROR(wait_for(lane));
      gpu_->release_host(lane, std::exchange(buffer, {}).memory);
    }
    auto memory = gpu_->allocate_host(bytes);
    HVD_RETURN_IF_ERROR(memory.status());
    buffer = {*memory, bytes};
  }
  return static_cast<std::byte*>(buffer.memory);
}

Status GpuWorld::wait_for(int lane) {
  auto mark = gpu_->mark(lane);
  HVD_RETURN_IF_ERROR(mark.status());
  const auto begun = Clock::now();
  auto quiet_by = kNever;
  for (;;) {
    const bool failed = closed_;
    const auto now = Clock::now();
    if (failed && quiet_by == kNever) quiet_by = now + kQuietWithin;
    auto reached = gpu_->reached(*mark);
    HVD_RETURN_IF_ERROR(reached.status());
    if (*reached) return failed ? was_aborted() : Status();
    if (now > quiet_by) {
      gpu_->forget(*mark);
      return was_aborted();
    }
    std::this_thread::sleep_for(pause_after(now - begun));
  }
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
  Capabilities own;
  own.ready = open(device);
  own.lanes = options_.lanes;
  if (gpu_) own.identity = gpu_->identity();
  const int roots = roots_of(active.size(), own.identity.library_version);
  const auto meet_at = root_ranks(active.size(), roots);
  HostPlan plan;
  if (options_.by_hosts) plan = host_plan(active.ranks, active.rank, options_.hosts);
  own.by_hosts = can_go_by_hosts(plan);
  const auto make_id = [&](std::string& id, bool first) {
    if (!first || !own.ready.ok()) return;
    auto made = gpu_->new_id();
    own.ready = made.status();
    if (made.ok()) id = std::move(*made);
  };
  make_id(own.id, std::binary_search(meet_at.begin(), meet_at.end(), active.rank));
  make_id(own.id_inside, own.by_hosts && plan.local == 0);
  make_id(own.id_across, own.by_hosts && plan.host == 0);
  std::vector<Capabilities> all{own};
  if (active.size() > 1) {
    all.clear();
    for (const auto& bytes : options_.tell(group, active, own.encode())) {
      auto one = Capabilities::decode(bytes);
      HVD_RETURN_IF_ERROR(one.status());
      all.push_back(std::move(*one));
    }
  }
  std::vector<std::string> names;
  for (const int rank : active.ranks)
    names.push_back(options_.names[static_cast<std::size_t>(rank)]);
  link->refused = check_capabilities(all, names);
  if (!link->refused.ok()) return {};
  link->adds_float8 = all_add_float8(all);
  // All these have left the world before.
  destroy_retired();
  Joining joining;
  for (const int root : meet_at) joining.ids.push_back(all[static_cast<std::size_t>(root)].id);
  joining.rank = active.rank;
  joining.size = active.size();
  joining.lane = link->lane;
  joining.shares_device = share_device(all);
  const auto deadline = Clock::now() + options_.connect_timeout;
  HVD_RETURN_IF_ERROR(join(link, &Link::communicator, joining, deadline));
  if (!all_go_by_hosts(all)) return {};
  // All in this order, so that there is no circle of waiting ranks.
  const auto said_by = [&all](int rank) { return all[static_cast<std::size_t>(rank)]; };
  link->local_rank = static_cast<std::size_t>(plan.local);
  link->local_size = plan.node_peers().size();
  joining.ids = {said_by(plan.node_peers().front()).id_inside};
  joining.rank = plan.local;
  joining.size = static_cast<int>(plan.node_peers().size());
  HVD_RETURN_IF_ERROR(join(link, &Link::inside, joining, deadline));
  joining.ids = {said_by(plan.lane().front()).id_across};
  joining.rank = plan.host;
  joining.size = static_cast<int>(plan.hosts.size());
  HVD_RETURN_IF_ERROR(join(link, &Link::across, joining, deadline));
  link->by_hosts = true;
  return {};
}

Status GpuWorld::join(const std::shared_ptr<Link>& link, Link::Place place, const Joining& joining,
                      TimePoint deadline) {
  {
    const std::lock_guard in_call(calls_);
    if (closed_) return was_aborted();
    auto joined = gpu_->join(joining);
    HVD_RETURN_IF_ERROR(joined.status());
    // Before it is complete: it must end with the others.
    const std::lock_guard lock(mutex_);
    (*link).*place = std::move(*joined);
    links_[{link->process_set, link->ranks, link->lane}] = link;
  }
  return wait_settled(*link, place, deadline)
      .with_context(cat("a communicator of ", joining.size, " ranks"));
}

Status GpuWorld::wait_settled(const Link& link, Link::Place place, TimePoint deadline) {
  const auto begun = Clock::now();
  for (;;) {
    {
      const std::lock_guard in_call(calls_);
      if (closed_) return was_aborted();
      auto settled = (link.*place)->settled();
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

Status GpuWorld::together(Link& link, Link::Place place,
                          const std::function<Status(Communicator&)>& calls) {
  {
    const std::lock_guard in_call(calls_);
    if (closed_) return was_aborted();
    auto& communicator = *(link.*place);
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
  return wait_settled(link, place, kNever);
}

Status GpuWorld::take_off(const std::shared_ptr<Link>& link, std::span<void* const> temporary,
                          std::span<const cuda::Stream> streams, const Completion& over) {
  for (void* const memory : temporary) gpu_->release(link->lane, memory);
  auto mark = gpu_->mark(link->lane);
  HVD_RETURN_IF_ERROR(mark.status());
  for (const cuda::Stream stream : streams) {
    if (Status held = gpu_->hold(stream, *mark); !held.ok()) {
      gpu_->forget(*mark);
      return held;
    }
  }
  // The user's streams wait, so no thread has to.
  const bool at_once = !streams.empty();
  {
    const std::lock_guard lock(mutex_);
    if (abort_) {
      gpu_->forget(*mark);
      return was_aborted();
    }
    flights_.push_back({link, *mark, at_once ? Completion() : over, Clock::now()});
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
    const Completion over = std::move(flight->over);
    flights_.erase(flight);
    lock.unlock();
    if (over) over({});
    lock.lock();
    return true;
  }
  return false;
}

void GpuWorld::look_for_errors(const Links& links) {
  // A thread in a call is told of errors there.
  const std::unique_lock in_call(calls_, std::try_to_lock);
  if (!in_call.owns_lock() || closed_) return;
  for (const auto& link : links) {
    for (const auto place : link->places()) {
      const auto settled = ((*link).*place)->settled();
      if (!settled.ok() && !reported_.exchange(true)) options_.on_broken(settled.status());
    }
  }
}

}  // namespace hvd::runtime::gpu
