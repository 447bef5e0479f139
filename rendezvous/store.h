// The rendezvous service's memory: keys in scopes, each with the version of its last change, and
// the clients that wait for one. Pure: no clock, no socket. The server owns one; for one thread.
//
// Versions grow with every change of any key and never repeat, so one version tells everything that
// a reader missed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/security/crypto.h"
#include "base/status.h"
#include "rendezvous/limits.h"

namespace hvd::rendezvous {

// Bytes with their digest, which every signed answer that carries them needs. Shared by the store
// and by all answers on their way, so that a value is never copied.
struct Value {
  std::string bytes;
  Digest digest{};
};
using ValuePtr = std::shared_ptr<const Value>;
ValuePtr make_value(std::string bytes);
ValuePtr make_value(std::string bytes, const Digest& digest);  // the digest is known already

struct Entry {
  ValuePtr value;
  std::uint64_t version = 0;
};

class Store {
 public:
  // `first_version` is given to the first change. A server that may be started again over the same
  // clients starts with the time, so that versions grow across its lives too.
  explicit Store(const ServerLimits& limits, std::uint64_t first_version = 1);

  // A scope that is expected to get `size` keys which are all "finished" one day: erase() of such a
  // key only notes that, and the scope's keys go together once all have been erased. 0: not any
  // more.
  void expect(std::string_view scope, std::size_t size);

  // invalid_argument if a name is empty or too long.
  Status check_name(std::string_view scope, std::string_view key) const;

  // Each writes and returns the new version, or changes nothing: invalid_argument for a name,
  // resource_exhausted for a limit on value, scopes or total.
  Result<std::uint64_t> put(std::string_view scope, std::string_view key, ValuePtr value);
  // All or none; the version is that of the last.
  Result<std::uint64_t> put_many(std::string_view scope,
                                 const std::vector<std::pair<std::string, ValuePtr>>& values);
  // already_exists if the key's version is not `expected` (0: it must not exist).
  Result<std::uint64_t> compare_and_set(std::string_view scope, std::string_view key,
                                        ValuePtr value, std::uint64_t expected);

  // Null if there is none. Valid until the next change.
  const Entry* find(std::string_view scope, std::string_view key) const;

  // Takes the key out, and its scope with the last one; see expect() for the exception.
  void erase(std::string_view scope, std::string_view key);
  void erase_scope(std::string_view scope);
  // All of whose names this holds; it may not use the store.
  void erase_scopes_if(const std::function<bool(std::string_view scope)>& condition);

  // Calls `woken` once, from within the call that gives the key a version above `newer_than`, with
  // what was written; it may use the store. An entry that is there already does not count: look
  // with find() first.
  using Woken = std::function<void(const Entry&)>;
  using WaitId = std::uint64_t;
  WaitId wait(std::string_view scope, std::string_view key, std::uint64_t newer_than, Woken woken);
  // Nothing happens if it was woken already.
  void cancel_wait(std::string_view scope, std::string_view key, WaitId id);

  std::size_t scope_count() const { return scopes_.size(); }
  std::size_t key_count() const { return keys_; }
  std::size_t waiter_count() const { return waiting_; }
  std::size_t charged_bytes() const { return charged_; }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>()(text);
    }
  };
  template <typename T>
  using Named = std::unordered_map<std::string, T, Hash, std::equal_to<>>;

  struct Scope {
    Named<Entry> keys;
    std::set<std::string, std::less<>> finished;  // of an expected scope: keys erased so far
  };
  struct Waiter {
    std::uint64_t newer_than = 0;
    Woken woken;
  };

  Status check_room(std::string_view scope, std::size_t added_bytes) const;
  std::size_t charge_of_change(std::string_view scope, std::string_view key,
                               std::size_t value_size) const;
  std::uint64_t write(std::string_view scope, std::string_view key, ValuePtr value);
  void wake(std::string_view scope, std::string_view key, const Entry& entry);

  ServerLimits limits_;
  std::uint64_t next_version_;
  Named<Scope> scopes_;
  Named<std::size_t> expected_;
  Named<std::map<WaitId, Waiter>> waiters_;  // by wait_name(scope, key)
  WaitId next_wait_ = 1;
  std::size_t keys_ = 0;
  std::size_t waiting_ = 0;
  std::size_t charged_ = 0;
};

}  // namespace hvd::rendezvous
