// TCP ports that no program is given by chance. The kernel hands out those of
// net.ipv4.ip_local_port_range to sockets that ask for any port, and to every connection that goes
// out: a port in there that is free now may be taken a moment later. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "base/port_range.h"

namespace hvd {

// "32768\t60999\n", as the kernel writes it; nothing if it is not of that form.
std::optional<PortRange> parse_ephemeral_ports(std::string_view text);
// The range of this network namespace; the kernel's default if it cannot be read.
PortRange ephemeral_ports();
// Where find_port() looks: the larger part of what is outside of `ephemeral`, above the ports that
// services are known by. Nothing if too few are left there.
std::optional<PortRange> ports_outside(const PortRange& ephemeral);

// A port outside of `ephemeral` of which `is_free` says that nobody has it; several are tried, from
// a random one on, so that two who look at the same time find different ones. 0: there is none.
std::uint16_t find_port(const PortRange& ephemeral,
                        const std::function<bool(std::uint16_t)>& is_free);

}  // namespace hvd
