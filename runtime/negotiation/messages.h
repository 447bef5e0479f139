// What the members of a world say to those above and below them in the control tree: frames
// (base/frame.h) on TCP, after the handshake (base/security/handshake.h) with the purpose
// kTreePurpose. Decoding trusts nothing.
//
//   to the parent     formed      all of this subtree are connected
//                     upward      what is ready in this subtree, who has joined or left
//                     suspicion   a data connection broke here; who is it? Passed on to the root
//   to the children   downward    what to run next, the same on all, in this order; passed on
//   both              trace_*     the timeline and the flight recorder (trace/frames.h), clock_*
//   too
//                     abort       the world has failed: why, and through whom; passed on to all
//                     letters     there are some in the host's memory (shm/host_mail.h)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/core/failure.h"
#include "runtime/negotiation/traffic.h"

namespace hvd::runtime {

enum class Message : std::uint16_t {
  formed = 16,
  upward = 17,
  suspicion = 18,
  downward = 19,
  abort = 20,
  letters = 21,
  // runtime/trace/frames.h:
  trace_start = 24,
  trace_stop = 25,
  trace_dump = 26,
  trace_events = 27,
  clock_ask = 28,
  clock_answer = 29,
};

// Whole frames.
std::string encode_formed();
std::string encode_letters();
std::string encode_upward(const Upward& message);
std::string encode_downward(const Downward& message);
std::string encode_failure(Message kind, const Failure& failure);  // abort or suspicion

// Payloads. Ranks that the world does not have are an error. `most_cached`: how many tensors this
// rank knows by an id; a decision that names more of them by their ids is a lie.
Result<Upward> decode_upward(std::string_view payload, int world_size);
Result<Downward> decode_downward(std::string_view payload, int world_size, std::size_t most_cached);
Result<Failure> decode_failure(std::string_view payload);

}  // namespace hvd::runtime
