// The answers of the server: requests in, answers out, with the store and the signatures behind it.
// No socket and no clock: rendezvous/session.h does the input and output. For one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "rendezvous/auth.h"
#include "rendezvous/http_head.h"
#include "rendezvous/limits.h"
#include "rendezvous/requests.h"
#include "rendezvous/rights.h"
#include "rendezvous/store.h"

namespace hvd::rendezvous {

struct Reply {
  unsigned status = 200;
  ValuePtr body;              // null: empty
  std::uint64_t version = 0;  // of the key, if the answer is about one
  std::int64_t time = 0;      // the server's, if it is told
  bool close = false;         // no further request is read from this connection
};
Reply make_error(unsigned status, std::string reason);

// A read that has to wait: for one key with a version above `newer_than`, or for many to be there.
struct PendingRead {
  std::string scope;
  std::vector<std::string> keys;
  std::uint64_t newer_than = 0;
  std::chrono::milliseconds wait{};
  bool bulk = false;
};

// One request between its head and its answer: its client and its subject.
struct Ticket {
  bool is_signed = false;  // with a key of the job: the answer carries a proof
  bool proved = false;     // signed, and now: no copy of an earlier request
  bool is_legacy = false;  // unsigned, as Horovod's clients ask, and refused for that
  RequestId id;
  Target target;
  Status target_status;     // what is wrong with the target
  std::string body_digest;  // as the request announced it
};

class Service {
 public:
  Service(const Token& job_key, const ServerLimits& limits, bool legacy_clients, std::int64_t now,
          FindWorker find_worker = {});

  // Looks at a head, before any of its body was read. Nothing if the body may be read; else the
  // refusal. Fills `ticket` in any case. `now` is in milliseconds since 1970.
  std::optional<Reply> admit(const RequestHead& head, Ticket& ticket, std::int64_t now);
  // Then does what is asked.
  std::variant<Reply, PendingRead> handle(const RequestHead& head, const Ticket& ticket,
                                          std::string body);

  // The last key of a bulk read that is not there. Ranks come about in their order, and each waits
  // for the keys of all: waits for the last key are few, where those for the first one would end
  // and begin again with every rank that comes.
  const std::string* last_missing(const PendingRead& read) const;
  Reply answer_bulk(const PendingRead& read) const;
  static Reply answer_single(const Entry& entry);
  // The answer of a PendingRead whose time is up.
  Reply answer_late(const PendingRead& read) const;

  // The whole head of an answer, appended to `out`.
  void write_head(const Reply& reply, const RequestHead& head, const Ticket& ticket,
                  std::string& out);

  Store& store() { return store_; }
  Rights& rights() { return rights_; }
  Verifier& verifier() { return verifier_; }

 private:
  Status check_write(const Ticket& ticket, std::string_view scope, std::string_view key,
                     std::string_view value) const;
  Reply handle_put(const Target& target, ValuePtr value);
  std::variant<Reply, PendingRead> handle_get(const Target& target);
  std::variant<Reply, PendingRead> handle_bulk_read(const Target& target, std::string_view body);
  Reply handle_bulk_write(const Ticket& ticket, std::string_view body);

  ServerLimits limits_;
  bool legacy_clients_;
  Store store_;
  Rights rights_;
  Verifier verifier_;
};

// Whether Horovod's own clients use this verb on this scope.
bool legacy_clients_use(std::string_view method, std::string_view scope);

}  // namespace hvd::rendezvous
