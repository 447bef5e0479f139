// Runs a discovery script again and again, and reports changes of its hosts: the script
// (discovery/script.h) on a timer, its ends judged by discovery/watch.h.
//
// For the thread that runs `io`; callbacks come from there.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "base/status.h"
#include "discovery/hosts.h"

namespace hvd::discovery {

struct PollOptions {
  std::string script;
  int slots_per_host = 0;  // of a host that is printed without a number; 0: it stays without
  std::chrono::milliseconds interval{1'000};  // from the end of a run to the beginning of the next
  std::chrono::milliseconds timeout{10'000};  // of a run
};

struct PollCallbacks {
  std::function<void(std::vector<Host>)> on_hosts;   // the first answer, and every other one
  std::function<void(std::string_view)> on_warning;  // one line
  std::function<void(Status)> on_fatal;              // the last call of all: it does not go on
};

class Poll {
 public:
  // Begins at once.
  Poll(boost::asio::io_context& io, PollOptions options, PollCallbacks callbacks);
  // Ends a run that is under way. Calls nobody any more.
  ~Poll();
  Poll(const Poll&) = delete;
  Poll& operator=(const Poll&) = delete;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace hvd::discovery
