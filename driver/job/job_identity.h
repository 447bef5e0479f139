// The facts about a job that never change. A value.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace hvd::driver {

// The length of a job's id, in lower-case hexadecimal digits. The id is not a secret.
inline constexpr std::size_t kJobIdDigits = 16;

struct JobIdentity {
  std::string id = {};
  int pid = 0;  // of hvdrun
  std::vector<std::string> command = {};
  std::string directory = {};
  bool elastic = false;
  std::chrono::system_clock::time_point started = {};
};

}  // namespace hvd::driver
