// The hosts of an elastic job whose agents join by themselves, at any time: before the job runs,
// while it runs, and again after they were lost. Listens as long as it exists. An agent that has
// joined waits here until the job takes it, or until it is lost: its tunnel watches over it.
//
// Owned by the driver; every call and callback on its thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/status.h"
#include "driver/core/agent_handle.h"
#include "driver/core/end_watch.h"
#include "driver/core/job_spec.h"
#include "driver/job/plan.h"
#include "driver/join/join_server.h"

namespace hvd::driver {

class JoiningHosts {
 public:
  struct Callbacks {
    // Whether the job has a host of this name already that it reaches by itself.
    std::function<bool(const std::string& host)> is_taken;
    std::function<void()> on_change;  // hosts() has changed
    // The agent of a host that was expected is here: take() gives it.
    std::function<void(const std::string& host)> on_returned;
    std::function<void(std::string_view text)> on_notice;
    std::function<void(std::string_view text)> on_warning;
  };

  // `tokens` outlive this.
  JoiningHosts(boost::asio::io_context& io, const JoinSpec& spec, join::JoinTokens& tokens,
               Callbacks callbacks);
  ~JoiningHosts();
  JoiningHosts(const JoiningHosts&) = delete;
  JoiningHosts& operator=(const JoiningHosts&) = delete;

  // Begins to listen. The error names the address.
  Status start();
  SocketAddress address() const { return server_->address(); }

  // A host whose agent had joined an earlier driver of the job, and is about to join again. It
  // counts among hosts(), until ended() says that it is waited for no longer. Before start().
  void expect(const std::string& host, int slots);
  bool is_expected(const std::string& host) const;
  // Those whose agents are there, in the order in which they have first joined.
  std::vector<HostSlots> hosts() const;
  // This host's agents join, now or in the past.
  bool joins(const std::string& host) const { return hosts_.contains(host); }
  // The agent of a host that has joined, for the job to use. Nothing if it waits here no more.
  std::optional<AgentConnection> take(const std::string& host);
  // The agent that was taken has ended: another one may join in its place.
  void ended(const std::string& host);
  // The job has ended: agents that wait here end with this exit code, and none may join any more.
  // Calls `done` once they have ended, or soon after; there are no other callbacks from now on.
  void dismiss(std::uint8_t exit_code, std::function<void()> done);

 private:
  enum class State { absent, expected, waiting, taken };
  struct JoinedHost {
    State state = State::absent;
    int slots = 1;
    std::size_t place = 0;    // among all, from the first that ever joined; it is kept
    std::uint64_t times = 0;  // that an agent has joined
    AgentConnection connection;
    std::unique_ptr<EndWatch> end_watch;
  };

  Status admit(const std::string& host, const std::vector<std::string>& labels) const;
  void on_joined(join::JoinedAgent agent);
  void on_ended_while_waiting(const std::string& host, std::uint64_t times);
  bool any_waiting() const;

  boost::asio::io_context& io_;
  Callbacks callbacks_;
  const std::vector<std::string> required_labels_;
  std::map<std::string, JoinedHost> hosts_;
  std::function<void()> dismissed_;  // set: the job has ended
  boost::asio::steady_timer dismissal_limit_;
  std::unique_ptr<join::JoinServer> server_;
};

}  // namespace hvd::driver
