// Health probes on the port where agents join: a plain `GET /healthz`, as Kubernetes and load
// balancers send it, without a token. The answer comes from the thread that runs the job, so it
// says that this thread works, and nothing else. Pure.
#pragma once

#include <string_view>

namespace hvd::driver::join {

enum class Probe {
  no,        // the connection speaks something else
  begins,    // it may be a probe; its head is not complete
  complete,  // a probe, to be answered with kHealthy
};

// The kind of a connection whose first bytes these are.
Probe probe_in(std::string_view received);

inline constexpr std::string_view kHealthy =
    "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n"
    "Connection: close\r\n\r\nok\n";

}  // namespace hvd::driver::join
