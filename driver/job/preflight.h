// The steps from a host's name to an agent that can start the program there, in the order in which
// they are taken. An error of a host names the step that failed. Values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace hvd::driver {

enum class Step : std::uint8_t {
  resolve,           // its name to addresses
  connect,           // TCP, or the way through a proxy, and SSH's greeting
  host_key,          // is it the host that it was last time
  authenticate,      // with one of the keys
  start_agent,       // find the agent there, start it, hear from it
  copy_agent,        // the part of it in which the agent is copied there
  change_directory,  // is the working directory there
  find_program,      // is the program there, and may it be executed
  reach,             // can the other hosts, and this machine, be reached from it
  run_workers,       // the host is ready, and takes part in an elastic job
};

// "resolve", "host key", "start agent", ...
std::string_view name_of(Step step);

// Why a host cannot take part.
struct HostError {
  Step step = Step::connect;
  std::string
      message;        // what was tried, what happened, what the person can do; not the host's name
  int exit_code = 1;  // of hvdrun, if the job fails of this: 126 and 127 as shells say it
};

// The exit code for a program that could not be started with this errno.
int exit_code_of_failed_start(int error_number);

struct FailedHost {
  std::string name;
  HostError error;
};

}  // namespace hvd::driver
