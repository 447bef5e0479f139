// Slurm's record of one job, as `scontrol --details show job ID` prints it, and the short forms in
// which it writes names and numbers of nodes. Pure parsing.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hvd::discovery {

// So many generic resources of one kind: of "gpu", or of "gpu:a100" if they have a type.
struct SlurmResource {
  std::string name;
  int count = 0;
};

struct SlurmJob {
  std::string id;
  // The id that `scontrol requeue` takes. The id of an array's last task means all of its tasks
  // there.
  std::string task_id;
  std::string nodes;  // those that it has now, as a hostlist
  std::string state;  // "RUNNING", "COMPLETING"
  bool is_batch = false;
  bool may_be_requeued = false;  // sbatch --requeue, or the default of the cluster
  bool is_preempted = false;
  bool is_requeued = false;  // this run of it ends, and Slurm runs it again
  std::chrono::seconds run_time{0};
  std::optional<std::chrono::seconds> time_limit;
  // The job's part of each node's generic resources, if it has any there.
  std::map<std::string, std::vector<SlurmResource>> resources;
};

// The value of the first word "NAME=VALUE" of a line of scontrol; empty: there is none.
std::string scontrol_value(const std::vector<std::string>& words, std::string_view name);

// `text` may tell of several jobs: of all tasks of an array. The error says what it lacks.
Result<SlurmJob> parse_slurm_job(std::string_view text, const std::string& id);

// Somebody has cancelled the job: Slurm ends it for good before its time, and not for another job's
// sake.
bool is_cancelled(const SlurmJob& job);

// The job has asked for GPUs, or for shares of them.
bool uses_gpus(const SlurmJob& job);
// GPUs of all types.
int gpus_in(const std::vector<SlurmResource>& resources);

// As --gpus of srun takes them: "a100:2,v100:1", or "2" if they have no type. Empty: there is none.
std::string gpus_text(const std::vector<SlurmResource>& resources);

// Names of nodes as Slurm writes them: "sn[1-3,7],gpu[01-04]-ib" is sn1, sn2, sn3, sn7, gpu01-ib
// and so on, in this order. Several brackets in one name multiply. At most kMaxDiscoveredHosts.
Result<std::vector<std::string>> expand_hostlist(std::string_view text);

// Numbers, one for each node: "2(x3),1" is 2, 2, 2, 1.
Result<std::vector<int>> expand_counts(std::string_view text);

}  // namespace hvd::discovery
