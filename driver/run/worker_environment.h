// The environment of a worker: the user's own, and on top of it the worker's identity under the
// names of hvd, Horovod and torch, so that programs written for any of them start unchanged. None
// of the variables contains a key of the job. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/protocol/world_document.h"

namespace hvd::driver {

// The part that is the same for all workers of a host.
struct JobEnvironment {
  std::string job_id;
  int size = 0;
  std::string rendezvous_address;
  std::uint16_t rendezvous_port = 0;
  std::string network_interface;  // with the workers' addresses; empty: unknown
  std::string master_address;     // of rank 0's host, for torch
  std::uint16_t master_port = 0;  // free there when the job began
  bool elastic = false;           // also sets HOROVOD_ELASTIC
  int restarts = 0;               // of all workers, if none of them has called hvd::init()
  int max_restarts = 0;           // negative: as often as need be
};

// The part of one host.
struct HostEnvironment {
  int index = 0;            // of the hosts of the world, in the order of ranks
  int count = 1;            // of these hosts
  int cores = 1;            // that the workers there may use
  int workers = 1;          // that share them
  std::string labels = {};  // with which it has joined: "zone=eu,gpu=H100"
};

// The variables of one worker (NAME=VALUE) on top of `base`, the environment of all workers. They
// replace variables of the same names in `base`; only the user's choice of network interfaces has
// precedence, and OMP_NUM_THREADS.
std::vector<std::string> worker_environment(const std::vector<std::string>& base,
                                            const JobEnvironment& job, const WorldMember& member,
                                            const HostEnvironment& host);

// Whether worker_environment() may set this variable whatever `base` says: what an outer job left
// under this name is never meant for a worker.
bool is_own_variable(std::string_view name);

// Where the host of `member` stands in the world; without cores and workers.
HostEnvironment place_in_world(const std::vector<WorldMember>& world, const WorldMember& member);

// The value of a variable; nullopt if it is not set.
std::optional<std::string> find_value(const std::vector<std::string>& environment,
                                      std::string_view name);
// Empty if it is not set.
std::string value_of(const std::vector<std::string>& environment, std::string_view name);

}  // namespace hvd::driver
