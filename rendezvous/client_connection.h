// One client's connection to the rendezvous server, below the single calls: one signed request in,
// one checked answer out, tried again with a growing pause while the server cannot be reached. For
// one thread, but for cancel(), which is safe from any.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/security/crypto.h"
#include "base/status.h"
#include "rendezvous/auth.h"
#include "rendezvous/client.h"
#include "rendezvous/http_head.h"

namespace hvd::rendezvous {

class Client::Connection {
 public:
  struct Answer {
    unsigned status = 0;
    std::uint64_t version = 0;
    std::int64_t time = 0;
    bool proved = false;  // it comes from a server that holds the token
    std::string body;
  };

  Connection(ClientOptions options, const Token& key);

  void cancel();
  bool is_cancelled() const { return cancelled_; }

  // The request to send: `what` describes it for error messages ("put /world/current").
  struct Request {
    std::string_view method;
    std::string target;
    std::string_view body;
    std::string what;
    GivesUp gives_up = {};
  };

  // Sends until an answer comes, at the latest until the deadline. The answer is a server's that
  // holds the token, with any status but those that ask to come again. `attempts` counts how often
  // the request may have reached the server.
  Result<Answer> ask(const Request& request, TimePoint deadline, int* attempts = nullptr);

  TimePoint request_deadline() const { return Clock::now() + options_.request_timeout; }

  // The answer as a Status: ok for 200.
  Status judge(const Answer& answer, const Request& request) const;
  std::string describe(const Request& request, std::string_view what_happened) const;

 private:
  Result<Answer> ask_once(const Request& request, TimePoint deadline, bool& sent);
  void follow_server();
  Status connect(TimePoint deadline);
  Status send(std::string_view bytes, TimePoint deadline);
  Result<std::size_t> receive(char* to, std::size_t size, TimePoint deadline);
  Status receive_answer(ResponseHead& head, std::string& body, TimePoint deadline);
  bool has_given_up() const { return gives_up_ != nullptr && (*gives_up_)(); }
  Result<short> wait_for_socket(short events, TimePoint deadline);
  Status pause(std::chrono::milliseconds time, TimePoint deadline);

  ClientOptions options_;
  SocketAddress server_;
  Signer signer_;
  UniqueFd cancelled_fd_;
  std::atomic<bool> cancelled_ = false;
  UniqueFd socket_;
  const GivesUp* gives_up_ = nullptr;  // of the call in progress; null: never
  std::string received_;               // bytes after the last answer; empty between requests
  std::int64_t clock_offset_ = 0;      // the server's clock less ours, ms
};

// `now + time`, without going past the end of time.
inline TimePoint later(TimePoint now, Duration time) {
  return time > kNever - now ? kNever : now + time;
}

}  // namespace hvd::rendezvous
