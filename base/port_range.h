// The ports of a job's listeners (--port-range). All listeners of all jobs on a host may share a
// range: ports that are taken are passed over. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/descriptors.h"
#include "base/socket.h"
#include "base/status.h"

namespace hvd {

struct PortRange {
  std::uint16_t first = 0;
  std::uint16_t last = 0;  // belongs to it
  bool contains(std::uint16_t port) const { return first <= port && port <= last; }
  int size() const { return first > last ? 0 : last - first + 1; }
  std::string to_string() const;  // "40000-40999"
  friend bool operator==(const PortRange&, const PortRange&) = default;
};

// "40000-40999": two numbers from 1 to 65535, of which the first is not the larger one. Nothing if
// it is not of that form.
std::optional<PortRange> parse_port_range(std::string_view text);
// The form that parse_port_range() accepts, for messages.
inline constexpr std::string_view kPortRangeForm =
    "two ports from 1 to 65535 with a - between them, as in 40000-40999, the smaller one first";

// Where a process takes the ports of its listeners.
struct ListenPorts {
  std::optional<PortRange> range = std::nullopt;  // nothing: any port that the kernel chooses
  std::uint16_t avoided = 0;  // a port of the range that another program will need; 0: none
};

// How many ports of the range the processes of one host take at most.
inline constexpr int kPortsOfAWorker = 2;  // for the control tree, and for data
// The agent's, until the first worker starts, and then MASTER_PORT.
inline constexpr int kPortsOfAHost = 1;
// The rendezvous service has one more on hvdrun's machine. Other listeners of hvdrun come on
// top if their port is 0 or one of the range.
inline constexpr int kPortsOfHvdrun = 1;

// Tries one port of the range after the other, from a random one on, and returns the one that was
// taken. `take` returns the error already_exists if a program has the port; any other error ends
// the search. `where` stands in the error, which names the range, if all ports are taken.
Result<std::uint16_t> take_port(const PortRange& range, std::uint16_t avoided,
                                std::string_view where,
                                const std::function<Status(std::uint16_t port)>& take);

// Listens there; for port 0 on a port of the range if there is one. `backlog` as in listen(2).
Result<UniqueFd> listen_tcp(const SocketAddress& where, const ListenPorts& ports,
                            int backlog = 1024);

}  // namespace hvd
