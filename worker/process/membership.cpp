#include "worker/process/membership.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "worker/process/world_follower.h"

namespace hvd::worker {

Membership::Membership(AgentChannel& agent)
    : agent_(agent), follower_(agent.welcome().incarnation) {}

Result<Membership*> Membership::begin(AgentChannel& agent) {
  // Never deleted: the channel's thread uses it as long as the process lives.
  auto* const membership = new Membership(agent);
  if (const auto& world = agent.first_world()) {
    membership->follower_.hear(*world);
    membership->keys_[world->generation] = agent.first_key();
  }
  agent.listen({[membership](const worker_link::World& world) { membership->hear(world); },
                [membership] {
                  const std::lock_guard lock(membership->mutex_);
                  membership->changed_.notify_all();
                },
                [membership](bool gone) { membership->hear_of_driver(gone); },
                [membership] { return membership->late_at(); },
                [membership] { return membership->late(); }});
  return membership;
}

void Membership::hear(const worker_link::World& message) {
  auto document = WorldDocument::decode(message.document);
  if (document.ok() && document->generation != message.generation) {
    document = Status(Code::data_loss, cat("it says that it is of ", document->generation));
  }
  if (!document.ok()) {
    HVD_LOG(error, "the agent sent a world that cannot be read, of generation "
                       << message.generation << ": " << document.status().message());
    return;
  }
  document->state = message.effective ? WorldState::effective : WorldState::proposed;
  const std::lock_guard lock(mutex_);
  const bool could_enter = next_with_key() != nullptr;
  keys_[message.generation] = message.key;
  const bool ends_current = follower_.hear(*document);
  const bool can_enter = next_with_key() != nullptr;
  if (ends_current || (can_enter && !could_enter)) heard_ = Clock::now();
  if (ends_current) end_current(*document, "has replaced");
  changed_.notify_all();
}

// It may have been gone for less than the agent needs to say so: then only that there is one again
// is heard.
void Membership::hear_of_driver(bool gone) {
  const std::lock_guard lock(mutex_);
  if (gone) follower_.forget_proposal();
  if (!gone && heard_ != kNever) heard_ = Clock::now();
  if (std::exchange(meets_, false)) {
    current_.interrupt->raise(
        Status(Code::unavailable, "hvdrun is gone, and with it what the members told each other"));
    current_.client->cancel();
  }
  changed_.notify_all();
}

void Membership::met() {
  const std::lock_guard lock(mutex_);
  meets_ = false;
}

// Rank 0 may have heard of a world before this process has, and taken it into force with all at a
// commit: then its key is still on its way here.
const WorldDocument* Membership::next_with_key() const {
  const auto* const document = follower_.next();
  return document != nullptr && keys_.contains(document->generation) ? document : nullptr;
}

bool Membership::is_over_or_newer() const {
  return abandoned_ || next_with_key() != nullptr || follower_.is_out() || agent_.stop_reason();
}

void Membership::end_current(const WorldDocument& newer, const std::string& how) {
  if (!current_.interrupt) return;
  const auto gone = members_lost(current_.document, newer);
  const bool one = gone.size() == 1;
  current_.interrupt->raise({Status(Code::aborted, cat("generation ", newer.generation, " ", how,
                                                       " generation ", current_.document.generation,
                                                       ":", change_text(current_.document, newer))),
                             one ? gone.front()->rank : -1, one ? gone.front()->host : ""});
  current_.client->cancel();
}

bool Membership::has_next() const {
  const std::lock_guard lock(mutex_);
  return next_with_key() != nullptr;
}

Result<Membership::Entry> Membership::next(TimePoint again_at, TimePoint deadline) {
  std::unique_lock lock(mutex_);
  if (follower_.entered() == 0) {
    again_at = kNever;
    if (follower_.next() == nullptr && !std::exchange(ready_sent_, true)) {
      HVD_RETURN_IF_ERROR(agent_.send_ready());
    }
  }

  // The others are on their way into the next one.
  if (follower_.next() != nullptr) again_at = kNever;
  const Duration pause = std::max(again_at - Clock::now(), Duration::zero());
  for (bool waits = true; waits;) {
    if (agent_.driver_is_gone()) {
      changed_.wait_until(lock, deadline,
                          [this] { return is_over_or_newer() || !agent_.driver_is_gone(); });
      if (again_at != kNever) again_at = Clock::now() + pause;
    }
    changed_.wait_until(lock, std::min(again_at, deadline),
                        [this] { return is_over_or_newer() || agent_.driver_is_gone(); });
    const TimePoint now = Clock::now();
    waits = !is_over_or_newer() && now < deadline && (agent_.driver_is_gone() || now < again_at);
  }

  if (abandoned_) {
    return Status(Code::failed_precondition, "this process has called hvd::shutdown()");
  }
  if (const auto stopped = agent_.stop_reason()) {
    return Status(Code::aborted, cat("the job is being stopped: ", *stopped));
  }
  if (follower_.is_out()) {
    return Status(Code::failed_precondition, "the job goes on without this worker");
  }
  if (next_with_key() == nullptr && deadline <= again_at) {
    return Status(Code::deadline_exceeded, "there is no newer world yet");
  }

  if (const auto* document = next_with_key()) {
    current_.document = *document;
    keys_.erase(keys_.begin(), keys_.find(document->generation));
    current_.key = keys_.begin()->second;
    current_.round = 1;
    follower_.entered(document->generation);
  } else if (announced_) {
    ++current_.round;
  }

  announced_ = false;
  current_.interrupt = std::make_shared<runtime::Interrupt>();
  const auto& welcome = agent_.welcome();
  current_.client =
      std::make_shared<rendezvous::Client>(agent_.rendezvous_options(), welcome.credential);
  ended_by_plan_ = false;
  meets_ = true;
  return current_;
}

void Membership::announced() {
  const std::lock_guard lock(mutex_);
  announced_ = true;
}

void Membership::end_if_late(std::chrono::milliseconds limit) {
  const std::lock_guard lock(mutex_);
  late_after_ = limit;
}

void Membership::set_running(bool running) {
  const std::lock_guard lock(mutex_);
  running_ = running;
}

TimePoint Membership::late_at() const {
  const std::lock_guard lock(mutex_);
  const bool can_be = running_ && !abandoned_ && late_after_.count() != 0 && heard_ != kNever &&
                      next_with_key() != nullptr && !agent_.driver_is_gone();
  return can_be ? heard_ + late_after_ : kNever;
}

std::optional<std::string> Membership::late() const {
  const std::lock_guard lock(mutex_);
  const auto* const document = next_with_key();
  if (document == nullptr || !running_ || abandoned_) return std::nullopt;
  return cat(agent_.welcome().worker, " did not come to generation ", document->generation,
             " within ", late_after_.count() / 1000, " s (--stall-check-shutdown-time-seconds), ",
             "and is to be replaced");
}

void Membership::abandon() {
  const std::lock_guard lock(mutex_);
  abandoned_ = true;
  changed_.notify_all();
  if (!current_.interrupt) return;
  current_.interrupt->raise({Status(Code::aborted, "this process has called hvd::shutdown()")});
  current_.client->cancel();
}

void Membership::resume() {
  const std::lock_guard lock(mutex_);
  abandoned_ = false;
}

bool Membership::wait_for_newer(TimePoint deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline, [this] { return is_over_or_newer(); });
}

