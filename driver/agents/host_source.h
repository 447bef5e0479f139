// Tells an elastic job who may work: the person's list, once, or what a discovery script prints
// (discovery/poll.h), again and again; and of each host whether it is this machine.
//
// Owned by the driver; every call and callback on its thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "discovery/hosts.h"
#include "driver/core/job_spec.h"
#include "driver/job/job_io.h"

namespace hvd::driver {

// A host without a number of slots gets `default_slots`, 0 if its agent is to say it.
HostSlots slots_of(const discovery::Host& host, int default_slots);

class HostSource {
 public:
  struct Callbacks {
    std::function<void(std::vector<event::FoundHost> hosts)> on_found;  // each new answer
    std::function<void(std::string_view)> on_warning;                   // one line
    std::function<void(std::string message)> on_failed;  // there will never be an answer; the last
  };

  // Begins at once. `hosts` are the person's list; with a script they are not looked at. `spec`
  // outlives this.
  HostSource(boost::asio::io_context& io, const ElasticSpec& spec, std::vector<HostSlots> hosts,
             Callbacks callbacks);
  ~HostSource();  // ends a script that runs; calls nobody any more
  HostSource(const HostSource&) = delete;
  HostSource& operator=(const HostSource&) = delete;

  // The child of this process that stands for a run of the script and must be spared by whoever
  // kills what fell to it; -1: there is none.
  pid_t child() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hvd::driver
