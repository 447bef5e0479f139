#include "runtime/control/controller.h"

#include <algorithm>
#include <chrono>
#include <unistd.h>

#include "base/log.h"
#include "base/machine/own_time.h"
#include "base/text.h"
#include "runtime/trace/flight_recorder.h"

namespace hvd::runtime {
namespace {

std::shared_ptr<const ControlTree> tree_of(const WorldSpec& spec) {
  std::vector<std::string> hosts;
  std::vector<std::string> workers;
  for (const auto& member : spec.members) {
    hosts.push_back(member.host);
    workers.push_back(member.worker);
  }
  return std::make_shared<const ControlTree>(std::move(hosts), std::move(workers));
}

constexpr std::chrono::seconds kTimeToTell{2};

// Freezes the parameters that cannot matter in this world, or whose timing-dependent changes would
// break determinism.
TuningOptions tuning_options_of(const WorldSpec& spec) {
  TuningOptions options = spec.config.tuning;
  const bool flat = !spec.has_multi_rank_hosts();
  const bool deterministic = spec.config.deterministic;
  Frozen& frozen = options.frozen;
  frozen.fusion_threshold = frozen.fusion_threshold || deterministic;
  frozen.hierarchical_allreduce = frozen.hierarchical_allreduce || deterministic || flat;
  frozen.hierarchical_allgather = frozen.hierarchical_allgather || flat;
  frozen.cache = frozen.cache || spec.config.cache_capacity == 0;
  return options;
}

}  // namespace

Controller::Controller(const WorldSpec& spec, const ProcessSets& sets, Poller& poller,
                       TensorQueue& queue, Verdict& verdict, Executor& executor,
                       trace::Recorder& recorder, trace::Tracing& tracing, Hooks hooks)
    : spec_(spec),
      poller_(poller),
      queue_(queue),
      verdict_(verdict),
      executor_(executor),
      recorder_(recorder),
      tracing_(tracing),
      hooks_(std::move(hooks)),
      tree_(tree_of(spec)),
      links_(spec, *tree_, poller_),
      negotiator_(tree_, spec.rank, spec.config, sets) {
  const Config& config = spec.config;
  if (spec.rank != 0 || !config.tuning.enabled) return;
  tuning_.emplace(tuning_options_of(spec),
                  Parameters{config.fusion_threshold, config.cycle_time, true,
                             config.hierarchical_allreduce.value_or(false),
                             config.hierarchical_allgather.value_or(false)});
}

Status Controller::open() {
  if (tuning_) HVD_RETURN_IF_ERROR(tuning_->open(spec_.under_way));
  if (spec_.config.dump_requests >= 0) poller_.watch(spec_.config.dump_requests);
  if (spec_.interrupt) poller_.watch(spec_.interrupt->descriptor());
  return links_.open();
}

void Controller::connect(const std::vector<std::string>& addresses, TimePoint deadline) {
  // A rank that cannot reach its parent says so at the deadline, with the address that it tried.
  // Those that wait for it know less, and are not to be the first to fail.
  forming_until_ = deadline == kNever ? kNever : deadline + kTimeToTell;
  if (!links_.has_parent()) return;
  const int parent = links_.parent();
  const Status joined = links_.join_parent(addresses[static_cast<std::size_t>(parent)], deadline);
  if (joined.ok()) return;
  if (spec_.interrupt && spec_.interrupt->raised()) return enter_failure(spec_.interrupt->why());
  const bool is_late = joined.code() == Code::deadline_exceeded;
  if (is_late && host(parent) != host(spec_.rank) && spec_.on_unreachable) {
    spec_.on_unreachable(host(parent));
  }
  enter_failure(
      {joined.with_context(cat("host ", host(spec_.rank), " cannot reach ", describe(parent))),
       parent, host(parent)});
}

Failure Controller::wait_formed() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return formed_ || verdict_.known(); });
  return verdict_.get();
}

Failure Controller::wait_left(TimePoint deadline) {
  std::unique_lock lock(mutex_);
  const auto decided = [this] { return left_ || verdict_.known(); };
  if (!changed_.wait_until(lock, deadline, decided)) {
    return Status(Code::deadline_exceeded, "the other ranks did not call shutdown() in time");
  }
  return left_ ? Failure() : verdict_.get();
}

