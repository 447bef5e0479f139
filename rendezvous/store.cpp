#include "rendezvous/store.h"

#include "base/text.h"

namespace hvd::rendezvous {
namespace {

std::size_t charge(std::string_view name, std::size_t value_size) {
  return name.size() + value_size + kKeyOverhead;
}

// One name for both: the length says where the scope ends, since either may hold any byte.
std::string wait_name(std::string_view scope, std::string_view key) {
  std::string name = std::to_string(scope.size());
  name.reserve(name.size() + 1 + scope.size() + key.size());
  return name.append(":").append(scope).append(key);
}

}  // namespace

ValuePtr make_value(std::string bytes) {
  const Digest digest = sha256(bytes);
  return make_value(std::move(bytes), digest);
}

ValuePtr make_value(std::string bytes, const Digest& digest) {
  return std::make_shared<const Value>(Value{std::move(bytes), digest});
}

Store::Store(const ServerLimits& limits, std::uint64_t first_version)
    : limits_(limits), next_version_(first_version) {}

void Store::expect(std::string_view scope, std::size_t size) {
  if (size == 0) {
    if (const auto found = expected_.find(scope); found != expected_.end()) expected_.erase(found);
  } else {
    expected_.insert_or_assign(std::string(scope), size);
  }
}

Status Store::check_name(std::string_view scope, std::string_view key) const {
  if (scope.empty()) return {Code::invalid_argument, "the scope is empty"};
  if (key.empty()) return {Code::invalid_argument, "the key is empty"};
  if (scope.size() > limits_.max_scope) {
    return {Code::invalid_argument,
            cat("the scope has ", with_thousands(scope.size()), " bytes; the limit is ",
                with_thousands(limits_.max_scope))};
  }
  if (key.size() > limits_.max_key) {
    return {Code::invalid_argument, cat("the key has ", with_thousands(key.size()),
                                        " bytes; the limit is ", with_thousands(limits_.max_key))};
  }
  return {};
}

std::size_t Store::charge_of_change(std::string_view scope, std::string_view key,
                                    std::size_t value_size) const {
  const Entry* const old = find(scope, key);
  if (old == nullptr) return charge(key, value_size);
  const std::size_t before = old->value->bytes.size();
  return value_size > before ? value_size - before : 0;
}

Status Store::check_room(std::string_view scope, std::size_t added_bytes) const {
  if (scopes_.find(scope) == scopes_.end()) {
    if (scopes_.size() >= limits_.max_scopes) {
      return {Code::resource_exhausted,
              cat("there are ", with_thousands(scopes_.size()), " scopes, which is the limit")};
    }
    added_bytes += charge(scope, 0);
  }
  if (added_bytes > limits_.max_total || charged_ > limits_.max_total - added_bytes) {
    return {Code::resource_exhausted,
            cat("the store holds ", with_thousands(charged_), " bytes and this would add ",
                with_thousands(added_bytes), "; the limit is ", with_thousands(limits_.max_total))};
  }
  return {};
}

static Status check_value(const ServerLimits& limits, const Value& value) {
  if (value.bytes.size() <= limits.max_value) return {};
  return {Code::resource_exhausted, cat("the value has ", with_thousands(value.bytes.size()),
                                        " bytes; the limit is ", with_thousands(limits.max_value))};
}

Result<std::uint64_t> Store::put(std::string_view scope, std::string_view key, ValuePtr value) {
  HVD_RETURN_IF_ERROR(check_name(scope, key));
  HVD_RETURN_IF_ERROR(check_value(limits_, *value));
  HVD_RETURN_IF_ERROR(check_room(scope, charge_of_change(scope, key, value->bytes.size())));
  return write(scope, key, std::move(value));
}

Result<std::uint64_t> Store::put_many(std::string_view scope,
                                      const std::vector<std::pair<std::string, ValuePtr>>& values) {
  std::size_t added = 0;
  for (const auto& [key, value] : values) {
    HVD_RETURN_IF_ERROR(check_name(scope, key));
    HVD_RETURN_IF_ERROR(check_value(limits_, *value).with_context(cat("key \"", key, "\"")));
    added += charge_of_change(scope, key, value->bytes.size());
  }
  HVD_RETURN_IF_ERROR(check_room(scope, added));
  std::uint64_t version = next_version_ - 1;
  for (const auto& [key, value] : values) version = write(scope, key, value);
  return version;
}

Result<std::uint64_t> Store::compare_and_set(std::string_view scope, std::string_view key,
                                             ValuePtr value, std::uint64_t expected) {
  HVD_RETURN_IF_ERROR(check_name(scope, key));
  const Entry* const current = find(scope, key);
  const std::uint64_t version = current == nullptr ? 0 : current->version;
  if (version != expected) {
    const auto said = [](std::uint64_t v) {
      return v == 0 ? std::string("absent") : cat("version ", v);
    };
    return Status(Code::already_exists,
                  cat("the key is ", said(version), ", not ", said(expected), " as expected"));
  }
  return put(scope, key, std::move(value));
}

std::uint64_t Store::write(std::string_view scope, std::string_view key, ValuePtr value) {
  auto found = scopes_.find(scope);
  if (found == scopes_.end()) {
    found = scopes_.emplace(std::string(scope), Scope()).first;
    charged_ += charge(scope, 0);
  }
  auto& keys = found->second.keys;
  auto entry = keys.find(key);
  if (entry == keys.end()) {
    entry = keys.emplace(std::string(key), Entry()).first;
    charged_ += charge(key, 0);
    ++keys_;
  } else {
    charged_ -= entry->second.value->bytes.size();
  }
  charged_ += value->bytes.size();
  auto& finished = found->second.finished;
  if (const auto old = finished.find(key); old != finished.end()) finished.erase(old);
  entry->second = Entry{std::move(value), next_version_++};
  // Somebody that is woken may change the store: what it is told must not depend on it.
  const Entry written = entry->second;
  wake(scope, key, written);
  return written.version;
}

void Store::wake(std::string_view scope, std::string_view key, const Entry& entry) {
  if (waiters_.empty()) return;
  const auto found = waiters_.find(wait_name(scope, key));
  if (found == waiters_.end()) return;
  std::vector<Woken> due;
  auto& waiters = found->second;
  for (auto waiter = waiters.begin(); waiter != waiters.end();) {
    if (waiter->second.newer_than < entry.version) {
      due.push_back(std::move(waiter->second.woken));
      waiter = waiters.erase(waiter);
    } else {
      ++waiter;
    }
  }
  waiting_ -= due.size();
  if (waiters.empty()) waiters_.erase(found);
  for (const auto& woken : due) woken(entry);
}

const Entry* Store::find(std::string_view scope, std::string_view key) const {
  const auto found = scopes_.find(scope);
  if (found == scopes_.end()) return nullptr;
  const auto entry = found->second.keys.find(key);
  return entry == found->second.keys.end() ? nullptr : &entry->second;
}

void Store::erase(std::string_view scope, std::string_view key) {
  const auto found = scopes_.find(scope);
  if (found == scopes_.end()) return;
  if (const auto expected = expected_.find(scope); expected != expected_.end()) {
    // A set, so that a client that asks again after a lost answer is not counted twice; and only
    // keys that exist, so that it stays bounded.
    auto& finished = found->second.finished;
    if (found->second.keys.find(key) != found->second.keys.end()) finished.emplace(key);
    if (finished.size() >= expected->second) erase_scope(scope);
    return;
  }
  auto& keys = found->second.keys;
  const auto entry = keys.find(key);
  if (entry == keys.end()) return;
  charged_ -= charge(key, entry->second.value->bytes.size());
  --keys_;
  keys.erase(entry);
  if (keys.empty()) erase_scope(scope);
}

void Store::erase_scope(std::string_view scope) {
  const auto found = scopes_.find(scope);
  if (found == scopes_.end()) return;
  for (const auto& [key, entry] : found->second.keys) {
    charged_ -= charge(key, entry.value->bytes.size());
  }
  keys_ -= found->second.keys.size();
  charged_ -= charge(scope, 0);
  scopes_.erase(found);
}

void Store::erase_scopes_if(const std::function<bool(std::string_view scope)>& condition) {
  std::vector<std::string> names;
  for (const auto& [name, scope] : scopes_) {
    if (condition(name)) names.push_back(name);
  }
  for (const auto& name : names) erase_scope(name);
}

Store::WaitId Store::wait(std::string_view scope, std::string_view key, std::uint64_t newer_than,
                          Woken woken) {
  const WaitId id = next_wait_++;
  waiters_[wait_name(scope, key)].emplace(id, Waiter{newer_than, std::move(woken)});
  ++waiting_;
  return id;
}

void Store::cancel_wait(std::string_view scope, std::string_view key, WaitId id) {
  const auto found = waiters_.find(wait_name(scope, key));
  if (found == waiters_.end() || found->second.erase(id) == 0) return;
  --waiting_;
  if (found->second.empty()) waiters_.erase(found);
}

}  // namespace hvd::rendezvous
