#include "runtime/trace/timeline_text.h"

#include <algorithm>
#include <cctype>
#include <chrono>

#include "base/text.h"
#include "runtime/trace/json_text.h"

namespace hvd::runtime::trace {
namespace {

std::string upper(std::string_view text) {
  std::string name(text);
  for (char& c : name) {
    c = c == ' ' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

std::int64_t elements_of(const Batch::Tensor& tensor) {
  std::int64_t elements = 1;
  for (const auto extent : tensor.info->shape) elements *= extent;
  return elements;
}

bool has_elements(Kind kind) {
  return kind != Kind::barrier && kind != Kind::join && kind != Kind::add_process_set &&
         kind != Kind::remove_process_set;
}

// Names that the runtime generates for unnamed tensors are never used again.
bool comes_again(std::string_view name) { return name.find(".noname.") == std::string_view::npos; }

}  // namespace

TimelineText::TimelineText(const std::vector<Member>& members, std::uint64_t generation,
                           Nanoseconds start)
    : start_(start), ranks_(members.size()) {
  const auto since_epoch = std::chrono::duration_cast<std::chrono::microseconds>(
                               std::chrono::system_clock::now().time_since_epoch())
                               .count();
  element();
  out_ += cat(R"({"name":"start","ph":"M","pid":0,"args":{"start_time_since_epoch_in_micros":)",
              since_epoch, R"(,"generation":)", generation, R"(,"ranks":)", members.size(), "}}");
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    element();
    out_ += cat(R"({"name":"process_name","ph":"M","pid":)", rank, R"(,"args":{"name":)");
    append_quoted(out_, cat("rank ", rank, " on ", members[rank].worker));
    out_ += "}}";
    element();
    out_ += cat(R"({"name":"process_sort_index","ph":"M","pid":)", rank,
                R"(,"args":{"sort_index":)", rank, "}}");
    name_track(static_cast<int>(rank), ranks_[rank].events, "events");
  }
}

void TimelineText::element() {
  if (!out_.empty()) out_ += ",\n";
}

void TimelineText::open(int rank, Track& track, char phase, Nanoseconds when) {
  // Clock offsets are not exact: an event that appears a little too early is moved, to keep the
  // track in order.
  track.last = std::max(track.last, when);
  element();
  out_ += R"({"ph":")";
  out_ += phase;
  out_ += R"(","pid":)";
  append_number(out_, rank);
  out_ += R"(,"tid":)";
  append_number(out_, track.id);
  out_ += R"(,"ts":)";
  append_thousandths(out_, track.last);
}

void TimelineText::begin(int rank, Track& track, std::string_view name, Nanoseconds when) {
  open(rank, track, 'B', when);
  out_ += R"(,"name":")";
  out_ += name;
  out_ += '"';
}

void TimelineText::end(int rank, Track& track, Nanoseconds when) {
  open(rank, track, 'E', when);
  out_ += '}';
}

void TimelineText::slice(int rank, Track& track, std::string_view name, Nanoseconds from,
                         Nanoseconds to) {
  begin(rank, track, name, from);
  out_ += '}';
  end(rank, track, to);
}

void TimelineText::name_track(int rank, const Track& track, std::string_view name) {
  element();
  out_ += cat(R"({"name":"thread_name","ph":"M","pid":)", rank, R"(,"tid":)", track.id,
              R"(,"args":{"name":)");
  append_quoted(out_, name);
  out_ += "}}";
  element();
  out_ += cat(R"({"name":"thread_sort_index","ph":"M","pid":)", rank, R"(,"tid":)", track.id,
              R"(,"args":{"sort_index":)", track.id, "}}");
}