bool Membership::is_out() const {
  const std::lock_guard lock(mutex_);
  return follower_.is_out();
}

std::string Membership::proposal() const {
  const std::lock_guard lock(mutex_);
  const auto* const proposed = follower_.proposed();
  return proposed == nullptr ? std::string() : proposed->encode();
}

std::optional<std::uint64_t> Membership::proposed_generation() const {
  const std::lock_guard lock(mutex_);
  const auto* const proposed = follower_.proposed();
  return proposed == nullptr ? std::nullopt : std::optional(proposed->generation);
}

bool Membership::is_last(const std::string& document) {
  const auto world = WorldDocument::decode(document);
  return world.ok() && world->last;
}

Status Membership::committed(const std::string& bytes) {
  auto document = WorldDocument::decode(bytes);
  HVD_RETURN_IF_ERROR(document.status().with_context("the world that rank 0 goes over to"));
  const auto generation = document->generation;
  {
    const std::lock_guard lock(mutex_);
    ended_by_plan_ = true;
    end_current(*document, "follows, as all have agreed at a commit,");
    follower_.committed(std::move(*document));
    heard_ = Clock::now();
    changed_.notify_all();
  }
  return agent_.send_committed(generation);
}

bool Membership::ended_by_plan() const {
  const std::lock_guard lock(mutex_);
  return ended_by_plan_;
}

}  // namespace hvd::worker