void Controller::set_formed() {
  const std::lock_guard lock(mutex_);
  formed_ = true;
  changed_.notify_all();
}

void Controller::set_left() {
  const std::lock_guard lock(mutex_);
  left_ = true;
  changed_.notify_all();
}

// Rank 0 must not send anything before all ranks are connected; the others only need their
// neighbours.
void Controller::check_forming() {
  if (subtree_formed_ || verdict_.known() || !links_.complete()) return;
  if (links_.has_parent() && !formed_) set_formed();
  if (formed_children_.size() < links_.children().size()) return;
  subtree_formed_ = true;
  forming_until_ = kNever;
  if (links_.has_parent()) {
    if (const auto own = links_.round_trip_to_parent()) note_round_trip(*own);
    links_.send(links_.parent(), encode_formed(round_trip_));
  } else {
    if (spec_.links) spec_.links->set_round_trip(round_trip_);
    set_formed();
  }
}

std::string Controller::missing_text() const {
  std::vector<std::string> missing;
  if (links_.has_parent() && !links_.has(links_.parent())) {
    missing.push_back(describe(links_.parent()));
  }
  for (const int rank : links_.children()) {
    if (!links_.has(rank)) {
      missing.push_back(describe(rank));
    } else if (!formed_children_.contains(rank)) {
      missing.push_back(cat("some rank below ", describe(rank)));
    }
  }
  return join(missing, ", ");
}

TimePoint Controller::read_clock() {
  const auto now = Clock::now();
  if (looked_ != TimePoint{}) stopped_ += stopped_since(looked_);
  return looked_ = now;
}

TimePoint Controller::work(const Commands& commands, Driver driver) {
  driver_ = driver;
  const auto now = read_clock();
  check_forming();
  run_commands(commands, now);
  if (formed_) tracing_.take_commands(negotiator_.applied(), links_, now);
  look_at_lanes(now);
  drain_queue(now);
  if (commands.closing) close(now);
  negotiate(now);
  if (formed_) tracing_.work(links_, now);
  const auto next = check_timers(now);
  driver_ = Driver::progress_thread;
  return next;
}

void Controller::run_commands(const Commands& commands, TimePoint now) {
  if (commands.mailbox) links_.use_mailbox(commands.mailbox);

  for (const auto& failure : commands.failures) enter_failure(failure);
  for (const auto& why : commands.suspicions) {
    suspect_now({why.with_context(cat("the data connections of ", describe(spec_.rank))), -1, {}},
                now);
  }

  if (commands.leaving && !leave_sent_ && !verdict_.known()) {
    leave_sent_ = true;
    tracing_.leaving(links_, now);
    if (const Status left = negotiator_.leave(negotiation_time(now)); !left.ok()) {
      enter_failure(left);
    }
    negotiate(now);
  }

  stops_ = commands.stopping;
  if (!commands.stopping || left_) return;

  // A rank that has announced its leaving may close its connections, unless ranks below it still
  // communicate through it.
  if (leave_sent_ && links_.has_parent() && negotiator_.subtree_left(spec_.rank)) return;
  const auto* const why =
      leave_sent_        ? " has called shutdown(), and no longer waits for the others"
      : commands.closing ? " has called shutdown(), and no longer waits for its calls in flight"
                         : " has left the world without shutdown()";
  enter_failure(
      {Status(Code::aborted, cat(describe(spec_.rank), why)), spec_.rank, host(spec_.rank)});
}

// For entries that nobody waits for. The timeline shows everything, so that nothing may be in lanes
// while it is recorded.
void Controller::look_at_lanes(TimePoint now) {
  constexpr std::chrono::milliseconds kBetween{2};
  if (!queue_.has_lanes() || verdict_.known()) return;
  if (const bool recording = recorder_.recording(); recording != is_recording_) {
    is_recording_ = recording;
    queue_.allow_lanes(!recording);
  }

  if (!queue_.are_lanes_watched()) return;
  if (next_look_at_lanes_ != kNever && next_look_at_lanes_ > now) return;
  const bool again = queue_.keep_watching_lanes();
  next_look_at_lanes_ = again ? now + kBetween : kNever;
  if (again) {
    callbacks_.emplace_back([this] { executor_.serve_all_lanes(hold_time(spec_.config)); });
  }
}