TimelineText::Track& TimelineText::track(int rank, const Batch& batch, const Batch::Tensor& tensor,
                                         Nanoseconds begin) {
  Rank& all = ranks_[static_cast<std::size_t>(rank)];
  std::string name = batch.process_set == kGlobalSet
                         ? tensor.info->name
                         : cat(tensor.info->name, " (process set ", batch.process_set, ")");
  const auto found = all.tracks.find(name);
  if (found != all.tracks.end()) return found->second;
  if (comes_again(tensor.info->name) && all.tracks.size() < kMaxTracks) {
    Track& made = all.tracks.emplace(name, Track{all.next_track++, 0}).first->second;
    name_track(rank, made, name);
    return made;
  }
  for (Track& lane : all.lanes) {
    if (lane.last <= begin) return lane;
  }
  all.lanes.push_back({all.next_track++, 0});
  name_track(rank, all.lanes.back(), cat("others ", all.lanes.size()));
  return all.lanes.back();
}

void TimelineText::shift(Batch& batch, Nanoseconds by) const {
  const auto move = [&](Nanoseconds& time) {
    if (time != 0) time = std::max<Nanoseconds>(1, time + by - start_);
  };
  move(batch.decided);
  move(batch.begun);
  move(batch.ended);
  for (auto& step : batch.steps) {
    move(step.begin);
    move(step.end);
  }
  for (auto& tensor : batch.tensors) {
    move(tensor.enqueued);
    move(tensor.asked);
  }
}

void TimelineText::add(const Events& events, TimePoint now) {
  if (events.dropped > 0) {
    Track& track = ranks_[static_cast<std::size_t>(events.rank)].events;
    open(events.rank, track, 'i', track.last);
    out_ += cat(R"(,"s":"p","name":"DROPPED","args":{"tensors":)", events.dropped, "}}");
  }
  // It was checked when it came in that the rank is one; what else it says is its own loss.
  BatchReader in(events.batches);
  while (auto batch = in.next()) {
    shift(*batch, events.offset);
    if (batch->number == 0) {
      write(events.rank, *batch, nullptr);
      continue;
    }
    if (events.rank != 0) {
      write(events.rank, *batch, nullptr);
      if (batch->number <= released_) continue;
    }
    Held& held = held_[batch->number];
    if (held.until == TimePoint{}) held.until = now + kReportTimeout;
    ++held.heard;
    for (const auto& tensor : batch->tensors) {
      if (tensor.enqueued != 0) {
        held.ready[tensor.info->name].push_back({tensor.enqueued, events.rank});
      }
    }
    if (events.rank == 0) {
      held.is_here = true;
      held.batch = std::move(*batch);
    }
  }
}

TimePoint TimelineText::release(TimePoint now, bool all) {
  while (!held_.empty()) {
    const auto first = held_.begin();
    const Held& held = first->second;
    const bool complete = held.is_here && held.heard >= held.batch.set_size;
    if (!complete && !all && held.until > now && held_.size() <= kMaxHeld) return held.until;
    if (held.is_here) write(0, held.batch, &held.ready);
    released_ = first->first;
    held_.erase(first);
  }
  return kNever;
}

void TimelineText::mark_cycle(Nanoseconds when, std::uint64_t number) {
  open(0, ranks_[0].events, 'i', std::max<Nanoseconds>(1, when - start_));
  out_ += cat(R"(,"s":"p","name":"CYCLE_START","args":{"batch":)", number, "}}");
}

void TimelineText::write(int rank, const Batch& batch,
                         const std::unordered_map<std::string, std::vector<RankReady>>* ready) {
  for (std::size_t i = 0; i < batch.tensors.size(); ++i) {
    const auto& tensor = batch.tensors[i];
    Track& where =
        track(rank, batch, tensor, tensor.enqueued != 0 ? tensor.enqueued : batch.decided);
    // A rank that had joined never requested the tensor: it has no negotiation to show.
    if (tensor.enqueued != 0) {
      std::vector<RankReady> when;
      if (ready != nullptr) {
        if (const auto found = ready->find(tensor.info->name); found != ready->end()) {
          when = found->second;
        }
      }
      write_negotiation(rank, where, batch, tensor, std::move(when));
    }
    if (batch.decided != 0) write_execution(rank, where, batch, i);
  }
}

