// Finds the hosts of a job that are this machine, so that no SSH is needed to reach them. Names
// that only a resolver can answer are looked up in parallel, on threads of their own, since a name
// server may be slow. A name without an answer within ten seconds counts as another machine: SSH
// may know it from its configuration.
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
#include "driver/core/observer.h"
#include "driver/core/signals.h"

namespace hvd::driver {

class LocalHosts {
 public:
  explicit LocalHosts(boost::asio::io_context& io);
  ~LocalHosts();  // `done` is not called any more
  LocalHosts(const LocalHosts&) = delete;
  LocalHosts& operator=(const LocalHosts&) = delete;

  // Calls `done` once, perhaps from within, with the names of the hosts that are this machine. A
  // host that is reached as another user or at a port of its own is never among them. A search in
  // progress is cancelled. Answers of the search before are used again.
  using Done = std::function<void(const std::set<std::string>& local)>;
  void find(const std::vector<HostSlots>& hosts, Done done);
  // The names that a search in progress waits for.
  std::vector<std::string> unanswered() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

// Waits for the answer, and tells the observer of it. Runs `io` meanwhile; ends early, with an
// empty set, when a signal is waiting.
std::set<std::string> find_local_hosts(boost::asio::io_context& io, const Signals& signals,
                                       const std::vector<HostSlots>& hosts, Observer& observer);

}  // namespace hvd::driver