void Controller::drain_queue(TimePoint now) {
  if (!formed_ || verdict_.known()) return;
  const auto requests = queue_.drain();
  if (requests.empty()) return;
  if (const Status taken = negotiator_.submit(requests, negotiation_time(now)); !taken.ok()) {
    enter_failure(taken.with_context(describe(spec_.rank)));
  }
  cache_misses_.store(negotiator_.cache_stats().misses, std::memory_order_relaxed);
  cache_hits_.store(negotiator_.cache_stats().hits, std::memory_order_relaxed);
}

// The queue takes no more, and has been drained.
void Controller::close(TimePoint now) {
  if (closed_ || leave_sent_ || verdict_.known()) return;
  closed_ = true;
  if (const Status closed = negotiator_.close(negotiation_time(now)); !closed.ok()) {
    enter_failure(closed);
  }
}

void Controller::negotiate(TimePoint now) {
  if (!formed_ || verdict_.known() || left_) return;
  const int under_way = executor_.under_way();
  // Measured speeds would make the order of additions a matter of timing.
  if (!links_.has_parent() && spec_.links && !spec_.config.deterministic) {
    negotiator_.set_link_speed(spec_.links->speed());
  }
  negotiator_.allow_lanes(queue_.has_lanes() && !tuning_ && !is_recording_);
  auto output = negotiator_.work(negotiation_time(now), under_way);

  const bool may_wait = driver_ != Driver::progress_thread;
  if (!output.up.empty()) {
    links_.send(links_.parent(), encode_request_list(output.up), may_wait);
  }
  if (!links_.has_parent()) {
    tracing_.decided(negotiator_.applied(), output.down.responses.size(), now);
  }
  if (!output.down.empty() && !links_.children().empty()) {
    links_.send_to_children(encode_response_list(output.down), may_wait);
  }

  if (tuning_) tune(output.run);
  const int more = executor_.submit(std::move(output.run), driver_ == Driver::caller);
  waits_for_batch_ = negotiator_.waits_for_ends();

  // A batch that ended just before did not see the flag.
  if (waits_for_batch_ && executor_.under_way() < under_way + more) poller_.wake();

  if (output.goodbye) set_left();
  report(output.stalls);
}

// New parameters apply to what is decided from now on; what has been decided keeps its parameters,
// and memory in use is never touched.
void Controller::tune(const std::vector<Response>& responses) {
  if (responses.empty()) return;
  const Duration pending = queue_.busy_time(Clock::now());
  for (const auto& response : responses) {
    if (const auto parameters = tuning_->note(response, pending)) negotiator_.tune(*parameters);
  }
}

void Controller::report(const StallInspector::Findings& stalls) {
  for (const auto& text : stalls.warnings) HVD_LOG(warning, text);
  for (const auto& text : stalls.recoveries) HVD_LOG(warning, text);
  if (!stalls.warnings.empty()) tracing_.stalled(links_);
  if (!stalls.failure.ok()) enter_failure(stalls.failure);
}

TimePoint Controller::check_timers(TimePoint now) {
  if (verdict_.known()) return kNever;
  TimePoint next = links_.expire(now);
  if (formed_ && !left_) {
    for (const auto& silent : links_.keep_alive(now)) handle(silent, now);
    if (verdict_.known()) return kNever;
    next = std::min(next, links_.next_sign_of_life());
  }
  if (formed_) {
    const TimePoint work = negotiator_.next_work(negotiation_time(now), executor_.under_way());
    if (work != kNever) next = std::min(next, work + stopped_);
  }

  if (const Status why = links_.cannot_accept(); !why.ok()) {
    enter_failure({why.with_context(cat("forming the world: ", describe(spec_.rank))), spec_.rank,
                   host(spec_.rank)});
    return kNever;
  }

  if (forming_until_ <= negotiation_time(now)) {
    enter_failure(Status(Code::deadline_exceeded,
                         cat("forming the world: no connection in time from ", missing_text())));
    return kNever;
  }

  if (suspicion_until_ <= now) {
    enter_failure(suspicion_);
    return kNever;
  }

  const TimePoint forming = forming_until_ == kNever ? kNever : forming_until_ + stopped_;
  return std::min({next, forming, suspicion_until_, tracing_.next_work(), next_look_at_lanes_});
}

