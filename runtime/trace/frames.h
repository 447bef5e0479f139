// What the ranks say to each other about the timeline and the flight recorder, over the links of
// the control tree. Decoding trusts nothing.
//
//   to the children   trace_start    record all batches beyond a number
//                     trace_stop     ... up to a number, and then say the last word
//                     trace_dump     write what the flight recorder knows, and why
//                     clock_answer   what time it is here
//   to the parent     trace_events   of one rank; passed on to the root
//                     clock_ask      what time is it?
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
  Nanoseconds offset = 0;     // added to its times it gives those of whoever receives this
  std::uint32_t tensors = 0;  // in `batches`
  std::uint32_t dropped = 0;  // tensors that were left out before these
  bool final = false;         // this rank's last word
  std::string batches;        // trace/batch.h
};

struct ClockAnswer {
  Nanoseconds asked = 0;  // by the clock of the one who asks
  Nanoseconds now = 0;    // by the clock of the one who answers
  std::string machine;    // whose processes share one clock; empty: not known
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
