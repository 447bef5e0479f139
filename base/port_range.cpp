#include "base/port_range.h"

#include <algorithm>
#include <random>

#include "base/text.h"

namespace hvd {
namespace {

Status exhausted(const PortRange& range, std::string_view where) {
  return {
      Code::resource_exhausted,
      cat("listen on ", where, ": all ports of --port-range ", range.to_string(), " (",
          range.size(), ") are taken; a host needs ", kPortsOfAWorker, " for each worker and ",
          kPortsOfAHost, " more, the host of hvdrun ", kPortsOfAHost + kPortsOfHvdrun, " more")};
}

}  // namespace

std::string PortRange::to_string() const { return cat(first, "-", last); }

std::optional<PortRange> parse_port_range(std::string_view text) {
  const auto middle = text.find('-');
  if (middle == std::string_view::npos) return std::nullopt;
  const auto first = parse_number<std::uint16_t>(trim(text.substr(0, middle)));
  const auto last = parse_number<std::uint16_t>(trim(text.substr(middle + 1)));
  if (!first || !last || *first == 0 || *first > *last) return std::nullopt;
  return PortRange{*first, *last};
}

Result<std::uint16_t> take_port(const PortRange& range, std::uint16_t avoided,
                                std::string_view where,
                                const std::function<Status(std::uint16_t port)>& take) {
  std::random_device dice;
  const int begin = std::uniform_int_distribution<int>(0, std::max(range.size() - 1, 0))(dice);
  for (int i = 0; i < range.size(); ++i) {
    const auto port = static_cast<std::uint16_t>(range.first + (begin + i) % range.size());
    if (port == avoided) continue;
    const Status taken = take(port);
    if (taken.ok()) return port;
    if (taken.code() != Code::already_exists) return taken;
  }
  return exhausted(range, where);
}

Result<UniqueFd> listen_tcp(const SocketAddress& where, const ListenPorts& ports, int backlog) {
  if (where.port != 0 || !ports.range) return listen_tcp(where, backlog);

  UniqueFd listener;
  const auto port = take_port(*ports.range, ports.avoided, where.host, [&](std::uint16_t tried) {
    auto socket = listen_tcp({where.host, tried}, backlog);
    if (socket.ok()) listener = std::move(*socket);
    return socket.status();
  });
  HVD_RETURN_IF_ERROR(port.status());
  return listener;
}

}  // namespace hvd