void Controller::handle_events(const std::vector<Poller::Event>& events) {
  const auto now = read_clock();
  for (const auto& event : events) {
    if (event.fd == spec_.config.dump_requests) take_dump_request();
    if (spec_.interrupt && event.fd == spec_.interrupt->descriptor()) take_interrupt();
    if (auto received = links_.handle(event, now)) handle(*received, now);
  }
  if (links_.has_shm_messages()) {
    for (const auto& received : links_.read_shm_messages()) handle(received, now);
  }
}

void Controller::take_dump_request() {
  std::uint64_t times = 0;
  if (::read(spec_.config.dump_requests, &times, sizeof(times)) == sizeof(times)) {
    tracing_.request_dump("asked for by a signal");
    if (spec_.on_dump_signal) callbacks_.emplace_back(spec_.on_dump_signal);
  }
}

void Controller::take_interrupt() {
  poller_.forget(spec_.interrupt->descriptor());
  enter_failure(spec_.interrupt->why());
}

void Controller::handle(const TreeLinks::Received& received, TimePoint now) {
  const int rank = received.rank;
  Status status;
  for (const auto& frame : received.frames) {
    status = handle_frame(rank, frame, now);
    if (!status.ok()) break;
  }

  if (status.ok() && received.is_malformed) status = received.lost;

  if (!status.ok()) {
    enter_failure({status.with_context(cat(describe(rank), " does not keep to the protocol")), rank,
                   host(rank)});
  } else {
    if (received.lost.ok()) return;
    // Its last message may have been that all ranks have left.
    negotiate(now);
    const bool may_go = left_ || (rank != links_.parent() && negotiator_.subtree_left(rank));
    if (!may_go) enter_failure(lost(rank, received.lost));
  }
  links_.drop(rank);
}

Status Controller::handle_frame(int rank, const Frame& frame, TimePoint now) {
  if (trace::Tracing::is_ours(frame)) return tracing_.handle(rank, frame, links_);
  if (verdict_.known()) return {};  // messages that were under way no longer matter

  const auto kind = static_cast<Message>(frame.kind);
  const bool from_parent = rank == links_.parent();

  if (kind == Message::abort) {
    auto failure = decode_failure(frame.payload);
    HVD_RETURN_IF_ERROR(failure.status());
    enter_failure(of_another_rank(std::move(*failure)));
    return {};
  }

  if (kind == Message::response_list && from_parent) {
    auto message = decode_response_list(frame.payload, spec_.size(), negotiator_.cache().size());
    HVD_RETURN_IF_ERROR(message.status());
    return negotiator_.from_parent(std::move(*message), negotiation_time(now));
  }

  if (kind == Message::request_list && !from_parent) {
    auto message = decode_request_list(frame.payload, spec_.size());
    HVD_RETURN_IF_ERROR(message.status());
    return negotiator_.from_child(rank, std::move(*message), negotiation_time(now));
  }

  if (kind == Message::suspicion && !from_parent) {
    auto suspicion = decode_failure(frame.payload);
    HVD_RETURN_IF_ERROR(suspicion.status());
    suspect_now(of_another_rank(std::move(*suspicion)), now);
    return {};
  }

  if (kind == Message::formed && !from_parent) {
    const auto round_trip = decode_formed(frame.payload);
    HVD_RETURN_IF_ERROR(round_trip.status());
    note_round_trip(*round_trip);
    formed_children_.insert(rank);
    return {};
  }

  return {Code::data_loss, cat("unexpected message of kind ", frame.kind)};
}

// While the world forms, the failure of another rank says nothing about what this rank lacks.
Failure Controller::of_another_rank(Failure failure) const {
  const Code code = failure.status.code();
  if (!formed_ && code != Code::deadline_exceeded && code != Code::aborted) {
    failure.status = Status(Code::unavailable, failure.status.message());
  }
  return failure;
}

