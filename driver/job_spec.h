// What cmd/hvdrun makes of a person's words, and all that the driver needs to know of a job. A
// plain value, checked where it was made: the driver trusts it.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace hvd::driver {

struct HostSlots {
  std::string name;  // as the person wrote it
  int slots = 1;
  friend bool operator==(const HostSlots&, const HostSlots&) = default;
};

struct JobSpec {
  std::vector<std::string> command;  // program and its arguments
  std::vector<std::string>
      environment;  // NAME=VALUE for every worker; the driver adds the slot's own
  std::string working_directory;
  std::vector<HostSlots> hosts;  // in the person's order
  int processes = 0;             // -np; 0 means every slot
  bool oversubscribe = true;

  std::chrono::milliseconds grace{5'000};  // from SIGTERM to SIGKILL
  std::chrono::milliseconds start_timeout{
      30'000};  // for each agent to be ready and each worker to run

  std::string agent_path;  // of the hvd-agent executable
  std::string bind_address =
      "127.0.0.1";  // where the rendezvous listens and the workers are reached
  bool legacy_clients = false;
};

}  // namespace hvd::driver
