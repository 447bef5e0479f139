#include "rendezvous/service.h"

#include <algorithm>

#include "base/text.h"
#include "rendezvous/requests.h"

namespace hvd::rendezvous {
namespace {

constexpr std::string_view kLegacyRefusal =
    "requests have to be signed with a key of the job; those of Horovod's own clients are not, and "
    "are served only with --legacy-clients";
constexpr std::string_view kAllowed = "GET, PUT, DELETE, POST";

std::string_view status_text(unsigned status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 411:
      return "Length Required";
    case 412:
      return "Precondition Failed";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    case 507:
      return "Insufficient Storage";
    default:
      return "Error";
  }
}

// The text of a key in a reason: encoded, and cut where it gets long.
std::string shown(std::string_view scope, std::string_view key) {
  constexpr std::size_t kMost = 120;
  const auto part = [](std::string_view name) {
    return name.size() <= kMost ? percent_encode(name)
                                : cat(percent_encode(name.substr(0, kMost)), "...");
  };
  return cat("/", part(scope), "/", part(key));
}

Reply store_refusal(const Status& status) {
  return make_error(status.code() == Code::invalid_argument ? 414 : 507, status.message());
}

Reply written(std::uint64_t version) {
  Reply reply;
  reply.version = version;
  return reply;
}

const Digest& empty_digest() {
  static const Digest kDigest = sha256("");
  return kDigest;
}

template <typename Integer>
void append_number(std::string& out, Integer number) {
  out += std::to_string(number);
}

}  // namespace

Reply make_error(unsigned status, std::string reason) {
  Reply reply;
  reply.status = status;
  reply.body = make_value(std::move(reason) + "\n");
  return reply;
}

bool legacy_clients_use(std::string_view method, std::string_view scope) {
  const bool peers = scope == "global" || scope.starts_with("local_") ||
                     scope.starts_with("cross_") ||
                     scope.find("_process_set_hash_") != std::string_view::npos;
  if (peers) return method == "GET" || method == "PUT" || method == "DELETE";
  if (scope == "rank_and_size") return method == "GET";
  if (scope == "worker_addresses") return method == "PUT";
  return false;
}

Service::Service(const Token& job_key, const ServerLimits& limits, bool legacy_clients,
                 std::int64_t now, FindWorker find_worker)
    : limits_(limits),
      legacy_clients_(legacy_clients),
      store_(limits, static_cast<std::uint64_t>(now) * 1000),
      verifier_(job_key, now, std::move(find_worker)) {}

std::optional<Reply> Service::admit(const RequestHead& head, Ticket& ticket, std::int64_t now) {
  ticket.is_signed = ticket.proved = ticket.is_legacy = false;
  const std::string_view method = head.method;
  const bool with_body = method == "PUT" || method == "POST";
  if (!with_body && method != "GET" && method != "DELETE") {
    return make_error(405, cat("this method is not served; there are ", kAllowed));
  }
  ticket.target_status = parse_target(head.target, ticket.target);
  const bool health = head.target == "/healthz" && method == "GET";

  std::optional<Reply> refusal;
  if (!head.authorization.empty() || !health) {
    const auto verdict = verifier_.verify(method, head.target, head.authorization, now);
    ticket.is_signed = verdict.outcome != Verifier::Outcome::stranger;
    ticket.id = verdict.id;
    ticket.body_digest = verdict.body_digest;
    ticket.proved = verdict.outcome == Verifier::Outcome::accepted;
    const bool legacy = head.authorization.empty() && ticket.target_status.ok() &&
                        !ticket.target.key.empty() && head.target.find('?') == std::string::npos &&
                        legacy_clients_use(method, ticket.target.scope);
    ticket.is_legacy = legacy && !legacy_clients_;
    if (!ticket.proved && (!legacy || ticket.is_legacy)) {
      const bool has_ended = verdict.outcome == Verifier::Outcome::ended;
      refusal = make_error(has_ended ? 403 : 401,
                           ticket.is_legacy ? std::string(kLegacyRefusal) : verdict.reason);
      refusal->close = has_ended;
      if (verdict.outcome == Verifier::Outcome::wrong_time) refusal->time = now;
    }
  }

  // A request that the framing alone makes impossible is refused before any check of the client:
  // the refusal gives nothing away.
  if (head.chunked || (with_body && !head.content_length)) {
    return make_error(411, "the body's length must be given (Content-Length)");
  }
  const std::size_t most =
      method == "PUT" ? limits_.max_value : (method == "POST" ? limits_.max_bulk : 0);
  if (head.content_length.value_or(0) > most) {
    if (most == 0) return make_error(400, "a request with this method has no body");
    return make_error(413, cat("the body has ", with_thousands(*head.content_length),
                               " bytes; the limit is ", with_thousands(most)));
  }
  if (refusal) return refusal;
  if (head.conditional) {
    return make_error(400, "conditional and range headers are not served; use ?expected=<version>");
  }
  return std::nullopt;
}

