// The environment that a worker starts with: the person's own, and on top of it what tells the
// worker who it is, under our names, Horovod's and torch's, so that programs written for either
// start unchanged. The job's token is in none of them. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/protocol/world_document.h"

namespace hvd::driver {

// What is the same for all workers of a host.
struct JobEnvironment {
  std::string job_id;
  int size = 0;
  std::string rendezvous_address;
  std::uint16_t rendezvous_port = 0;
  std::string network_interface;  // that has the workers' addresses; empty if not known
  std::string master_address;     // of rank 0's host, for torch
  std::uint16_t master_port = 0;  // free there when the job began
  bool elastic = false;           // then programs written for Horovod look for HOROVOD_ELASTIC
};

// What one worker gets on top of `base`, the environment that all have (NAME=VALUE): it replaces
// what `base` says of the names that are ours to give, except that the person's choice of network
// interfaces stands. `host_index` counts the job's hosts from 0.
std::vector<std::string> worker_environment(const std::vector<std::string>& base,
                                            const JobEnvironment& job, const WorldMember& member,
                                            int host_index);

// The value of a variable, nothing if it is not there.
std::optional<std::string> find_value(const std::vector<std::string>& environment,
                                      std::string_view name);
// Empty if it is not there.
std::string value_of(const std::vector<std::string>& environment, std::string_view name);

}  // namespace hvd::driver
