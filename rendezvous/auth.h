// How a request proves that its sender holds the job's key or the credential of one of its workers,
// and an answer that the server does. The key itself never travels, and a captured request cannot
// be used again.
//
//     Authorization: HVD1 [worker-<incarnation>] <client> <counter> <time> <body> <mac>
//
// A worker names its incarnation and signs with its own credential (base/protocol/credentials.h),
// which is worth nothing once the worker has ended.
//
// `client` is random (16 hexadecimal digits), `counter` grows with each request of that client,
// `time` is in milliseconds since 1970, `body` the SHA-256 of the body in hexadecimal or "-" if
// there is none, and `mac` the HMAC-SHA256 under the key of all that and of method and target.
// Since the MAC covers the body's digest, a stranger is refused before its body is read.
//
// An answer's MAC (Hvd-Proof) covers the client and counter it answers, its status, version, time
// and body. Pure: the caller says what time it is. Each object is for one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/security/crypto.h"
#include "base/status.h"
#include "rendezvous/rights.h"

namespace hvd::rendezvous {

inline constexpr std::int64_t kTimeWindow = 300'000;  // ms that the two clocks may differ

// The client and the number of its request: what an answer answers. Clients of different workers
// are different ones, whatever numbers they have chosen.
struct RequestId {
  std::uint64_t client = 0;
  std::uint64_t counter = 0;
  Incarnation worker = 0;  // with whose credential it is signed; 0: with the job's key
};

// The parts of a request that are signed beside its id and time.
struct SignedRequest {
  std::string_view method;
  std::string_view target;
  std::string_view body_digest;  // 64 hexadecimal digits, or "-"
};

// The parts of an answer that are signed beside the id of its request.
struct SignedAnswer {
  unsigned status = 0;
  std::uint64_t version = 0;  // 0: it has none
  std::int64_t time = 0;      // 0: it tells none
  Digest body_digest{};
};

// The client's side.
class Signer {
 public:
  // `worker`: whose credential `key` is; 0: it is the job's key.
  Signer(const Token& key, std::uint64_t client, Incarnation worker = 0);

  struct Signature {
    RequestId id;
    std::string authorization;  // the header's value
  };
  // Each call counts as a new request, also when the same one is sent again.
  Signature sign(const SignedRequest& request, std::int64_t now);
  bool verify(const RequestId& id, const SignedAnswer& answer, std::string_view proof) const;

 private:
  Mac mac_;
  RequestId last_;
};

// Which counters of one client were seen: the newest and a bitmap of the 63 below it, so that
// requests may overtake each other a little and a client costs the same few bytes for ever.
// Compare the anti-replay window of IPsec (RFC 6479).
class ReplayWindow {
 public:
  // True, once, for each counter that is not too old to be known.
  bool accept(std::uint64_t counter);

 private:
  std::uint64_t newest_ = 0;
  std::uint64_t seen_ = 0;  // bit i: newest_ - i
};

// The server's side.
class Verifier {
 public:
  // Requests from before `started` are refused, since an earlier server with the same key may
  // have answered them. Without `find_worker` there are no workers with credentials of their own.
  Verifier(const Token& job_key, std::int64_t started, FindWorker find_worker = {});

  enum class Outcome {
    accepted,
    stranger,    // not signed, or with none of the job's keys
    ended,       // signed, but with the credential of a worker that has ended
    wrong_time,  // signed, but the clocks differ too much: the answer tells ours
    repeated,    // signed, but seen before
  };
  struct Verdict {
    Outcome outcome = Outcome::stranger;
    RequestId id;                  // unless a stranger
    std::string_view body_digest;  // as in SignedRequest; lies in `authorization`
    std::string reason;            // why it is not accepted
  };
  // `method` and `target` as they came; `authorization` is the header's value, empty if none came.
  Verdict verify(std::string_view method, std::string_view target, std::string_view authorization,
                 std::int64_t now);

  // The Hvd-Proof of an answer, 64 hexadecimal digits, appended to `out`. `id` is that of a request
  // which was not a stranger's.
  void prove(const RequestId& id, const SignedAnswer& answer, std::string& out);

  // A request that was accepted may wait for its answer for longer than its worker lives.
  bool has_ended(Incarnation worker) const;

  // Forgets clients whose requests are all too old to be accepted again. To be called now and then.
  void forget_old(std::int64_t now);
  std::size_t client_count() const { return clients_.size(); }

 private:
  using ClientKey = std::pair<Incarnation, std::uint64_t>;
  struct Hash {
    std::size_t operator()(const ClientKey& key) const {
      // The second number is random already.
      return std::hash<std::uint64_t>()(key.second ^ (key.first << 32));
    }
  };
  struct ClientState {
    ReplayWindow window;
    std::int64_t newest_time = 0;
  };

  // Under the credential of this worker. Null: there was never such a worker.
  const Mac* mac_of(Incarnation worker, const std::optional<KnownWorker>& known);
  std::optional<KnownWorker> find(Incarnation worker) const;

  Token job_key_;
  Mac mac_;
  std::int64_t started_;
  FindWorker find_worker_;
  std::string text_;  // reused by verify()
  std::unordered_map<ClientKey, ClientState, Hash> clients_;
  std::unordered_map<Incarnation, Mac> workers_;  // of those that have asked for something
};

// The digest as it stands in a request: "-" for an empty body.
std::string body_digest_text(std::string_view body);

}  // namespace hvd::rendezvous
