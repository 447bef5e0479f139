// A real Slurm with several nodes on this machine: its own controller, a slurmd for each node
// ("sn1", "sn2", ...), and its own munged, in a process namespace that ends with this object. Its
// files lie in a directory that the caller gives. For tests, and for one thread.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/process.h"

namespace hvd::test {

class SlurmCluster {
 public:
  // Why there can be none here, if so: "slurmctld is not installed".
  static std::optional<std::string> why_not();

  // Blocks until all nodes are idle. Throws std::runtime_error with what was printed if they are
  // not within a minute. Each node has so many GPUs, which are device files and no more. Jobs of
  // the partition "urgent" cancel jobs of the default one.
  SlurmCluster(std::filesystem::path directory, int nodes, int gpus = 0);
  ~SlurmCluster();  // ends everything
  SlurmCluster(const SlurmCluster&) = delete;
  SlurmCluster& operator=(const SlurmCluster&) = delete;

  // The variables with which a program finds this cluster.
  const std::map<std::string, std::string>& environment() const { return environment_; }
  const std::filesystem::path& directory() const { return directory_; }

  // Runs one of Slurm's commands; its standard output without the end of the line. The test fails
  // if it does not end with 0.
  std::string command(const std::vector<std::string>& words) const;
  // Submits a batch script; the id of the job. Its output is read with output().
  std::string submit(const std::vector<std::string>& flags, const std::string& script) const;
  std::string output(const std::string& job) const;
  // Blocks until the output of the job has this text.
  bool wait_for_output(const std::string& job, const std::string& text) const;
  // Blocks until the job is in this state ("COMPLETED", "PENDING").
  bool wait_for_state(const std::string& job, const std::string& state) const;
  // One field of `scontrol show job`: field("7", "NodeList"). Empty: it is not there.
  std::string field(const std::string& job, const std::string& name) const;
  // Kills what runs on the node as the loss of power would, and tells the controller.
  void crash(const std::string& node) const;

 private:
  std::filesystem::path directory_;
  std::map<std::string, std::string> environment_;
  std::unique_ptr<Process> process_;
};

}  // namespace hvd::test
