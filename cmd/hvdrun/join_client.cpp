#include "cmd/hvdrun/join_client.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <functional>
#include <future>
#include <memory>
#include <netdb.h>
#include <optional>
#include <poll.h>
#include <random>
#include <string>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <thread>
#include <utility>
#include <variant>

#include "base/clock.h"
#include "base/machine/capacity.h"
#include "base/machine/machine.h"
#include "base/machine/own_time.h"
#include "base/protocol/join_link.h"
#include "base/security/munge.h"
#include "base/socket.h"
#include "base/text.h"
#include "base/threads.h"
#include "base/versions.h"
#include "rendezvous/access.h"

namespace hvd::cli {
namespace {

constexpr std::chrono::milliseconds kFirstPause{100};
// The last attempt begins so long before the deadline.
constexpr std::chrono::milliseconds kLastAttempt{200};
constexpr std::chrono::seconds kSilentLookup{2};
constexpr std::chrono::seconds kLookupLimit{10};
constexpr std::chrono::seconds kConnectLimit{10};
constexpr std::chrono::seconds kAnswerLimit{30};
// For each address, if there are others: a process that is stopped accepts connections as well.
constexpr std::chrono::seconds kConnectLimitOfMany{2};
constexpr std::chrono::seconds kAnswerLimitOfMany{5};
constexpr std::size_t kMaxAnswer = 64 << 10;

using Say = std::function<void(std::string_view)>;

// Why an attempt has failed.
struct JoinFailure {
  Status why;
  bool final = false;
};
template <typename T>
using Attempt = std::variant<T, JoinFailure>;

struct AddressesFreed {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, AddressesFreed>;

Result<Addresses> resolve(const JoinAddress& where) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error =
      ::getaddrinfo(where.host.c_str(), std::to_string(where.port).c_str(), &hints, &list);
  if (error == EAI_SYSTEM) return Status::from_errno(cat("resolve ", where.host), errno);
  if (error != 0) {
    return Status(Code::unavailable, cat("resolve ", where.host, ": ", ::gai_strerror(error)));
  }
  return Addresses(list);
}

// A name service may take any time, and the lookup cannot be interrupted: it has a thread of its
// own, which is left behind at the deadline.
Result<Addresses> resolve_until(const JoinAddress& where, TimePoint deadline, const Say& say) {
  const auto answer = std::make_shared<std::promise<Result<Addresses>>>();
  auto answered = answer->get_future();
  ThreadGroup thread;
  HVD_RETURN_IF_ERROR(thread.start([where, answer] { answer->set_value(resolve(where)); }));
  if (answered.wait_for(kSilentLookup) != std::future_status::ready) {
    say(cat("waiting for the name service to answer for ", where.host));
  }

  if (answered.wait_until(deadline) != std::future_status::ready) {
    thread.join_until(Clock::now());
    return Status(Code::deadline_exceeded,
                  cat("resolve ", where.host, ": the name service did not answer in time"));
  }
  thread.join();
  return answered.get();
}

// Drives the TLS session until `done`.
template <typename Done>
Status exchange(int fd, TlsSession& tls, TimePoint deadline, Done done) {
  std::array<char, 4096> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  std::size_t total = 0;
  for (;;) {
    HVD_RETURN_IF_ERROR(send_all(fd, tls.take_outgoing(), deadline));
    if (done()) return {};
    if (tls.is_closed()) return {Code::unavailable, "it closed the connection"};
    HVD_RETURN_IF_ERROR(wait_for(fd, POLLIN, deadline).with_context("wait for an answer"));
    const ssize_t got = ::recv(fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) return Status::from_errno("receive", errno);
    if (got == 0) return {Code::unavailable, "it closed the connection"};
    total += static_cast<std::size_t>(got);
    if (total > kMaxAnswer) return {Code::data_loss, "its answer is too long"};
    if (Status said = tls.receive({buffer.data(), static_cast<std::size_t>(got)}); !said.ok()) {
      // The alert tells the other side why; the attempt fails in any case.
      static_cast<void>(send_all(fd, tls.take_outgoing(), deadline));
      return said;
    }
  }
}

// A connection to an hvdrun that has proved the token.
struct Connection {
  UniqueFd fd;
  TlsSession tls;
};

Result<Connection> handshake(UniqueFd fd, const TlsPsk& key, TimePoint deadline) {
  auto tls = key.session();
  if (!tls.ok()) return tls.status();
  HVD_RETURN_IF_ERROR(tls->receive({}));
  HVD_RETURN_IF_ERROR(exchange(fd.get(), *tls, deadline, [&] { return tls->established(); }));
  return Connection{std::move(fd), std::move(*tls)};
}

// The addresses of all names. The error is that of the last name, if no name has any.
Result<std::vector<Addresses>> resolve_all(const std::vector<JoinAddress>& names,
                                           TimePoint deadline, const Say& say) {
  std::vector<Addresses> found;
  Status failure;
  for (const auto& name : names) {
    auto addresses = resolve_until(name, std::min(deadline, Clock::now() + kLookupLimit), say);
    if (addresses.ok()) {
      found.push_back(*std::move(addresses));
    } else {
      failure = addresses.status();
    }
  }
  if (found.empty()) return failure;
  return found;
}

// Another job may listen at one of the addresses: each of them is tried. The failure is final if
// all that have answered hold another token.
Attempt<Connection> connect_any(const std::vector<JoinAddress>& names, const TlsPsk& key,
                                TimePoint deadline, const Say& say) {
  auto found = resolve_all(names, deadline, say);
  if (!found.ok()) return JoinFailure{found.status()};
  const std::string who = to_text(names);
  const std::string what = cat("connect to ", who);
  JoinFailure failure{Status(Code::unavailable, cat(what, ": the name has no address"))};
  std::optional<Status> other_token;
  // A name that has no address now may have one later.
  bool may_change = found->size() < names.size();
  const bool is_one = found->size() == 1 && found->front() && found->front()->ai_next == nullptr;
  const auto limit = is_one ? kConnectLimit : kConnectLimitOfMany;
  const auto answer_limit = is_one ? kAnswerLimit : kAnswerLimitOfMany;
  for (const auto& addresses : *found) {
    for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
      auto fd = connect_tcp(one->ai_addr, one->ai_addrlen, what,
                            std::min(deadline, Clock::now() + limit));
      if (!fd.ok()) {
        failure.why = fd.status();
        continue;
      }
      auto connection =
          handshake(std::move(*fd), key, std::min(deadline, Clock::now() + answer_limit));
      if (connection.ok()) return std::move(*connection);
      failure.why = connection.status().with_context(who);
      if (connection.status().code() == Code::unauthenticated) {
        other_token = failure.why;
      } else {
        may_change = true;
      }
    }
  }
  if (other_token && !may_change) return JoinFailure{*other_token, true};
  return failure;
}

// The first message of hvdrun on this connection.
Result<Frame> receive_answer(Connection& connection, FrameDecoder& decoder, TimePoint deadline) {
  std::optional<Frame> answer;
  Status damage;
  HVD_RETURN_IF_ERROR(exchange(connection.fd.get(), connection.tls, deadline, [&] {
    decoder.feed(connection.tls.take_received());
    auto frame = decoder.next();
    if (!frame.ok()) {
      damage = frame.status();
      return true;
    }
    answer = std::move(*frame);
    return answer.has_value();
  }));
  HVD_RETURN_IF_ERROR(damage);
  return std::move(*answer);
}

Attempt<Joined> join_once(const AgentArguments& arguments, const PskKey& token,
                          const std::string& host, const std::string& pass, TimePoint deadline,
                          const Say& say) {
  const std::string who = to_text(arguments.join);
  const auto join_failure = [&](const Status& why) { return JoinFailure{why.with_context(who)}; };
  const auto key = TlsPsk::client(token);
  if (!key.ok()) return JoinFailure{key.status(), true};
  auto attempt = connect_any(arguments.join, *key, deadline, say);
  if (auto* const failure = std::get_if<JoinFailure>(&attempt)) {
    if (failure->final && !token.id.empty()) {
      failure->why = Status(failure->why.code(),
                            cat(failure->why.message(), "; join token ", token.id,
                                " may be of another job, or of an earlier run of this one"));
    }
    return *failure;
  }
  auto& connection = std::get<Connection>(attempt);

  const join_link::Join join{
      .build_id = std::string(build_id()),
      .host = host,
      .slots = arguments.slots > 0 ? arguments.slots : slots_by(capacity_of_this_machine()),
      .labels = arguments.labels,
      .pass = pass};
  const Status sent = connection.tls.send(join.encode());
  if (!sent.ok()) return join_failure(sent);
  FrameDecoder decoder(kMaxAnswer);
  const auto answer =
      receive_answer(connection, decoder, std::min(deadline, Clock::now() + kAnswerLimit));
  if (!answer.ok()) return join_failure(answer.status());

  if (answer->kind == static_cast<std::uint16_t>(join_link::Kind::refused)) {
    const auto refused = join_link::Refused::decode(answer->payload);
    if (!refused.ok()) return join_failure(refused.status());
    return JoinFailure{{Code::permission_denied,
                        cat(who, " does not let this machine in as ", host, ": ", refused->reason)},
                       refused->final};
  }
  if (answer->kind != static_cast<std::uint16_t>(join_link::Kind::accepted)) {
    return join_failure({Code::data_loss, "it gave no answer that was expected"});
  }
  const auto accepted = join_link::Accepted::decode(answer->payload);
  if (!accepted.ok()) return join_failure(accepted.status());
  return Joined{std::move(connection.fd),
                std::move(connection.tls),
                decoder.take_rest(),
                std::chrono::milliseconds(accepted->silence_ms),
                std::chrono::milliseconds(accepted->hold_ms),
                accepted->pass};
}

// The token of the job, or a join token. The token that srun hands an agent on its standard input
// is sealed.
Result<PskKey> join_token(const std::string& path) {
  auto text = rendezvous::read_token_file(path);
  if (!text.ok()) return text.status();
  if (is_sealed_with_munge(*text)) {
    text = open_sealed_with_munge(*text);
    if (!text.ok()) return text.status();
  }
  auto token = psk_key_from_text(*text);
  if (!token.ok()) return token.status().with_context(cat("token file ", path));
  return token;
}

Attempt<Joined> join_with(const Result<PskKey>& token, const AgentArguments& arguments,
                          const std::string& host, const std::string& pass, TimePoint deadline,
                          const Say& say) {
  if (!token.ok()) {
    // On a shared file system, that hvdrun may be about to create it.
    return JoinFailure{token.status(), token.status().code() != Code::not_found};
  }
  return join_once(arguments, *token, host, pass, std::max(deadline, Clock::now() + kFirstPause),
                   say);
}

Result<std::string> own_name() {
  std::string name = machine_name();
  if (name.empty()) {
    return Status::from_errno("ask for this machine's name (--host gives one)", errno);
  }
  return name;
}

}  // namespace

