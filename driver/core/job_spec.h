// What cmd/hvdrun makes of a person's words, and all that the driver needs to know of a job. A
// plain value, checked where it was made: the driver trusts it.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/security/crypto.h"
#include "base/socket.h"
#include "driver/core/ssh_options.h"
#include "driver/job/host_slots.h"
#include "driver/job/slot_budget.h"
#include "driver/job/staffing.h"

namespace hvd::driver {

// Agents are not brought to the hosts, but come by themselves.
struct JoinSpec {
  SocketAddress bind;
  Token token;
};

// A job whose world changes.
struct ElasticSpec {
  std::string discovery_script;  // empty: JobSpec::hosts are who may ever work
  int slots_per_host = 0;  // of hosts that it prints without a number; 0: as their agents report
  std::chrono::milliseconds discovery_interval{1'000};
  std::chrono::milliseconds discovery_timeout{10'000};
  Limits limits;
  BudgetOptions budget;
  int reset_limit = -1;          // worlds because of failures; -1: no limit
  int planned_reset_limit = -1;  // worlds because of planned changes; beyond it it grows no more
  std::chrono::milliseconds elastic_timeout{600'000};  // for there to be enough workers
  std::chrono::milliseconds leave_grace{30'000};       // to leave at a commit
};

struct JobSpec {
  std::vector<std::string> command;  // program and its arguments
  std::vector<std::string>
      environment;  // NAME=VALUE for every worker; the driver adds the slot's own
  std::string working_directory;
  // Variables that are each host's own business (HOME, ...) and were not asked for by name: not in
  // `environment`, and taken from the host.
  std::vector<std::string> host_variables;
  std::vector<std::string> secrets;  // those of them that look like secrets, to be told once
  std::vector<HostSlots> hosts;  // in the person's order; with `join` may be empty: whoever comes
  int processes = 0;  // -np; 0 means every slot. An elastic job begins with so many, or more
  bool oversubscribe = true;

  std::chrono::milliseconds grace{5'000};  // from SIGTERM to SIGKILL
  std::chrono::milliseconds start_timeout{
      30'000};  // for each agent to be ready and each worker to run
  // For workers that live to call hvd::init() when others wait for them there; 0: for ever.
  std::chrono::milliseconds init_timeout{3'600'000};

  // Silence of an agent for this long is taken for the loss of its host. Its workers are frozen
  // after two thirds of it (the lease), and killed after the other.
  std::chrono::milliseconds heartbeat_timeout{3'000};
  std::chrono::milliseconds orphan_timeout{30'000};

  std::string agent_path;  // of the hvd-agent executable
  ssh::Options ssh;
  std::optional<JoinSpec> join;
  // Where this machine is reached by the others; empty: found out. A job on this machine alone uses
  // the loopback address.
  std::string advertise_address;
  std::vector<std::string> network_interfaces;  // empty: any
  bool legacy_clients = false;
  std::optional<ElasticSpec> elastic;
};

}  // namespace hvd::driver