std::string Controller::describe(int rank) const {
  const auto& member = spec_.members[static_cast<std::size_t>(rank)];
  return cat("rank ", rank, " on ", member.worker);
}

const std::string& Controller::host(int rank) const {
  return spec_.members[static_cast<std::size_t>(rank)].host;
}

Failure Controller::lost(int rank, const Status& how) const {
  // Somebody else has altered what it sent.
  if (how.code() == Code::data_loss) return how.with_context(describe(rank));
  return {Status(Code::unavailable, cat(describe(rank), " is gone: ", how.message())), rank,
          host(rank)};
}

// The neighbours of a dead rank learn of its death from the end of their connections, usually
// sooner than a report about a broken data connection arrives: so a report waits for a while for
// the rank's name. Rank 0 waits once, the others twice as long, since they wait for rank 0.
void Controller::suspect_now(const Failure& why, TimePoint now) {
  if (verdict_.known() || !suspicion_.ok()) return;
  suspicion_ = why;
  suspicion_until_ = now + spec_.config.verdict_timeout;
  if (!links_.has_parent()) return;
  links_.send(links_.parent(), encode_failure(Message::suspicion, why));
  suspicion_until_ += spec_.config.verdict_timeout;
}

void Controller::enter_failure(const Failure& why) {
  {
    const std::lock_guard lock(mutex_);
    if (left_ || !verdict_.set(why)) return;
    changed_.notify_all();
  }

  keep_last_activity();
  const auto missed = hooks_.on_failure();
  tracing_.failed(why, links_);
  links_.send_to_all(encode_failure(Message::abort, why));
  links_.close_acceptor();

  const Failure verdict = verdict_.get();
  report_unreachable(verdict, missed);
  auto stranded = queue_.close(verdict);
  recorder_.fail(stranded, verdict.status);
  // The failure of a stall names one rank, but other ranks with nothing in flight have not made the
  // call either.
  const bool stalled = verdict.status.code() == Code::deadline_exceeded && verdict.rank >= 0;
  const bool by_us = verdict.rank == spec_.rank || stranded.empty();

  callbacks_.emplace_back([this, stranded = std::move(stranded), verdict] {
    for (const auto& entry : stranded) {
      entry.done(verdict);
      hooks_.notify_caller();
    }
  });

  if (!stalled || !by_us || !spec_.on_own_stall) return;
  // Before the world is formed no rank has called anything: then the network to the rank that all
  // others connect to is broken, and has been for longer than anything that an agent would notice.
  auto charge =
      cat(formed_ ? "did not call what the others wait for (" : "cannot take part in the world (",
          verdict.status.message(), ")");
  callbacks_.emplace_back([this, charge = std::move(charge)] { spec_.on_own_stall(charge); });
}

// Before the operations in flight fail, since what they waited for says more than that they failed.
void Controller::keep_last_activity() {
  auto words = trace::flight_digest(recorder_.operations(), trace::nanoseconds_now());
  RankActivity activity{spec_.generation, std::move(words.in_flight), std::move(words.last),
                        unasked_text()};
  if (spec_.on_failure) callbacks_.emplace_back([this, activity] { spec_.on_failure(activity); });
  const std::lock_guard lock(mutex_);
  last_activity_ = std::move(activity);
}

std::optional<RankActivity> Controller::last_activity() const {
  const std::lock_guard lock(mutex_);
  return last_activity_;
}

// Every rank reports. The rank that timed out first may be waiting for a healthy host, which itself
// waits for one that is cut off.
void Controller::report_unreachable(const Failure& verdict, const std::vector<int>& missed) {
  const Code code = verdict.status.code();
  const bool is_data_connection =
      verdict.rank < 0 && (code == Code::deadline_exceeded || code == Code::unavailable);
  if (!is_data_connection || !spec_.on_unreachable) return;
  std::set<std::string> hosts;
  for (const int rank : missed) hosts.insert(host(rank));
  hosts.erase(host(spec_.rank));
  for (const auto& name : hosts) {
    callbacks_.emplace_back([this, name] { spec_.on_unreachable(name); });
  }
}

}  // namespace hvd::runtime
