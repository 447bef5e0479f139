#include "runtime/control/tracing.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "runtime/negotiation/messages.h"
#include "runtime/trace/flight_recorder.h"

namespace hvd::runtime::trace {

// --- from any thread ---------------------------------------------------------------------------

Status Tracing::open() {
  const Config& config = spec_.config;
  if (!config.flight_recorder.empty()) {
    const auto make = [directory = config.flight_recorder] {
      return make_flight_directory(directory);
    };
    // Nobody waits for the directory of a job that is under way: a report that cannot be written
    // says so.
    if (!spec_.under_way) {
      HVD_RETURN_IF_ERROR(on_files(make));
    } else if (const Status added = files_.add(0, [make] { (void)make(); }); !added.ok()) {
      HVD_LOG(warning, "flight recorder: " << added.message());
    }
  }
  if (!is_root() || config.timeline.empty()) return {};
  return start_timeline(config.timeline, config.timeline_mark_cycles, spec_.under_way);
}

Status Tracing::start_timeline(const std::string& path, bool mark_cycles, bool under_way) {
  {
    const std::lock_guard lock(mutex_);
    if (writer_ || is_opening_) {
      return {Code::failed_precondition, "start_timeline: a timeline is already being recorded"};
    }
    if (was_left_) return {Code::failed_precondition, "start_timeline: the world has ended"};
    is_opening_ = true;
  }

  auto writer = TimelineWriter::open(path, spec_, under_way);
  const std::lock_guard lock(mutex_);
  is_opening_ = false;
  HVD_RETURN_IF_ERROR(writer.status());
  if (was_left_) return {Code::failed_precondition, "start_timeline: the world has ended"};
  writer_ = std::move(*writer);
  mark_cycles_ = mark_cycles;
  start_wanted_ = true;
  stop_wanted_ = ended_ = false;
  wake_();
  return {};
}

Status Tracing::stop_timeline(TimePoint deadline) {
  std::shared_ptr<TimelineWriter> writer;
  bool complete = false;
  {
    std::unique_lock lock(mutex_);
    if (!writer_ || stop_wanted_) {
      return {Code::failed_precondition, "stop_timeline: no timeline is being recorded"};
    }
    stop_wanted_ = true;
    wake_();
    complete = changed_.wait_until(lock, deadline, [this] { return ended_ || was_left_; });
    writer = writer_;
  }

  const Status written = writer->finish();
  const std::lock_guard lock(mutex_);
  if (writer_ == writer) writer_.reset();
  HVD_RETURN_IF_ERROR(written);

  if (complete) return {};
  return {Code::deadline_exceeded,
          "stop_timeline: some ranks did not report in time; their last operations are missing in "
          "the file"};
}

void Tracing::close() {
  std::shared_ptr<TimelineWriter> writer;
  {
    const std::lock_guard lock(mutex_);
    was_left_ = true;
    writer = std::move(writer_);
    changed_.notify_all();
  }
  if (writer) (void)writer->finish();  // errors have been logged
}

void Tracing::request_dump(std::string reason) {
  const std::lock_guard lock(mutex_);
  dumps_wanted_.push_back(std::move(reason));
  wake_();
}

// --- the control loop's thread -----------------------------------------------------------------

bool Tracing::is_ours(const Frame& frame) {
  return frame.kind >= static_cast<std::uint16_t>(Message::trace_start) &&
         frame.kind <= static_cast<std::uint16_t>(Message::clock_answer);
}

Status Tracing::handle(int from, const Frame& frame, TreeLinks& links) {
  const bool from_parent = links.has_parent() && from == links.parent();
  const auto kind = static_cast<Message>(frame.kind);
  const bool for_children = kind != Message::trace_events && kind != Message::clock_ask;
  if (for_children != from_parent) {
    return {Code::data_loss, cat("a message of kind ", frame.kind, " from the wrong neighbour")};
  }

  switch (kind) {
    case Message::trace_start: {
      const auto mark = decode_mark(frame.payload);
      HVD_RETURN_IF_ERROR(mark.status());
      begin(*mark, links);
      return {};
    }
    case Message::trace_stop: {
      const auto mark = decode_mark(frame.payload);
      HVD_RETURN_IF_ERROR(mark.status());
      call_end(*mark, links, Clock::now());
      return {};
    }
    case Message::trace_dump: {
      const auto reason = decode_dump(frame.payload);
      HVD_RETURN_IF_ERROR(reason.status());
      links.send_to_children(encode_dump(*reason));
      dump(*reason, false);
      return {};
    }
    case Message::trace_events: {
      auto events = decode_events(frame.payload, spec_.size());
      HVD_RETURN_IF_ERROR(events.status());
      take_events(std::move(*events), links);
      return {};
    }
    case Message::clock_ask: {
      const auto asked = decode_clock_ask(frame.payload);
      HVD_RETURN_IF_ERROR(asked.status());
      links.send(from, encode_clock_answer({*asked, nanoseconds_now(), clock_identity()}));
      return {};
    }
    default: {
      const auto answer = decode_clock_answer(frame.payload);
      HVD_RETURN_IF_ERROR(answer.status());
      clock_.answered(*answer, nanoseconds_now());
      return {};
    }
  }
}

void Tracing::begin(const Mark& mark, TreeLinks& links) {
  session_ = mark.session;
  state_ = State::on;
  stop_at_ = kNever;
  dropped_ = 0;
  recorder_.start(mark.number);
  links.send_to_children(encode_start(mark));
  if (links.has_parent()) {
    const auto& self = spec_.members[static_cast<std::size_t>(spec_.rank)];
    const auto& parent = spec_.members[static_cast<std::size_t>(links.parent())];
    if (self.host == parent.host || self.address == parent.address) clock_.share();
  }
  if (is_leaving_) send_final_events(links);
}

void Tracing::call_end(const Mark& mark, TreeLinks& links, TimePoint now) {
  if (state_ != State::on || mark.session != session_) return;
  state_ = State::stopping;
  stop_at_ = now + kReportTimeout;
  recorder_.stop_after(mark.number);
  links.send_to_children(encode_stop(mark));
}

void Tracing::take_commands(std::uint64_t applied, TreeLinks& links, TimePoint now) {
  bool start = false;
  bool stop = false;
  std::vector<std::string> dumps;
  {
    const std::lock_guard lock(mutex_);
    start = std::exchange(start_wanted_, false);
    stop = stop_wanted_;
    dumps.swap(dumps_wanted_);
  }

  for (const auto& reason : dumps) dump(reason, false);
  if (start && !over_) {
    for (int rank = 0; rank < spec_.size(); ++rank) unreported_.insert(rank);
    begin({session_ + 1, applied}, links);
  }

  if (stop) call_end({session_, applied}, links, now);
}

void Tracing::work(TreeLinks& links, TimePoint now) {
  next_work_ = kNever;
  if (state_ == State::off && held_.empty()) return;

  if (links.has_parent()) {
    if (const auto time = nanoseconds_of(now); clock_.ask(time)) {
      links.send(links.parent(), encode_clock_ask(nanoseconds_now()));
    }
  }

  if (state_ == State::stopping && (recorder_.idle() || stop_at_ <= now)) {
    send_final_events(links);
  } else if (state_ != State::off) {
    // Batches that ended just now are sent together with those that end in the next moment.
    if (send_at_ == kNever && recorder_.has_pending()) send_at_ = now + kSendEvery;
    if (send_at_ <= now) {
      collect(links, false);
      send_at_ = kNever;
    }
    next_work_ = std::min(send_at_, stop_at_);
  }

  send_held(links, is_leaving_ || over_);
  if (!held_.empty()) next_work_ = std::min(next_work_, now + kRetry);
}

void Tracing::decided(std::uint64_t applied, std::size_t count, TimePoint now) {
  if (state_ != State::on) return;
  const std::lock_guard lock(mutex_);
  if (!writer_ || !mark_cycles_) return;
  for (std::size_t i = count; i > 0; --i) writer_->mark_cycle(nanoseconds_of(now), applied - i + 1);
}

void Tracing::collect(TreeLinks& links, bool final) {
  auto pending = recorder_.fetch();
  dropped_ += pending.dropped;
  for (auto& chunk : pending.chunks) {
    Events events;
    events.session = session_;
    events.rank = spec_.rank;
    events.tensors = chunk.tensors;
    events.batches = std::move(chunk.batches);
    events.dropped = std::exchange(dropped_, 0);
    take_events(std::move(events), links);
  }

  if (!final) return;
  Events events;
  events.session = session_;
  events.rank = spec_.rank;
  events.dropped = std::exchange(dropped_, 0);
  events.final = true;
  take_events(std::move(events), links);
}

// Events of this rank, or from below: into the file, or towards it.
void Tracing::take_events(Events events, TreeLinks& links) {
  const int rank = events.rank;
  const bool final = events.final;
  if (!is_root()) {
    hold(std::move(events));
    // The message that this rank leaves may follow directly, and must not overtake these events:
    // when rank 0 knows that all ranks have left, it has the whole timeline.
    if (final) send_held(links, true);
    return;
  }

  const std::lock_guard lock(mutex_);
  if (!writer_ || events.session != session_) return;
  writer_->add(std::move(events));

  if (!final) return;
  unreported_.erase(rank);
  if (!unreported_.empty()) return;
  ended_ = true;
  changed_.notify_all();
}

void Tracing::hold(Events events) {
  if (held_bytes_ + events.batches.size() > kMaxHeld) {
    events.dropped += std::exchange(events.tensors, 0);
    events.batches.clear();
  }
  held_bytes_ += events.batches.size();
  held_.push_back(std::move(events));
}

void Tracing::send_held(TreeLinks& links, bool in_any_case) {
  while (!held_.empty()) {
    if (!in_any_case && (!clock_.known() || links.unsent(links.parent()) > kBusy)) return;
    Events& events = held_.front();
    held_bytes_ -= events.batches.size();
    // The recording ended before the clocks were compared: these events cannot be placed.
    if (!clock_.known()) {
      events.dropped += std::exchange(events.tensors, 0);
      events.batches.clear();
    }
    events.offset += clock_.offset();
    links.send(links.parent(), encode_events(events));
    held_.pop_front();
  }
}

void Tracing::send_final_events(TreeLinks& links) {
  recorder_.flush_in_flight();
  collect(links, true);
  recorder_.stop();
  state_ = State::off;
  send_at_ = stop_at_ = kNever;
  send_held(links, false);
}

void Tracing::leaving(TreeLinks& links, TimePoint now) {
  is_leaving_ = true;
  work(links, now);
  if (state_ != State::off) send_final_events(links);
  send_held(links, true);
}

void Tracing::stalled(TreeLinks& links) {
  const std::string reason = "tensors wait for ranks that have not requested them";
  links.send_to_children(encode_dump(reason));
  dump(reason, false);
}

void Tracing::failed(const Failure& why, TreeLinks& links) {
  over_ = true;
  dump(why.status.message(), true);
  if (state_ != State::off) send_final_events(links);
  send_held(links, true);
  const std::lock_guard lock(mutex_);
  was_left_ = true;
  changed_.notify_all();
}

void Tracing::dump(const std::string& reason, bool failed) {
  const auto now = nanoseconds_now();
  const auto operations = recorder_.operations();
  if (failed && operations.empty()) return;  // nothing has been run so far

  const std::string& where = spec_.config.flight_recorder;
  const std::string summary = cat("flight recorder: ", flight_summary(operations, now));
  if (where == kFlightToStderr) {
    HVD_LOG(warning, summary << '\n' << flight_report(spec_, operations, reason, now));
    return;
  }

  // The program's error says more than a log line of each rank does; for a job that hangs this line
  // is all there is.
  if (failed && where.empty()) {
    HVD_LOG(info, summary);
    return;
  }

  if (where.empty()) {
    HVD_LOG(warning, summary);
    return;
  }

  const std::string name = flight_file_name(spec_);
  const Status written =
      on_files([where, name, report = flight_report(spec_, operations, reason, now)] {
        return write_flight_report(where, name, report);
      });
  if (written.ok()) {
    HVD_LOG(warning, summary << ". All of it: " << where << '/' << name);
  } else {
    HVD_LOG(error, written.message() << ". " << summary);
  }
}

Status Tracing::on_files(std::function<Status()> work) {
  const auto done = std::make_shared<Status>();
  HVD_RETURN_IF_ERROR(files_.add(0, [work = std::move(work), done] { *done = work(); }));
  if (files_.wait()) return *done;
  files_.drop();
  return {Code::deadline_exceeded, cat("flight recorder: the file system of ",
                                       spec_.config.flight_recorder, " does not answer")};
}

}  // namespace hvd::runtime::trace
