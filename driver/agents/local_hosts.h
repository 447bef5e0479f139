// Which hosts of a job are this machine, so that no SSH is needed to get there. Names that only a
// resolver knows are asked of it all at once, on threads of their own, since a name server may take
// its time; what it does not know within ten seconds is left to SSH, whose configuration may.
//
// For the thread that runs `io`.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "driver/core/job_spec.h"
#include "driver/core/signals.h"

namespace hvd::driver {

class LocalHosts {
 public:
  explicit LocalHosts(boost::asio::io_context& io);
  ~LocalHosts();  // answers nobody any more
  LocalHosts(const LocalHosts&) = delete;
  LocalHosts& operator=(const LocalHosts&) = delete;

  // Calls `done` once, perhaps from within, with the names of those that are reached without a user
  // or a port and are this machine. A question that is under way is forgotten. What was known of a
  // name in the question before is known still.
  using Done = std::function<void(const std::set<std::string>& local)>;
  void ask(const std::vector<HostSlots>& hosts, Done done);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

// The same at once. Runs `io` meanwhile; ends early, with nothing, when a signal is waiting.
std::set<std::string> find_local_hosts(boost::asio::io_context& io, const Signals& signals,
                                       const std::vector<HostSlots>& hosts);

}  // namespace hvd::driver