void TimelineText::write_negotiation(int rank, Track& track, const Batch& batch,
                                     const Batch::Tensor& tensor, std::vector<RankReady> ready) {
  std::sort(ready.begin(), ready.end(),
            [](const RankReady& a, const RankReady& b) { return a.when < b.when; });
  const Nanoseconds from = ready.empty() ? tensor.enqueued : ready.front().when;
  const Nanoseconds to = batch.decided != 0 ? batch.decided : batch.ended;

  begin(rank, track, cat("NEGOTIATE_", upper(kind_name(tensor.info->kind))), from);
  if (batch.decided == 0 && batch.unfinished) out_ += R"(,"args":{"unfinished":true})";
  if (batch.decided == 0 && !tensor.error.empty()) {
    out_ += R"(,"args":{"error":)";
    append_quoted(out_, tensor.error);
    out_ += '}';
  }
  out_ += '}';

  const std::size_t first = ready.size() > kMaxShown ? ready.size() - kMaxShown : 0;
  for (std::size_t i = first; i < ready.size(); ++i) {
    // By its own clock a rank may have become ready a little after the decision.
    open(rank, track, 'i', std::min(ready[i].when, std::max(to, track.last)));
    out_ += cat(R"(,"s":"t","name":"rank )", ready[i].rank, "\"}");
  }

  end(rank, track, to);
}

void TimelineText::write_execution(int rank, Track& track, const Batch& batch, std::size_t index) {
  const auto& tensor = batch.tensors[index];
  begin(rank, track, upper(kind_name(tensor.info->kind)), batch.decided);
  out_ += R"(,"args":{)";
  if (has_elements(tensor.info->kind)) {
    out_ += cat(R"("dtype":")", type_name(tensor.info->type), R"(","shape":")",
                shape_text(tensor.info->shape), R"(","bytes":)",
                elements_of(tensor) * static_cast<std::int64_t>(size_of(tensor.info->type)), ',');
  }

  out_ += cat(R"("process_set":)", batch.process_set, R"(,"batch":)", batch.number,
              R"(,"batch_tensors":)", batch.tensors.size());
  for (const Step& step : batch.steps) {
    if (!is_choice(step.activity)) continue;
    out_ += cat(R"(,"algorithm":")", activity_name(step.activity), '"');
  }
  if (tensor.enqueued == 0) out_ += R"(,"joined":true)";
  if (batch.unfinished) out_ += R"(,"unfinished":true)";
  if (!tensor.error.empty()) {
    out_ += R"(,"error":)";
    append_quoted(out_, tensor.error);
  }
  out_ += "}}";

  slice(rank, track, "QUEUE", batch.decided, batch.begun != 0 ? batch.begun : batch.ended);
  if (batch.begun != 0 && !batch.operation.empty()) write_steps(rank, track, batch, index);
  end(rank, track, batch.ended);
}

// The time that no step covers is that of the operation itself; gaps below kMoment are not shown.
void TimelineText::write_steps(int rank, Track& track, const Batch& batch, std::size_t index) {
  constexpr Nanoseconds kMoment = 2'000;
  const std::string operation = upper(batch.operation);
  Nanoseconds longest = 0;
  Nanoseconds at = batch.begun;
  for (const Step& step : batch.steps) {
    if (is_choice(step.activity)) continue;
    longest = std::max(longest, step.begin - at);
    at = step.end;
  }

  const Nanoseconds shown = std::min(std::max(longest, batch.ended - at), kMoment);
  at = batch.begun;
  for (const Step& step : batch.steps) {
    if (is_choice(step.activity)) continue;
    if (step.begin - at >= shown) slice(rank, track, operation, at, step.begin);
    const bool of_another = step.activity == Activity::wait_for_data && step.tensor >= 0 &&
                            step.tensor != static_cast<std::int32_t>(index);
    slice(rank, track, of_another ? "WAIT_FOR_OTHER_TENSOR_DATA" : activity_name(step.activity),
          step.begin, step.end);
    at = step.end;
  }

  if (batch.ended - at >= shown) slice(rank, track, operation, at, batch.ended);
}

std::string TimelineText::take() { return std::exchange(out_, {}); }

}  // namespace hvd::runtime::trace
