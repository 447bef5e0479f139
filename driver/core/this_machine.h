// Properties of the machine that the driver runs on. Each call asks the system anew; any thread may
// call them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <sys/resource.h>

#include "base/port_range.h"
#include "base/status.h"

namespace hvd::driver {

// Whether `name` (a host's name or address) is this machine: localhost, its own name, one of its
// addresses. nullopt if only a resolver can tell.
std::optional<bool> is_this_machine_without_lookup(const std::string& name);
// The same for any name; may block on a name server. A name that cannot be resolved is not this
// machine.
bool is_this_machine(const std::string& name);

// The same for each process that finds what another one has started here as local: on this machine
// since its start, and in this network namespace.
std::string this_machine_id();

// A TCP port at `address` that is free now: of the range, or, without one, outside of the ephemeral
// ports if there is such a port (base/machine/ports.h).
Result<std::uint16_t> free_port(const std::string& address, const std::optional<PortRange>& range);

// Raises this process's limit of open files to the maximum as long as the object exists: the driver
// needs a few descriptors for each host and worker.
class RaisedFileLimit {
 public:
  RaisedFileLimit();
  ~RaisedFileLimit();  // restores the limit
  RaisedFileLimit(const RaisedFileLimit&) = delete;
  RaisedFileLimit& operator=(const RaisedFileLimit&) = delete;

  // The soft limit before; 0: unknown.
  std::uint64_t before() const { return before_ ? before_->rlim_cur : 0; }

 private:
  std::optional<rlimit> before_;
};

}  // namespace hvd::driver
