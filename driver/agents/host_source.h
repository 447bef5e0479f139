// Tells an elastic job its hosts: the user's list, once, or the output of a discovery script
// (discovery/poll.h), again and again, and for each of them whether it is this machine; and those
// whose agents join by themselves (joining_hosts.h).
//
// Owned by the driver; every call and callback on its thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "discovery/hosts.h"
#include "driver/core/agent_handle.h"
#include "driver/core/job_spec.h"
#include "driver/job/job_io.h"
#include "driver/join/join_tokens.h"

namespace hvd::driver {

// A host without a number of slots gets `default_slots`; 0: its agent reports the number.
HostSlots slots_of(const discovery::Host& host, int default_slots);

class HostSource {
 public:
  struct Callbacks {
    std::function<void(std::vector<event::FoundHost> hosts)> on_found;  // each new answer
    std::function<void(std::string_view)> on_warning;                   // one line
    std::function<void(std::string_view)> on_notice;                    // one line
    // The agent of a host that was expected is here: take_agent() gives it.
    std::function<void(const std::string& host)> on_returned;
    // There will be no answer; the last callback.
    std::function<void(std::string message)> on_failed;
  };

  // Begins at once; the callbacks come later. `hosts` are the user's list, which is ignored with a
  // script. `spec` is that of an elastic job, and outlives this, as `tokens` do, by which agents
  // may join.
  HostSource(boost::asio::io_context& io, const JobSpec& spec, join::JoinTokens& tokens,
             std::vector<HostSlots> hosts, Callbacks callbacks);
  ~HostSource();  // kills a running script; there are no callbacks afterwards
  HostSource(const HostSource&) = delete;
  HostSource& operator=(const HostSource&) = delete;

  // The agent of this host joins by itself; the job cannot start it.
  bool joins(const std::string& host) const;
  // The agent of this host had joined an earlier driver of the job. To be called at once.
  void expect(const std::string& host, int slots);
  // It has not come yet.
  bool is_expected(const std::string& host) const;
  // The agent of a host that has joined. Nothing if it has ended meanwhile.
  std::optional<AgentConnection> take_agent(const std::string& host);
  // The session with this host's agent is over: another one may join in its place.
  void agent_ended(const std::string& host);
  // The job has ended: agents that wait for their turn end with this exit code. `done` is called
  // once they have ended, or soon after; it is the last callback.
  void close(std::uint8_t exit_code, std::function<void()> done);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hvd::driver
