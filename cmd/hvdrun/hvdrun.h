// hvdrun, all but main(): reads the words, runs the job or what else was asked for, prints, and
// answers the exit code. The codes stand in docs/hvdrun.md.
#pragma once

#include <string>
#include <vector>

namespace hvd::cli {

inline constexpr int kExitFailure = 1;       // of ours, or of the job's without a code
inline constexpr int kExitUsage = 2;         // arguments that hvdrun does not understand
inline constexpr int kExitBrokenPipe = 141;  // 128 + SIGPIPE, as a shell says it

// `words` without the program's name.
int run_hvdrun(const std::vector<std::string>& arguments);

}  // namespace hvd::cli
