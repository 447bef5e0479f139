// What the driver asks of the machine that it runs on. The calls ask the system each time and may
// block for a name server; any thread may call them.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace hvd::driver {

// ok if `name` (a host's name or address) is this machine: localhost, its own name, or whatever
// resolves to one of its addresses. Else the error says what it is instead.
Status check_is_this_machine(const std::string& name);

// The network interface that has this address, or nothing.
std::string interface_of(const std::string& address);

// A TCP port that nobody listens on at `address` now.
Result<std::uint16_t> free_port(const std::string& address);

}  // namespace hvd::driver
