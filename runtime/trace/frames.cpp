#include "runtime/trace/frames.h"

#include <limits>

#include "base/frame.h"
#include "base/wire.h"
#include "runtime/negotiation/messages.h"

namespace hvd::runtime::trace {
namespace {

std::string frame_of(Message kind, const WireWriter& fields) {
  return encode_frame(static_cast<std::uint16_t>(kind), fields.bytes());
}

std::string encode_mark(Message kind, const Mark& mark) {
  return frame_of(kind, WireWriter().u64(mark.session).u64(mark.number));
}

// Bounds the times so that sums and differences of a few of them do not overflow.
constexpr Nanoseconds kLatest = std::numeric_limits<Nanoseconds>::max() / 16;
bool can_be(Nanoseconds time) { return time > -kLatest && time < kLatest; }

}  // namespace

std::string encode_start(const Mark& mark) { return encode_mark(Message::trace_start, mark); }
std::string encode_stop(const Mark& mark) { return encode_mark(Message::trace_stop, mark); }

std::string encode_dump(std::string_view reason) {
  return frame_of(Message::trace_dump, WireWriter().str(reason));
}

std::string encode_events(const Events& events) {
  WireWriter out;
  out.u64(events.session).i32(events.rank).i64(events.offset).u32(events.tensors);
  out.u32(events.dropped).boolean(events.final).str(events.batches);
  return frame_of(Message::trace_events, out);
}

std::string encode_clock_ask(Nanoseconds now) {
  return frame_of(Message::clock_ask, WireWriter().i64(now));
}

std::string encode_clock_answer(const ClockAnswer& answer) {
  return frame_of(Message::clock_answer,
                  WireWriter().i64(answer.asked).i64(answer.now).str(answer.machine));
}

Result<Mark> decode_mark(std::string_view payload) {
  WireReader in(payload);
  const Mark mark{in.u64(), in.u64()};
  HVD_RETURN_IF_ERROR(in.finish("start or stop of a timeline"));
  return mark;
}

Result<std::string> decode_dump(std::string_view payload) {
  WireReader in(payload);
  auto reason = in.str();
  HVD_RETURN_IF_ERROR(in.finish("request for the flight recorder"));
  return reason;
}

Result<Events> decode_events(std::string_view payload, int world_size) {
  WireReader in(payload);
  Events events;
  events.session = in.u64();
  events.rank = in.i32();
  events.offset = in.i64();
  events.tensors = in.u32();
  events.dropped = in.u32();
  events.final = in.boolean();
  events.batches = in.str();
  HVD_RETURN_IF_ERROR(in.finish("events for the timeline"));
  if (events.rank < 0 || events.rank >= world_size || !can_be(events.offset)) {
    return Status(Code::data_loss, "events for the timeline: invalid rank or clock offset");
  }
  return events;
}

Result<Nanoseconds> decode_clock_ask(std::string_view payload) {
  WireReader in(payload);
  const Nanoseconds now = in.i64();
  HVD_RETURN_IF_ERROR(in.finish("clock request"));
  return now;
}

Result<ClockAnswer> decode_clock_answer(std::string_view payload) {
  WireReader in(payload);
  ClockAnswer answer{in.i64(), in.i64(), in.str()};
  HVD_RETURN_IF_ERROR(in.finish("clock answer"));
  if (!can_be(answer.asked) || !can_be(answer.now)) {
    return Status(Code::data_loss, "clock answer: invalid time");
  }
  return answer;
}

}  // namespace hvd::runtime::trace
