#include "rendezvous/auth.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "base/protocol/credentials.h"
#include "base/text.h"

namespace hvd::rendezvous {
namespace {

constexpr std::string_view kScheme = "HVD1 ";
constexpr std::string_view kWorker = "worker-";

template <typename Integer>
void append_number(std::string& out, Integer number, int base = 10) {
  std::array<char, 24> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number, base).ptr;
  out.append(digits.data(), end);
}

void append_id(std::string& out, std::uint64_t client) {
  std::array<char, 16> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), client, 16).ptr;
  out.append(16 - static_cast<std::size_t>(end - digits.data()), '0').append(digits.data(), end);
}

// The text that a request's MAC covers. Method and target hold no line break, so nothing can be
// shifted from one field to the next.
void append_request_text(std::string& out, std::string_view method, std::string_view target,
                         std::string_view parameters) {
  out.append("hvd rendezvous request\n").append(method).append("\n");
  out.append(target).append("\n").append(parameters);
}

Digest answer_mac(const Mac& mac, const RequestId& id, const SignedAnswer& answer) {
  std::string text = "hvd rendezvous answer\n";
  text.reserve(192);
  append_id(text, id.client);
  append_number(text.append(" "), id.counter);
  append_number(text.append(" "), answer.status);
  append_number(text.append(" "), answer.version);
  append_number(text.append(" "), answer.time);
  append_hex(text.append(" "), as_view(answer.body_digest));
  return mac({text});
}

// The next word of `text` up to a blank or its end, taken off it.
std::string_view take_word(std::string_view& text) {
  const std::size_t end = std::min(text.find(' '), text.size());
  const auto word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

struct Parameters {
  RequestId id;
  std::int64_t time = 0;
  std::string_view body_digest;
  std::string_view covered;  // all but the MAC
  std::string_view mac;
};

std::optional<Parameters> parse_authorization(std::string_view header) {
  if (!header.starts_with(kScheme)) return std::nullopt;
  std::string_view left = header.substr(kScheme.size());
  const std::string_view all = left;
  Parameters parameters;
  auto client = take_word(left);
  if (client.starts_with(kWorker)) {
    const auto worker = parse_number<Incarnation>(client.substr(kWorker.size()));
    if (!worker || *worker == 0) return std::nullopt;
    parameters.id.worker = *worker;
    client = take_word(left);
  }
  const auto counter = parse_number<std::uint64_t>(take_word(left));
  const auto time = parse_number<std::int64_t>(take_word(left));
  parameters.body_digest = take_word(left);
  parameters.mac = left;
  if (left.size() != 64 || client.size() != 16 || !counter || !time) return std::nullopt;
  if (parameters.body_digest != "-" && parameters.body_digest.size() != 64) return std::nullopt;
  const auto [end, error] =
      std::from_chars(client.data(), client.data() + client.size(), parameters.id.client, 16);
  if (error != std::errc() || end != client.data() + client.size()) return std::nullopt;
  parameters.id.counter = *counter;
  parameters.time = *time;
  parameters.covered = all.substr(0, all.size() - left.size() - 1);
  return parameters;
}

}  // namespace

std::string body_digest_text(std::string_view body) {
  return body.empty() ? "-" : to_hex(as_view(sha256(body)));
}

Signer::Signer(const Token& key, std::uint64_t client, Incarnation worker)
    : mac_(key), last_{client, 0, worker} {}

Signer::Signature Signer::sign(const SignedRequest& request, std::int64_t now) {
  ++last_.counter;
  Signature signature;
  signature.id = last_;
  std::string parameters;
  if (last_.worker != 0) append_number(parameters.append(kWorker), last_.worker);
  append_id(parameters.append(last_.worker != 0 ? " " : ""), last_.client);
  append_number(parameters.append(" "), last_.counter);
  append_number(parameters.append(" "), now);
  parameters.append(" ").append(request.body_digest);
  std::string text;
  append_request_text(text, request.method, request.target, parameters);
  signature.authorization.append(kScheme).append(parameters).append(" ");
  append_hex(signature.authorization, as_view(mac_({text})));
  return signature;
}

bool Signer::verify(const RequestId& id, const SignedAnswer& answer, std::string_view proof) const {
  std::string expected;
  append_hex(expected, as_view(answer_mac(mac_, id, answer)));
  return equal_in_constant_time(expected, proof);
}

