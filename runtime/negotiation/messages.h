// The messages between the members of a world and their neighbours in the control tree
// (control_tree.h), as values, and their encoding as frames (base/frame.h). They are sent over TCP
// after the handshake (base/security/handshake.h) with the purpose kTreePurpose, or through shared
// memory. Decoding trusts nothing.
//
//   to the parent     formed             all ranks of this subtree are connected, and how far apart
//                                        its hosts are
//                     request_list       what is ready in this subtree, which ranks joined or left
//                     suspicion          a data connection broke here; forwarded to the root, which
//                                        finds out whose fault it is
//   to the children   response_list      what to run next, the same on all ranks and in this order;
//                                        forwarded to all
//   both              trace_*, clock_*   the timeline and the flight recorder (trace/frames.h)
//                     abort              the world has failed, why, and because of which rank;
//                                        forwarded to all
//                     shm_notification   messages wait in shared memory (shm/shm_mailbox.h)
//                     alive              nothing but that this rank can speak (tree_links.h)
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "runtime/core/failure.h"
#include "runtime/core/request.h"
#include "runtime/negotiation/interval_set.h"
#include "runtime/negotiation/response_cache.h"

namespace hvd::runtime {

enum class Message : std::uint16_t {
  formed = 16,
  request_list = 17,
  suspicion = 18,
  response_list = 19,
  abort = 20,
  shm_notification = 21,
  alive = 22,
  // runtime/trace/frames.h:
  trace_start = 24,
  trace_stop = 25,
  trace_dump = 26,
  trace_events = 27,
  clock_ask = 28,
  clock_answer = 29,
};

// A request of this rank: for a tensor that the cache keeps, or in full.
struct SubmittedRequest {
  SharedTensor cached;
  std::unique_ptr<Request> full;  // if `cached` is null
};

// Requests of several ranks by cache id: each of the ranks asks for each of the ids.
struct CachedRequests {
  RankSet ranks;
  IntervalSet ids;
  friend bool operator==(const CachedRequests&, const CachedRequests&) = default;
};

// The same request of several ranks, in full.
struct FullRequest {
  RankSet ranks;
  // If is_ragged(), its first extent is 0, and `first_extents` holds those of `ranks`, ascending.
  Request request;
  std::vector<std::int64_t> first_extents = {};
  friend bool operator==(const FullRequest&, const FullRequest&) = default;
};

// The last request of a rank, for the warning that names ranks which do not come.
struct LastRequest {
  int rank = 0;
  std::string tensor;  // empty: nothing so far
  std::chrono::milliseconds ago{0};
  friend bool operator==(const LastRequest&, const LastRequest&) = default;
};

// From a subtree to its parent. A rank joins, closes and leaves after the requests it made before.
struct RequestList {
  std::vector<CachedRequests> cached;
  std::vector<FullRequest> full;
  RankSet joined;
  // A rank has called join() with calls in flight: it joins when no id leaves the caches any more.
  bool joins_soon = false;
  // A rank has called shutdown() with calls in flight: it closes when it forwards immediately.
  bool in_shutdown = false;
  RankSet closing;  // these make no more calls; some may be in flight
  RankSet left;     // these have no calls in flight, either
  std::vector<LastRequest> last_requests;
  bool empty() const {
    return cached.empty() && full.empty() && joined.empty() && !joins_soon && !in_shutdown &&
           closing.empty() && left.empty() && last_requests.empty();
  }
  friend bool operator==(const RequestList&, const RequestList&) = default;
};

// A Response as it is sent: a tensor that all ranks have in their caches is an id.
struct WireResponse {
  struct Tensor {
    std::optional<CacheId> id;
    std::shared_ptr<const ResponseTensor> whole;  // if there is no id
  };
  Kind kind = Kind::allreduce;
  int process_set = kGlobalSet;
  std::vector<Tensor> tensors;
  std::vector<int> joined;
  int last_joined = -1;
  int new_set = -1;
  Status error;
  // Ids that this response evicts from the caches although their tensors are decided already and
  // only wait to be run: ranks need not request them again.
  IntervalSet settled;
  bool hierarchical = false;  // Response::hierarchical
  LinkSpeed link_speed;       // Response::link_speed
  // True: these tensors go into the caches, and ranks request by id from now on. False: all
  // requests are sent in full until a later response says otherwise.
  bool caching = true;
  // Tensors that all ranks have requested by id may be given lanes (lane_plan.h).
  bool lanes = false;
};

// From the root to all ranks.
struct ResponseList {
  std::vector<WireResponse> responses;
  // A rank joins or closes with calls in flight: no id leaves the caches from now on, except with
  // its process set.
  bool keeps_ids = false;
  // A rank has called shutdown(): the root needs to see every single request at once.
  bool forward_immediately = false;
  bool goodbye = false;  // all ranks have left
  bool empty() const { return responses.empty() && !keeps_ids && !forward_immediately && !goodbye; }
};

// Whole frames.
// `round_trip`: the longest one between this subtree's hosts, or to its parent's; 0: one host.
std::string encode_formed(std::chrono::microseconds round_trip);
std::string encode_shm_notification();
std::string encode_alive();
std::string encode_request_list(const RequestList& message);
std::string encode_response_list(const ResponseList& message);
std::string encode_failure(Message kind, const Failure& failure);  // abort or suspicion

// Payloads. Ranks outside the world are an error. `most_cached`: how many tensors this rank's cache
// holds; a response that names more of them by id is refused.
Result<RequestList> decode_request_list(std::string_view payload, int world_size);
Result<ResponseList> decode_response_list(std::string_view payload, int world_size,
                                          std::size_t most_cached);
Result<std::chrono::microseconds> decode_formed(std::string_view payload);
Result<Failure> decode_failure(std::string_view payload);

}  // namespace hvd::runtime
