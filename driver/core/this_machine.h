// What the driver asks of the machine that it runs on. The calls ask the system each time; any
// thread may call them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <sys/resource.h>

#include "base/status.h"

namespace hvd::driver {

// Whether `name` (a host's name or address) is this machine: localhost, its own name, one of its
// addresses. Nothing if only a resolver can tell.
std::optional<bool> is_this_machine_without_lookup(const std::string& name);
// The same for any name; may block for a name server. What cannot be resolved is not this machine.
bool is_this_machine(const std::string& name);

// A TCP port that nobody listens on at `address` now, outside of the ephemeral ones if there is
// such a port (base/machine/ports.h).
Result<std::uint16_t> free_port(const std::string& address);

// The driver keeps a few descriptors for each host and worker: while this lives, the process may
// open as many as it is allowed to at all.
class RaisedFileLimit {
 public:
  RaisedFileLimit();
  ~RaisedFileLimit();  // what it was before
  RaisedFileLimit(const RaisedFileLimit&) = delete;
  RaisedFileLimit& operator=(const RaisedFileLimit&) = delete;

  // The soft limit that it was before; 0 if that is not known.
  std::uint64_t before() const { return before_ ? before_->rlim_cur : 0; }

 private:
  std::optional<rlimit> before_;
};

}  // namespace hvd::driver