std::variant<Reply, PendingRead> Service::handle(const RequestHead& head, const Ticket& ticket,
                                                 std::string body) {
  if (head.target == "/healthz" && head.method == "GET") {
    Reply reply;
    reply.body = make_value("ok\n");
    return reply;
  }

  const Digest digest = body.empty() ? empty_digest() : sha256(body);
  if (ticket.is_signed && ticket.body_digest != (body.empty() ? "-" : to_hex(as_view(digest)))) {
    return make_error(401, "the body is not the one that was signed");
  }

  if (!ticket.target_status.ok()) return make_error(400, ticket.target_status.message());
  const Target& target = ticket.target;
  const bool post = head.method == "POST";
  if (target.key.empty() != post) {
    return make_error(400, post ? "a bulk request's path is /<scope>"
                                : "the path is not of the form /<scope>/<key>");
  }

  const bool get = head.method == "GET";
  const bool blocking = target.wait.has_value() || target.newer_than != 0;
  if ((target.expected && head.method != "PUT") ||
      (blocking && !get && !(post && target.read && target.newer_than == 0)) ||
      (!post && (target.read || target.write))) {
    return make_error(400, cat("an option does not fit the method ", head.method));
  }
  if (target.newer_than != 0 && !target.wait) {
    return make_error(400, "newer=<version> needs wait=<seconds>");
  }
  if (target.wait && *target.wait > limits_.max_wait) {
    return make_error(400, cat("wait is ", target.wait->count() / 1000, " s; the limit is ",
                               limits_.max_wait.count() / 1000, " s"));
  }

  if (post && target.read == target.write) {
    return make_error(400, "a bulk request has either ?read or ?write");
  }
  if (post && target.read) return handle_bulk_read(target, body);
  if (post) return handle_bulk_write(ticket, body);
  if (const Status name = store_.check_name(target.scope, target.key); !name.ok()) {
    return store_refusal(name);
  }
  if (get) return handle_get(target);

  const Status right = check_write(ticket, target.scope, target.key, body);
  if (!right.ok()) return make_error(403, right.message());
  if (head.method == "PUT") {
    return handle_put(target, make_value(std::move(body), digest));
  }
  store_.erase(target.scope, target.key);
  return Reply();
}

Status Service::check_write(const Ticket& ticket, std::string_view scope, std::string_view key,
                            std::string_view value) const {
  if (ticket.id.worker == 0) return {};
  const Entry* const entry = store_.find(scope, key);
  return rights_.check_write(ticket.id.worker, scope, key, value,
                             entry == nullptr ? std::string_view() : entry->value->bytes);
}

Reply Service::handle_put(const Target& target, ValuePtr value) {
  const auto version = target.expected ? store_.compare_and_set(target.scope, target.key,
                                                                std::move(value), *target.expected)
                                       : store_.put(target.scope, target.key, std::move(value));
  if (version.ok()) return written(*version);
  if (version.status().code() == Code::already_exists) {
    return make_error(412, version.status().message());
  }
  return store_refusal(version.status());
}

std::variant<Reply, PendingRead> Service::handle_get(const Target& target) {
  const Entry* const entry = store_.find(target.scope, target.key);
  if (entry != nullptr && entry->version > target.newer_than) return answer_single(*entry);
  if (target.wait && target.wait->count() > 0) {
    return PendingRead{target.scope, {target.key}, target.newer_than, *target.wait, false};
  }
  return make_error(404, cat("there is no ", shown(target.scope, target.key)));
}

