// The facts about a job that never change. A value.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace hvd::driver {

struct JobIdentity {
  std::string id = {};
  int pid = 0;  // of hvdrun
  std::vector<std::string> command = {};
  std::string directory = {};
  bool elastic = false;
  std::chrono::system_clock::time_point started = {};
};

}  // namespace hvd::driver