std::string to_text(const std::vector<JoinAddress>& addresses) {
  std::string text;
  for (const auto& [host, port] : addresses) {
    text += cat(text.empty() ? "" : ", ", SocketAddress{host, port}.to_string());
  }
  return text;
}

Result<Joined> JoinClient::join_within(std::chrono::milliseconds limit, Duration longest_pause,
                                       const std::atomic<bool>* stops) {
  std::string host = arguments_.host;
  if (host.empty()) {
    auto name = own_name();
    if (!name.ok()) return name.status();
    host = std::move(*name);
  }

  const TimePoint deadline = Clock::now() + limit;
  // Many machines may be waiting for one hvdrun: they do not all come at the same moments.
  std::mt19937 random(std::random_device{}());
  std::uniform_real_distribution<double> share(0.5, 1.0);
  const auto part_of = [&](Duration pause) {
    return std::chrono::duration_cast<Duration>(pause * share(random));
  };

  // A job that has just been lost may not be ready for the next attempt.
  if (std::exchange(was_called_, true)) std::this_thread::sleep_for(part_of(kFirstPause));

  std::string said;
  for (Duration pause = kFirstPause;; pause = std::min(pause * 2, longest_pause)) {
    // The file may be replaced meanwhile; a pipe cannot be read twice.
    if (!token_ || !rendezvous::is_inherited(arguments_.token_file)) {
      token_ = join_token(arguments_.token_file);
    }

    auto attempt = join_with(*token_, arguments_, host, pass_, deadline, say_);
    if (auto* const joined = std::get_if<Joined>(&attempt)) {
      pass_ = joined->pass;
      return std::move(*joined);
    }
    auto& join_failure = std::get<JoinFailure>(attempt);
    const bool is_other_job = join_failure.why.code() == Code::unauthenticated;
    if (join_failure.final && !(holds_ && is_other_job)) return join_failure.why;
    if (stops != nullptr && *stops) return Status(Code::aborted, "it is not to join any more");

    const Duration left = deadline - Clock::now();
    if (left <= kLastAttempt) {
      return join_failure.why.with_context("could not join in time (--join-timeout)");
    }
    const Duration next = std::min(part_of(pause), left - kLastAttempt);
    if (join_failure.why.message() != said) {
      said = join_failure.why.message();
      say_(cat(said, "; trying again"));
    }
    std::this_thread::sleep_for(next);
  }
}