bool ReplayWindow::accept(std::uint64_t counter) {
  if (counter > newest_) {
    const std::uint64_t ahead = counter - newest_;
    seen_ = (ahead < 64 ? seen_ << ahead : 0) | 1;
    newest_ = counter;
    return true;
  }
  const std::uint64_t behind = newest_ - counter;
  if (behind >= 64 || counter == 0) return false;
  const std::uint64_t bit = std::uint64_t{1} << behind;
  if ((seen_ & bit) != 0) return false;
  seen_ |= bit;
  return true;
}

Verifier::Verifier(const Token& job_key, std::int64_t started, FindWorker find_worker)
    : job_key_(job_key), mac_(job_key), started_(started), find_worker_(std::move(find_worker)) {}

std::optional<KnownWorker> Verifier::find(Incarnation worker) const {
  return worker == 0 || !find_worker_ ? std::nullopt : find_worker_(worker);
}

const Mac* Verifier::mac_of(Incarnation worker, const std::optional<KnownWorker>& known) {
  if (worker == 0) return &mac_;
  if (!known) return nullptr;
  auto found = workers_.find(worker);
  if (found == workers_.end()) {
    found = workers_.emplace(worker, Mac(worker_credential(job_key_, known->name, worker))).first;
  }
  return &found->second;
}

Verifier::Verdict Verifier::verify(std::string_view method, std::string_view target,
                                   std::string_view authorization, std::int64_t now) {
  Verdict verdict;
  if (authorization.empty()) {
    verdict.reason = "the request is not signed with a key of the job";
    return verdict;
  }

  const auto parameters = parse_authorization(authorization);
  if (!parameters) {
    verdict.reason =
        "the Authorization header is not of the form HVD1 [worker-incarnation] client counter time "
        "body mac";
    return verdict;
  }

  const auto worker = find(parameters->id.worker);
  const Mac* const mac = mac_of(parameters->id.worker, worker);
  if (mac == nullptr) {
    verdict.reason = "the job has no worker of this incarnation";
    return verdict;
  }

  text_.clear();
  append_request_text(text_, method, target, parameters->covered);
  const Digest digest = (*mac)({text_});
  text_.clear();
  append_hex(text_, as_view(digest));
  if (!equal_in_constant_time(text_, parameters->mac)) {
    verdict.reason =
        "the signature is wrong: the sender holds another token, or the request was "
        "changed on its way";
    return verdict;
  }

  verdict.id = parameters->id;
  verdict.body_digest = parameters->body_digest;
  if (worker && worker->has_ended) {
    verdict.outcome = Outcome::ended;
    verdict.reason = cat("the credential of worker ", worker->name, ", incarnation ",
                         verdict.id.worker, ", has ended with that worker");
    return verdict;
  }

  if (parameters->time > now + kTimeWindow || parameters->time < now - kTimeWindow ||
      parameters->time < started_) {
    verdict.outcome = Outcome::wrong_time;
    verdict.reason = "the request's time is too far from the server's, or before it started";
    return verdict;
  }

  auto& client = clients_[{verdict.id.worker, verdict.id.client}];
  if (!client.window.accept(verdict.id.counter)) {
    verdict.outcome = Outcome::repeated;
    verdict.reason = "the request was received before, or is too old to tell: it was replayed";
    return verdict;
  }
  client.newest_time = std::max(client.newest_time, parameters->time);
  verdict.outcome = Outcome::accepted;
  return verdict;
}

void Verifier::prove(const RequestId& id, const SignedAnswer& answer, std::string& out) {
  const Mac* const mac = mac_of(id.worker, find(id.worker));
  if (mac != nullptr) append_hex(out, as_view(answer_mac(*mac, id, answer)));
}

bool Verifier::has_ended(Incarnation worker) const {
  const auto known = find(worker);
  return known && known->has_ended;
}

void Verifier::forget_old(std::int64_t now) {
  std::erase_if(clients_, [now](const auto& client) {
    return client.second.newest_time < now - kTimeWindow;
  });
  std::erase_if(workers_, [this](const auto& worker) {
    const auto known = find(worker.first);
    return !known || known->has_ended;
  });
}

}  // namespace hvd::rendezvous
