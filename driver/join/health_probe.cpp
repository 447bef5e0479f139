#include "driver/join/health_probe.h"

namespace hvd::driver::join {

Probe probe_in(std::string_view received) {
  constexpr std::string_view kRequest = "GET /healthz HTTP/1.";
  constexpr std::size_t kMaxHead = 4096;

  if (received.size() < kRequest.size()) {
    return kRequest.starts_with(received) ? Probe::begins : Probe::no;
  }
  if (!received.starts_with(kRequest) || received.size() > kMaxHead) return Probe::no;
  return received.find("\r\n\r\n") == std::string_view::npos ? Probe::begins : Probe::complete;
}

}  // namespace hvd::driver::join