namespace {

class TurnWait {
 public:
  TurnWait(Joined& joined, int signals)
      : joined_(joined), signals_(signals), silence_(joined.silence, Clock::now()) {}

  Turn run() {
    frames_.feed(std::exchange(joined_.received, {}));
    for (;;) {
      frames_.feed(joined_.tls.take_received());
      if (const auto turn = take_frames()) return *turn;
      if (joined_.tls.is_closed()) return lost("it closed the connection");
      if (const auto turn = wait()) return *turn;
    }
  }

 private:
  static Turn lost(std::string why) { return {Turn::How::lost, std::move(why)}; }

  std::optional<Turn> take_frames() {
    for (;;) {
      const auto frame = frames_.next();
      if (!frame.ok()) return lost(frame.status().message());
      if (!frame->has_value()) return std::nullopt;

      std::optional<Turn> turn;
      std::string answer;
      switch (static_cast<join_link::Kind>((*frame)->kind)) {
        case join_link::Kind::heartbeat:
          answer = join_link::HeartbeatAck{}.encode();
          break;
        case join_link::Kind::begin:
          joined_.received = frames_.take_rest();
          answer = join_link::Begun{}.encode();
          turn = Turn{Turn::How::begun};
          break;
        case join_link::Kind::dismissed:
          return Turn{Turn::How::dismissed};
        default:
          return lost(cat("it sent an unexpected message of kind ", (*frame)->kind));
      }
      Status sent = joined_.tls.send(answer);
      if (sent.ok()) sent = send_outgoing();
      if (!sent.ok()) return lost(sent.message());
      if (turn) return turn;
    }
  }

