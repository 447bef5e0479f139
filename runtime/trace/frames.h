// The messages about the timeline and the flight recorder, over the links of the control tree.
// Decoding trusts nothing.
//
//   to the children   trace_start    record all batches beyond a number
//                     trace_stop     ... up to a number, and then send the final events
//                     trace_dump     write the flight recorder, for this reason
//                     clock_answer   what time it is here
//   to the parent     trace_events   of one rank; passed on to the root
//                     clock_ask      request for the parent's time
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "runtime/core/activity.h"

namespace hvd::runtime::trace {

struct Mark {  // trace_start, trace_stop
  std::uint64_t session = 0;
  std::uint64_t number = 0;  // of a response
};

struct Events {
  std::uint64_t session = 0;
  int rank = 0;
  Nanoseconds offset = 0;     // to be added to the times for the receiver's clock
  std::uint32_t tensors = 0;  // in `batches`
  std::uint32_t dropped = 0;  // tensors that were dropped before these
  bool final = false;         // no events of this rank follow
  std::string batches;        // trace/batch.h
};

struct ClockAnswer {
  Nanoseconds asked = 0;  // by the clock of the rank that asks
  Nanoseconds now = 0;    // by the clock of the rank that answers
  std::string machine;    // clock_identity(); empty: not known
};

// Whole frames.
std::string encode_start(const Mark& mark);
std::string encode_stop(const Mark& mark);
std::string encode_dump(std::string_view reason);
std::string encode_events(const Events& events);
std::string encode_clock_ask(Nanoseconds now);
std::string encode_clock_answer(const ClockAnswer& answer);

// Payloads.
Result<Mark> decode_mark(std::string_view payload);
Result<std::string> decode_dump(std::string_view payload);
Result<Events> decode_events(std::string_view payload, int world_size);
Result<Nanoseconds> decode_clock_ask(std::string_view payload);
Result<ClockAnswer> decode_clock_answer(std::string_view payload);

}  // namespace hvd::runtime::trace
