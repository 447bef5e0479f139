#include "base/machine/ports.h"

#include <random>

#include "base/machine/proc.h"
#include "base/text.h"

namespace hvd {
namespace {

constexpr std::uint16_t kFirst = 10'000;  // databases, web servers and the like are below
constexpr std::uint16_t kLast = 65'535;
constexpr int kEnough = 256;
constexpr int kTries = 128;
constexpr PortRange kLinuxDefault{32'768, 60'999};

}  // namespace

std::optional<PortRange> parse_ephemeral_ports(std::string_view text) {
  text = trim(text);
  const auto blank = text.find_first_of(" \t");
  if (blank == std::string_view::npos) return std::nullopt;
  const auto first = parse_number<std::uint16_t>(text.substr(0, blank));
  const auto last = parse_number<std::uint16_t>(trim(text.substr(blank)));
  if (!first || !last || *first > *last) return std::nullopt;
  return PortRange{*first, *last};
}

PortRange ephemeral_ports() {
  return parse_ephemeral_ports(read_proc_file("/proc/sys/net/ipv4/ip_local_port_range"))
      .value_or(kLinuxDefault);
}

std::optional<PortRange> ports_outside(const PortRange& ephemeral) {
  PortRange below{kFirst, kLast};
  PortRange above{kFirst, kLast};
  if (ephemeral.last >= kFirst) {
    below.last = static_cast<std::uint16_t>(ephemeral.first > 0 ? ephemeral.first - 1 : 0);
    above.first = ephemeral.last;
    if (above.first == kLast) {
      above = {1, 0};
    } else {
      ++above.first;
    }
  }
  const PortRange& larger = below.size() >= above.size() ? below : above;
  if (larger.size() < kEnough) return std::nullopt;
  return larger;
}

std::uint16_t find_port(const PortRange& ephemeral,
                        const std::function<bool(std::uint16_t)>& is_free) {
  const auto range = ports_outside(ephemeral);
  if (!range) return 0;
  std::random_device dice;
  std::uniform_int_distribution<int> any(range->first, range->last);
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const auto port = static_cast<std::uint16_t>(any(dice));
    if (is_free(port)) return port;
  }
  return 0;
}

}  // namespace hvd
