// Joins the job of another machine's hvdrun: resolves, connects, proves the token, names this
// machine, waits to be admitted, and then for its turn (base/protocol/join_link.h). Blocks; for one
// thread.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/security/tls_psk.h"
#include "base/status.h"
#include "cmd/hvdrun/options.h"

namespace hvd::cli {

struct Joined {
  UniqueFd socket;  // non-blocking
  TlsSession tls;
  std::string received;                       // bytes that came with the answer
  std::chrono::milliseconds silence{30'000};  // of hvdrun, after which it is lost
  std::chrono::milliseconds hold{0};          // for which the workers outlive the connection
  std::string pass = {};                      // for the next hvdrun of the job
};

// "10.0.0.1:4000", or several of them.
std::string to_text(const std::vector<JoinAddress>& addresses);

// A copy knows what this knows, and is for another thread.
class JoinClient {
 public:
  // `say` gets a line whenever the reason for waiting has changed.
  JoinClient(AgentArguments arguments, std::function<void(std::string_view)> say)
      : arguments_(std::move(arguments)), say_(std::move(say)) {}

  // Retries with pauses until join_timeout, which begins now, is over or the job answers that
  // another attempt would not help. May be called again when the job was lost.
  Result<Joined> join() { return join_within(arguments_.join_timeout, kLongestPause); }
  // The same for an agent that holds workers of the job. Another job at one of the addresses ends
  // nothing: the next hvdrun of this one may come to another address. With `stops` set, by another
  // thread, this returns soon.
  Result<Joined> join_again(std::chrono::milliseconds hold,
                            const std::atomic<bool>* stops = nullptr) {
    holds_ = true;
    return join_within(hold, kLongestPauseWithWorkers, stops);
  }
  // Another client has joined in the place of this one.
  void has_joined(const Joined& joined) { pass_ = joined.pass; }

 private:
  static constexpr std::chrono::milliseconds kLongestPause{5'000};
  static constexpr std::chrono::milliseconds kLongestPauseWithWorkers{300};
  Result<Joined> join_within(std::chrono::milliseconds limit, Duration longest_pause,
                             const std::atomic<bool>* stops = nullptr);

  const AgentArguments arguments_;
  const std::function<void(std::string_view)> say_;
  std::optional<Result<PskKey>> token_;
  std::string pass_;  // of the hvdrun that was joined last
  bool was_called_ = false;
  bool holds_ = false;
};

struct Turn {
  enum class How {
    begun,      // `received` has the bytes for the agent
    dismissed,  // the job has no use for it any more
    lost,       // `why` tells how: hvdrun may be joined again
    signalled,
  };
  How how = How::lost;
  std::string why = {};
  int signal = 0;
};

// Waits for the turn of an agent that has joined, and answers hvdrun's heartbeats. A signal other
// than SIGUSR1 at the signalfd `signals`, which may be -1, ends the wait. Time in which this
// process was stopped is no silence of hvdrun.
Turn wait_for_turn(Joined& joined, int signals);

}  // namespace hvd::cli
