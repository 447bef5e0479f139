// All parameters of a job, made by cmd/hvdrun from its command line and configuration. A plain
// value, checked where it was made: the driver trusts it.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/machine/topology.h"
#include "base/port_range.h"
#include "base/security/crypto.h"
#include "base/socket.h"
#include "driver/core/ssh_options.h"
#include "driver/job/plan.h"
#include "driver/job/slot_budget.h"
#include "driver/job/staffing.h"

namespace hvd::driver {

// The agents are not started by the driver: they join by themselves.
struct JoinSpec {
  SocketAddress bind;  // port 0: any, or one of `ports`
  Token token;
  ListenPorts ports = {};
  std::vector<std::string> required_labels = {};  // KEY or KEY=VALUE: other hosts may not join
  std::chrono::milliseconds silence{30'000};      // of an agent that waits for its turn
  std::chrono::milliseconds hold{0};              // of workers, for an agent that joins again
};

// The hosts are nodes of a Slurm allocation, and agents are started there by srun.
struct SlurmSpec {
  std::string job_id;
  std::string hvdrun_path;  // of this program, on every node
  // The environment of srun and of the agents that it starts, without what is withheld, and without
  // those by which Slurm would change what srun is asked for.
  std::vector<std::string> environment;
  // The job's part of each node's GPUs, as --gpus of srun takes it; a node that is not here has
  // none, or was not known when the job began.
  std::map<std::string, std::string> gpus;
  // The address of this machine at which the nodes reach it; port 0: any, or one of `ports`.
  SocketAddress bind;
  ListenPorts ports = {};
  Token token;
  // A file with the token that the agents read on their nodes; empty: they get it sealed by MUNGE.
  std::string token_file;
  std::string munge_socket;  // empty: the usual one
};

// The file to which the events of the job are written (driver/journal/journal.h).
struct JournalSpec {
  std::string file;  // empty: one in the directory of kept journals (driver/journal/journal.h)
};

// Another hvdrun may go on with the job if this one dies.
struct StateSpec {
  std::string directory;                   // driver/journal/state_directory.h
  std::chrono::milliseconds hold{60'000};  // for so long the agents wait for it
  bool stands_by = false;  // begins only when the hvdrun that has the directory has ended
};

// A Prometheus may ask for the job's metrics over the network.
struct MetricsSpec {
  SocketAddress bind;  // port 0: any, or one of `ports`
  Token token;         // that it has to show
  ListenPorts ports = {};
};

// A page in a browser shows the job while it runs.
struct PageSpec {
  // Port 0: any, or one of `ports`. An empty host: a loopback address of this job's own.
  SocketAddress bind;
  ListenPorts ports = {};
};

// A job whose world changes.
struct ElasticSpec {
  std::string discovery_script;  // empty: JobSpec::hosts are the only hosts
  // Slots of hosts that the script prints without a number; 0: as their agents report.
  int slots_per_host = 0;
  std::chrono::milliseconds discovery_interval{1'000};
  std::chrono::milliseconds discovery_timeout{10'000};
  Limits limits;
  BudgetOptions budget;
  int reset_limit = -1;  // new worlds because of failures; -1: no limit
  // New worlds because of planned changes; -1: no limit. Beyond it the world grows no more.
  int planned_reset_limit = -1;
  // See driver/job/job_options.h.
  int max_restarts = -1;
  std::chrono::milliseconds grow_delay{30'000};
  // Signals to hvdrun that suspend the job: it ends at a commit, to be taken up again later.
  std::set<int> suspended_by;
  std::chrono::milliseconds elastic_timeout{600'000};  // until there are enough workers
  std::chrono::milliseconds leave_grace{30'000};       // for workers to leave at a commit
  std::string notice_command;  // run on each host, says when that is about to be taken away
  bool replaces_slow = false;  // workers for which the others wait
  bool keeps_state_in_agents = false;
};

struct JobSpec {
  std::vector<std::string> command;  // program and its arguments
  // NAME=VALUE for every worker; the driver adds the variables of each slot.
  std::vector<std::string> environment;
  std::string working_directory;
  // Variables that differ from host to host (HOME, ...) and were not requested by name: they are
  // not in `environment`, and each host uses its own.
  std::vector<std::string> host_variables;
  std::string data_security = "none";  // of tensors between hosts, for reports
  // Variables that are withheld since they look like secrets; reported once.
  std::vector<std::string> secrets;
  // Variables that are withheld since nobody has named them (--env-policy named).
  std::vector<std::string> unnamed;
  // In the user's order. With `join` it may be empty: any host may join.
  std::vector<HostSlots> hosts;
  int processes = 0;  // -np; 0: every slot. An elastic job begins with at least so many
  bool oversubscribe = true;
  Binding binding = Binding::none;  // of the workers of a host, to parts of its processors

  std::chrono::milliseconds grace{5'000};  // from SIGTERM to SIGKILL
  // For each agent to be ready and each worker to run.
  std::chrono::milliseconds start_timeout{30'000};
  // For running workers to call hvd::init() while others wait for them there; 0: no limit.
  std::chrono::milliseconds init_timeout{3'600'000};

  // An agent that is silent for this long counts as lost with its host. Its workers are frozen
  // after two thirds of this time (the lease), and killed after `orphan_timeout`.
  std::chrono::milliseconds heartbeat_timeout{3'000};
  std::chrono::milliseconds orphan_timeout{30'000};

  std::string agent_path;  // of the hvd-agent executable
  ssh::Options ssh;
  std::optional<JoinSpec> join;
  std::optional<SlurmSpec> slurm;
  // The address at which other hosts reach this machine; empty: the driver finds it. A job on this
  // machine alone uses the loopback address.
  std::string advertise_address;
  std::vector<std::string> network_interfaces;  // empty: any
  // For all listeners on all hosts. The workers have it as HVD_PORT_RANGE in `environment`.
  std::optional<PortRange> ports;
  int ports_of_hvdrun = kPortsOfHvdrun;  // of `ports`, for hvdrun's own listeners
  bool legacy_clients = false;
  std::optional<JournalSpec> journal;  // nothing: none is kept
  std::optional<StateSpec> state;      // of an elastic job alone
  std::optional<MetricsSpec> metrics;
  std::optional<PageSpec> page;
  std::optional<ElasticSpec> elastic;
  // A descriptor that is readable once the process for which the job runs has ended; -1: the job
  // does not depend on one.
  int caller = -1;
};

}  // namespace hvd::driver
