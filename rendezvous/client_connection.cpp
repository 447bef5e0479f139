#include "rendezvous/client_connection.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <utility>

#include "base/socket.h"
#include "base/text.h"

namespace hvd::rendezvous {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{5};
constexpr milliseconds kRetryWithoutResources{500};
constexpr milliseconds kLongestPause{1'000};
constexpr milliseconds kAnswerGrace{200};  // after the deadline, for an answer on its way
constexpr milliseconds kLookEvery{100};    // whether the caller has given up
constexpr std::size_t kMaxAnswerHead = std::size_t{16} << 10;
constexpr std::uint64_t kMaxAnswerBody = std::uint64_t{1} << 30;

std::uint64_t random_client() {
  const std::string bytes = random_bytes(sizeof(std::uint64_t));
  std::uint64_t client = 0;
  std::memcpy(&client, bytes.data(), sizeof(client));
  return client;
}

std::int64_t unix_now() {
  return std::chrono::duration_cast<milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string reason_of(unsigned status, std::string_view body) {
  const auto reason = trim(body);
  return cat("status ", status, reason.empty() ? "" : ", ", reason);
}

Code code_of_status(unsigned status) {
  switch (status) {
    case 401:
      return Code::unauthenticated;
    case 403:
      return Code::failed_precondition;
    case 404:
      return Code::not_found;
    case 412:
      return Code::already_exists;
    case 413:
    case 507:
      return Code::resource_exhausted;
    case 408:
    case 503:
      return Code::unavailable;
    default:
      return status < 500 ? Code::invalid_argument : Code::unavailable;
  }
}

}  // namespace

Client::Connection::Connection(ClientOptions options, const Token& key)
    : options_(std::move(options)),
      server_(options_.server ? options_.server() : SocketAddress{options_.host, options_.port}),
      signer_(key, random_client(), options_.worker),
      cancelled_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void Client::Connection::cancel() {
  cancelled_ = true;
  const std::uint64_t one = 1;
  // Nobody reads it: once readable it stays so. It can only fail if it is readable already.
  [[maybe_unused]] const ssize_t written = ::write(cancelled_fd_.get(), &one, sizeof(one));
}

Status Client::Connection::judge(const Answer& answer, const Request& request) const {
  if (answer.status == 200) return {};
  return {code_of_status(answer.status),
          describe(request, cat("refused: ", reason_of(answer.status, answer.body)))};
}

std::string Client::Connection::describe(const Request& request,
                                         std::string_view what_happened) const {
  return cat("rendezvous at ", server_.to_string(), ": ", request.what, ": ", what_happened);
}

Result<short> Client::Connection::wait_for_socket(short events, TimePoint deadline) {
  for (;;) {
    pollfd polled[2] = {{socket_.get(), events, 0}, {cancelled_fd_.get(), POLLIN, 0}};
    const TimePoint now = Clock::now();
    const TimePoint until = gives_up_ != nullptr ? std::min(deadline, now + kLookEvery) : deadline;
    const int ready = ::poll(polled, 2, milliseconds_until(until, now));
    if (cancelled_) return Status(Code::aborted, "cancelled");
    if (ready > 0 && polled[0].revents != 0) return polled[0].revents;
    if (ready < 0 && errno != EINTR) return Status::from_errno("poll", errno);
    if (has_given_up()) return Status(Code::unavailable, "given up");
    if (ready == 0 && Clock::now() >= deadline) {
      return Status(Code::deadline_exceeded, "timed out");
    }
  }
}

Status Client::Connection::pause(milliseconds time, TimePoint deadline) {
  const TimePoint until = std::min(deadline, Clock::now() + time);
  UniqueFd no_socket;  // poll() skips a negative descriptor
  std::swap(no_socket, socket_);
  const Status waited = wait_for_socket(0, until).status();
  return waited.code() == Code::deadline_exceeded ? Status() : waited;
}

Status Client::Connection::connect(TimePoint deadline) {
  received_.clear();
  auto address = raw_address(server_);
  HVD_RETURN_IF_ERROR(address.status());
  auto socket =
      connect_tcp(address->get(), address->size, "connect", deadline, cancelled_fd_.get());
  if (cancelled_) return {Code::aborted, "cancelled"};
  HVD_RETURN_IF_ERROR(socket.status());
  socket_ = std::move(*socket);
  return {};
}

Status Client::Connection::send(std::string_view bytes, TimePoint deadline) {
  while (!bytes.empty()) {
    const ssize_t sent =
        ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      const auto ready = wait_for_socket(POLLIN | POLLOUT, deadline);
      HVD_RETURN_IF_ERROR(ready.status());
      // An answer before the request's end is a refusal; the server reads no further.
      if ((*ready & POLLIN) != 0) return {Code::unavailable, "the server did not read to the end"};
    } else if (errno != EINTR) {
      return {Code::unavailable, std::strerror(errno)};  // NOLINT(concurrency-mt-unsafe)
    }
  }
  return {};
}

Result<std::size_t> Client::Connection::receive(char* to, std::size_t size, TimePoint deadline) {
  for (;;) {
    HVD_RETURN_IF_ERROR(wait_for_socket(POLLIN, deadline).status());
    const ssize_t got = ::recv(socket_.get(), to, size, MSG_DONTWAIT);
    if (got > 0) return static_cast<std::size_t>(got);
    if (got == 0) return Status(Code::unavailable, "the server closed the connection");
    if (errno != EAGAIN && errno != EINTR) {
      return Status(Code::unavailable, std::strerror(errno));  // NOLINT(concurrency-mt-unsafe)
    }
  }
}

Status Client::Connection::receive_answer(ResponseHead& head, std::string& body,
                                          TimePoint deadline) {
  ResponseParser parser(head, kMaxAnswerHead);
  std::size_t used = 0;

  for (;;) {
    std::string reason;
    const auto progress = parser.feed(received_, used, reason);
    if (progress == ResponseParser::Progress::done) break;
    if (progress != ResponseParser::Progress::need_more) {
      return {Code::data_loss,
              cat("the answer is not HTTP/1.1", reason.empty() ? "" : ": ", reason)};
    }
    const std::size_t had = received_.size();
    received_.resize(had + 4096);
    const auto got = receive(received_.data() + had, 4096, deadline);
    received_.resize(had + (got.ok() ? *got : 0));
    HVD_RETURN_IF_ERROR(got.status());
  }

  received_.erase(0, used);
  const std::uint64_t size = head.content_length.value_or(kMaxAnswerBody + 1);
  if (size > kMaxAnswerBody) {
    return {Code::data_loss, "the answer's body has no length, or an impossible one"};
  }
  body = received_.substr(0, size);
  received_.erase(0, body.size());

  while (body.size() < size) {
    const std::size_t had = body.size();
    const std::size_t more = std::min<std::size_t>(size - had, std::size_t{1} << 20);
    body.resize(had + more);
    const auto got = receive(body.data() + had, more, deadline);
    body.resize(had + (got.ok() ? *got : 0));
    HVD_RETURN_IF_ERROR(got.status());
  }
  return {};
}

void Client::Connection::follow_server() {
  if (!options_.server) return;
  SocketAddress server = options_.server();
  if (server == server_) return;
  server_ = std::move(server);
  socket_.reset();
}

Result<Client::Connection::Answer> Client::Connection::ask_once(const Request& request,
                                                                TimePoint deadline, bool& sent) {
  follow_server();
  if (!socket_) {
    HVD_RETURN_IF_ERROR(connect(std::min(deadline, Clock::now() + options_.connect_timeout)));
  }

  const std::string digest = body_digest_text(request.body);
  const auto signature =
      signer_.sign({request.method, request.target, digest}, unix_now() + clock_offset_);
  std::string bytes =
      cat(request.method, " ", request.target, " HTTP/1.1\r\nHost: ", server_.to_string(),
          "\r\nAuthorization: ", signature.authorization, "\r\n");
  if (request.method == "PUT" || request.method == "POST") {
    bytes += cat("Content-Length: ", request.body.size(), "\r\n");
  }
  bytes += "\r\n";

  // A small body goes with the head in one packet; a large one is not copied for that.
  const bool together = request.body.size() <= 16'384;
  if (together) bytes += request.body;
  sent = true;
  Status went = send(bytes, deadline);
  if (went.ok() && !together) went = send(request.body, deadline);
  // A server that refuses does not read the body to its end: its answer may be there all the same.
  if (!went.ok() && went.code() != Code::unavailable) return went;

  ResponseHead head;
  Answer answer;
  const Status received = receive_answer(head, answer.body, deadline);
  if (!received.ok()) return went.ok() ? received : went;
  answer.status = head.status;
  answer.version = head.version;
  answer.time = head.time;

  if (!head.proof.empty()) {
    const SignedAnswer claim{head.status, head.version, head.time, sha256(answer.body)};
    if (!signer_.verify(signature.id, claim, head.proof)) {
      return Status(Code::data_loss, "the answer's signature is wrong");
    }
    answer.proved = true;
  }

  if (!went.ok() || !head.keep_alive || !received_.empty()) socket_.reset();
  return answer;
}

Result<Client::Connection::Answer> Client::Connection::ask(const Request& request,
                                                           TimePoint deadline, int* attempts) {
  const TimePoint begun = Clock::now();
  milliseconds next_pause = kFirstPause;
  bool clock_set = false;
  gives_up_ = request.gives_up ? &request.gives_up : nullptr;

  for (;;) {
    if (cancelled_) return Status(Code::aborted, describe(request, "cancelled"));
    if (has_given_up()) return Status(Code::unavailable, describe(request, "given up"));
    const bool kept = static_cast<bool>(socket_);
    bool sent = false;
    auto answer = ask_once(request, later(deadline, kAnswerGrace), sent);
    if (sent && attempts != nullptr) ++*attempts;
    Status error = answer.status();

    if (answer.ok()) {
      const bool wrong_time = answer->proved && answer->status == 401 && answer->time != 0;
      if (wrong_time && !clock_set) {
        clock_set = true;
        clock_offset_ = answer->time - unix_now();
        // Refused, so it did not reach the store.
        if (attempts != nullptr) --*attempts;
        continue;
      }
      // 408 and 503 come from a server that had to refuse before it knew the client.
      const bool again = answer->status == 408 || answer->status == 503;
      if (answer->proved && !again) return answer;
      if (answer->status == 401) {
        return Status(Code::unauthenticated,
                      describe(request, cat("refused: ", reason_of(answer->status, answer->body))));
      }
      error = again ? Status(Code::unavailable, reason_of(answer->status, answer->body))
                    : Status(Code::unauthenticated,
                             cat("the answer (", reason_of(answer->status, answer->body),
                                 ") is not signed with this client's key"));
    }

    socket_.reset();
    const Code code = error.code();
    if (code == Code::aborted || code == Code::invalid_argument || code == Code::unauthenticated ||
        code == Code::data_loss) {
      return Status(code, describe(request, error.message()));
    }
    // No descriptor, no memory: what this process lacks does not come by asking for long.
    if (code == Code::resource_exhausted && Clock::now() >= begun + kRetryWithoutResources) {
      return Status(code, describe(request, error.message()));
    }
    if (Clock::now() >= deadline) {
      return Status(Code::unavailable,
                    describe(request, cat(error.message(), "; gave up at the deadline")));
    }

    // A kept connection may have been closed as idle just now; only a new one tells more.
    if (kept) continue;
    if (const Status paused = pause(next_pause, deadline); !paused.ok()) {
      return Status(paused.code(), describe(request, paused.message()));
    }
    next_pause = std::min(2 * next_pause, kLongestPause);
  }
}

}  // namespace hvd::rendezvous