std::variant<Reply, PendingRead> Service::handle_bulk_read(const Target& target,
                                                           std::string_view body) {
  auto keys = decode_bulk_keys(body);
  if (!keys.ok()) return make_error(400, keys.status().message());
  for (const auto& key : *keys) {
    if (const Status name = store_.check_name(target.scope, key); !name.ok()) {
      return store_refusal(name);
    }
  }

  PendingRead read{target.scope, std::move(*keys), 0,
                   target.wait.value_or(std::chrono::milliseconds(0)), true};
  if (read.wait.count() == 0 || last_missing(read) == nullptr) return answer_bulk(read);
  return read;
}

Reply Service::handle_bulk_write(const Ticket& ticket, std::string_view body) {
  const std::string& scope = ticket.target.scope;
  auto values = decode_bulk_write(body);
  if (!values.ok()) return make_error(400, values.status().message());
  for (const auto& [key, value] : *values) {
    const Status right = check_write(ticket, scope, key, value->bytes);
    if (!right.ok()) return make_error(403, right.message());
    if (value->bytes.size() > limits_.max_value) {
      return make_error(
          413, cat("the value of ", shown(scope, key), " has ", with_thousands(value->bytes.size()),
                   " bytes; the limit is ", with_thousands(limits_.max_value)));
    }
  }

  const auto version = store_.put_many(scope, *values);
  return version.ok() ? written(*version) : store_refusal(version.status());
}

const std::string* Service::last_missing(const PendingRead& read) const {
  const auto missing =
      std::find_if(read.keys.rbegin(), read.keys.rend(),
                   [&](const std::string& key) { return store_.find(read.scope, key) == nullptr; });
  return missing == read.keys.rend() ? nullptr : &*missing;
}

Reply Service::answer_single(const Entry& entry) {
  Reply reply;
  reply.body = entry.value;
  reply.version = entry.version;
  return reply;
}

Reply Service::answer_bulk(const PendingRead& read) const {
  std::vector<const Entry*> entries;
  entries.reserve(read.keys.size());
  std::size_t size = 0;
  for (const auto& key : read.keys) {
    entries.push_back(store_.find(read.scope, key));
    if (entries.back() != nullptr) size += entries.back()->value->bytes.size();
    if (size > limits_.max_bulk) {
      return make_error(413, cat("the values have more than ", with_thousands(limits_.max_bulk),
                                 " bytes together, which is the limit; ask for fewer keys"));
    }
  }
  Reply reply;
  reply.body = make_value(encode_bulk_values(entries));
  return reply;
}

Reply Service::answer_late(const PendingRead& read) const {
  // A bulk read tells in its own form which keys are not there.
  if (read.bulk) return answer_bulk(read);
  return make_error(404, cat("there was no ", shown(read.scope, read.keys.front()),
                             read.newer_than == 0 ? "" : cat(" newer than ", read.newer_than),
                             " within ", read.wait.count(), " ms"));
}

void Service::write_head(const Reply& reply, const RequestHead& head, const Ticket& ticket,
                         std::string& out) {
  const bool bodiless = head.method == "HEAD";  // whatever the answer: HTTP sends it no body
  const std::size_t size = reply.body && !bodiless ? reply.body->bytes.size() : 0;
  append_number(out.append("HTTP/1.1 "), reply.status);
  out.append(" ").append(status_text(reply.status)).append("\r\nContent-Length: ");
  append_number(out, size);
  if (reply.version != 0) append_number(out.append("\r\nHvd-Version: "), reply.version);
  if (reply.time != 0) append_number(out.append("\r\nHvd-Time: "), reply.time);
  if (ticket.is_signed) {
    SignedAnswer answer{reply.status, reply.version, reply.time, empty_digest()};
    if (size > 0) answer.body_digest = reply.body->digest;
    verifier_.prove(ticket.id, answer, out.append("\r\nHvd-Proof: "));
  }
  if (reply.status == 401) out.append("\r\nWWW-Authenticate: HVD1");
  if (reply.status == 405) out.append("\r\nAllow: ").append(kAllowed);
  if (reply.status >= 400) out.append("\r\nContent-Type: text/plain");
  if (reply.close) {
    out.append("\r\nConnection: close");
  } else if (head.http_1_0) {
    out.append("\r\nConnection: keep-alive");
  }
  out.append("\r\n\r\n");
}

}  // namespace hvd::rendezvous
