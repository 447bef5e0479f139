// hvdrun except for main(): parses the arguments, runs the job or another action, and returns the
// exit code.
#pragma once

#include <string>
#include <vector>

namespace hvd::cli {

inline constexpr int kExitFailure =
    1;                                // an error of hvdrun itself, or of a job without an exit code
inline constexpr int kExitUsage = 2;  // an invalid command line
inline constexpr int kExitBrokenPipe = 141;  // 128 + SIGPIPE, as in a shell

// `arguments` without the program's name.
int run_hvdrun(const std::vector<std::string>& arguments);

}  // namespace hvd::cli
