#include "rendezvous/client.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "rendezvous/client_connection.h"
#include "rendezvous/requests.h"

namespace hvd::rendezvous {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLongestPoll{30'000};  // of one blocking request; the next one follows
constexpr milliseconds kPollGrace{5'000};     // for its answer to come, before it is given up

// How long to let the server wait in one request.
milliseconds poll_time(TimePoint deadline, TimePoint now) {
  if (deadline >= later(now, kLongestPoll)) return kLongestPoll;
  return std::max(std::chrono::ceil<milliseconds>(deadline - now), milliseconds(0));
}

std::string target_of(std::string_view scope, std::string_view key) {
  return cat("/", percent_encode(scope), "/", percent_encode(key));
}

std::string wait_option(milliseconds wait) {
  const std::string fraction = std::to_string(1000 + wait.count() % 1000).substr(1);
  return cat("wait=", wait.count() / 1000, ".", fraction);
}

}  // namespace

Client::Client(ClientOptions options, const Token& key)
    : connection_(std::make_unique<Connection>(std::move(options), key)) {}
Client::~Client() = default;
void Client::cancel() { connection_->cancel(); }
bool Client::is_cancelled() const { return connection_->is_cancelled(); }

Result<std::uint64_t> Client::put(std::string_view scope, std::string_view key,
                                  std::string_view value) {
  const std::string target = target_of(scope, key);
  const Connection::Request request{"PUT", target, value, cat("put ", target)};
  const auto answer = connection_->ask(request, connection_->request_deadline());
  HVD_RETURN_IF_ERROR(answer.status());
  HVD_RETURN_IF_ERROR(connection_->judge(*answer, request));
  return answer->version;
}

Result<Versioned> Client::get(std::string_view scope, std::string_view key,
                              const GivesUp& gives_up) {
  const std::string target = target_of(scope, key);
  const Connection::Request request{"GET", target, "", cat("get ", target), gives_up};
  auto answer = connection_->ask(request, connection_->request_deadline());
  HVD_RETURN_IF_ERROR(answer.status());
  HVD_RETURN_IF_ERROR(connection_->judge(*answer, request));
  return Versioned{std::move(answer->body), answer->version};
}

Result<Versioned> Client::wait(std::string_view scope, std::string_view key, TimePoint deadline,
                               std::uint64_t newer_than) {
  const std::string target = target_of(scope, key);
  for (;;) {
    const TimePoint now = Clock::now();
    const milliseconds poll = poll_time(deadline, now);
    const Connection::Request request{
        "GET",
        cat(target, "?", wait_option(poll), newer_than == 0 ? "" : cat("&newer=", newer_than)), "",
        cat("wait for ", target)};
    auto answer = connection_->ask(request, std::min(deadline, later(now, poll + kPollGrace)));
    const bool over = Clock::now() >= deadline;
    if (answer.ok() && answer->status != 404) {
      HVD_RETURN_IF_ERROR(connection_->judge(*answer, request));
      return Versioned{std::move(answer->body), answer->version};
    }
    if (!answer.ok() && (over || answer.status().code() != Code::unavailable)) {
      return answer.status();
    }
    if (over) {
      return Status(Code::deadline_exceeded,
                    connection_->describe(request, "it was not written in time"));
    }
  }
}

Status Client::erase(std::string_view scope, std::string_view key) {
  const std::string target = target_of(scope, key);
  const Connection::Request request{"DELETE", target, "", cat("erase ", target)};
  const auto answer = connection_->ask(request, connection_->request_deadline());
  HVD_RETURN_IF_ERROR(answer.status());
  return connection_->judge(*answer, request);
}

Result<std::uint64_t> Client::compare_and_set(std::string_view scope, std::string_view key,
                                              std::string_view value, std::uint64_t expected,
                                              const GivesUp& gives_up) {
  const std::string target = target_of(scope, key);
  const Connection::Request request{"PUT", cat(target, "?expected=", expected), value,
                                    cat("compare and set ", target), gives_up};
  int attempts = 0;
  const auto answer = connection_->ask(request, connection_->request_deadline(), &attempts);
  HVD_RETURN_IF_ERROR(answer.status());
  if (answer->status == 412 && attempts > 1) {
    // The answer to the first attempt was lost. If the key now holds our value, it is ours that was
    // written: what the caller asked for has happened.
    auto current = get(scope, key, gives_up);
    if (current.ok() && current->version > expected && current->value == value) {
      return current->version;
    }
  }
  HVD_RETURN_IF_ERROR(connection_->judge(*answer, request));
  return answer->version;
}

Status Client::put_many(std::string_view scope, const std::map<std::string, std::string>& values) {
  const std::string body = encode_bulk_write(values);
  const std::string shown = percent_encode(scope);
  const Connection::Request request{"POST", cat("/", shown, "?write"), body,
                                    cat("put ", values.size(), " keys in /", shown)};
  const auto answer = connection_->ask(request, connection_->request_deadline());
  HVD_RETURN_IF_ERROR(answer.status());
  return connection_->judge(*answer, request);
}

Result<std::map<std::string, std::string>> Client::wait_many(std::string_view scope,
                                                             const std::vector<std::string>& keys,
                                                             TimePoint deadline,
                                                             std::vector<std::string>* absent) {
  const std::string body = encode_bulk_keys(keys);
  const std::string shown = percent_encode(scope);

  for (;;) {
    const TimePoint now = Clock::now();
    const milliseconds poll = poll_time(deadline, now);
    const Connection::Request request{"POST", cat("/", shown, "?read&", wait_option(poll)), body,
                                      cat("wait for ", keys.size(), " keys in /", shown)};
    const auto answer =
        connection_->ask(request, std::min(deadline, later(now, poll + kPollGrace)));

    const bool over = Clock::now() >= deadline;
    if (!answer.ok()) {
      if (over || answer.status().code() != Code::unavailable) return answer.status();
      continue;
    }

    HVD_RETURN_IF_ERROR(connection_->judge(*answer, request));
    auto values = decode_bulk_values(answer->body);
    HVD_RETURN_IF_ERROR(values.status());
    if (values->size() != keys.size()) {
      return Status(Code::data_loss, connection_->describe(request, "the answer has other keys"));
    }

    std::map<std::string, std::string> found;
    std::vector<std::string> missing;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (auto& value = (*values)[i]) {
        found.emplace(keys[i], std::move(value->value));
      } else {
        missing.push_back(keys[i]);
      }
    }

    if (missing.empty()) return found;
    if (over) {
      if (absent != nullptr) *absent = missing;
      return Status(
          Code::deadline_exceeded,
          connection_->describe(request, cat("not written in time: ", join(missing, ", "))));
    }
  }
}

}  // namespace hvd::rendezvous
