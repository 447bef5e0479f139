// Programs that start another one without what a worker inherits from hvdrun: its link, which is a
// descriptor, or its environment. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hvd {

struct Wrapper {
  std::string_view program;
  std::string_view word;  // an argument that makes it one; empty: none is needed
  // The program does not descend from the worker, and cannot find out that hvdrun meant it.
  bool is_elsewhere = false;
  std::string_view remedy;
  std::string name() const;  // "conda run"
};

// Nothing if this command line is not one of them. Paths and the interpreter of a script may stand
// before its name: "python3 /opt/conda/bin/conda run".
const Wrapper* find_wrapper(const std::vector<std::string>& command);

// The advice for a worker that finds itself in a container.
inline constexpr std::string_view kContainerRemedy =
    "run hvdrun inside of the container; or one container on each host, with sshd or `hvdrun "
    "agent` in it";

}  // namespace hvd
