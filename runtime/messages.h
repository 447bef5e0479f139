// What the members of a world and its coordinator (rank 0) say to each other: frames (base/frame.h)
// on TCP, after the handshake (base/handshake.h) with the purpose kPurpose. Decoding trusts
// nothing.
//
//   member -> coordinator   requests    tensors that are ready on this rank
//                           suspicion   a data connection broke here; who is it?
//                           leave       no more requests will come
//   coordinator -> members  responses   what to run next, the same on all, in this order
//                           goodbye     all have left
//   both                    abort       the world has failed: why, and through whom
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/failure.h"
#include "runtime/request.h"

namespace hvd::runtime {

inline constexpr std::string_view kPurpose = "coordinator";

enum class Message : std::uint16_t {
  requests = 16,
  suspicion = 17,
  leave = 18,
  responses = 19,
  goodbye = 20,
  abort = 21,
};

// Whole frames.
std::string encode_requests(const std::vector<Request>& requests);
std::string encode_responses(const std::vector<Response>& responses);
std::string encode_failure(Message kind, const Failure& failure);  // abort or suspicion
std::string encode_empty(Message kind);                            // leave or goodbye

// Payloads.
Result<std::vector<Request>> decode_requests(std::string_view payload);
Result<std::vector<Response>> decode_responses(std::string_view payload);
Result<Failure> decode_failure(std::string_view payload);

}  // namespace hvd::runtime