  Status send_outgoing() {
    return send_all(joined_.socket.get(), joined_.tls.take_outgoing(),
                    Clock::now() + joined_.silence);
  }

  // Returns after a pace of the silence at the latest.
  std::optional<Turn> wait() {
    std::array<pollfd, 2> polled{pollfd{joined_.socket.get(), POLLIN, 0},
                                 pollfd{signals_, POLLIN, 0}};
    const TimePoint until = Clock::now() + silence_.pace();
    static_cast<void>(
        ::poll(polled.data(), polled.size(), milliseconds_until(until, Clock::now())));

    const TimePoint now = Clock::now();
    silence_.look(now);
    if (polled[1].revents != 0) {
      if (auto turn = take_signal()) return turn;
    }
    if (polled[0].revents != 0) return receive(now);
    if (!silence_.is_too_long(now)) return std::nullopt;
    return lost(cat("it gave no sign of life for ", seconds_text(joined_.silence)));
  }

  std::optional<Turn> take_signal() const {
    signalfd_siginfo info{};
    if (::read(signals_, &info, sizeof(info)) != static_cast<ssize_t>(sizeof(info)) ||
        info.ssi_signo == SIGUSR1) {
      return std::nullopt;
    }
    return Turn{Turn::How::signalled, {}, static_cast<int>(info.ssi_signo)};
  }

  std::optional<Turn> receive(TimePoint now) {
    const ssize_t got = ::recv(joined_.socket.get(), buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return std::nullopt;
    if (got < 0) return lost(Status::from_errno("it lost the connection", errno).message());
    if (got == 0) return lost("it closed the connection");
    silence_.hear(now);
    const Status said = joined_.tls.receive({buffer_.data(), static_cast<std::size_t>(got)});
    if (!said.ok()) return lost(said.message());
    return std::nullopt;
  }

  Joined& joined_;
  const int signals_;
  PeerSilence silence_;
  FrameDecoder frames_;
  std::array<char, 4096> buffer_{};
};

}  // namespace

Turn wait_for_turn(Joined& joined, int signals) { return TurnWait(joined, signals).run(); }

}  // namespace hvd::cli
