#include "cmd/hvdrun/environment.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>

#include "base/text.h"
#include "cmd/hvdrun/arguments.h"
#include "cmd/hvdrun/secret_values.h"
#include "driver/run/worker_environment.h"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace hvd::cli {
namespace {

// Shell functions that another shell may reject, a directory that is meaningless to a worker, the
// secret of Horovod's launcher, and the path of hvdrun's agent.
constexpr std::array<const char*, 4> kAlwaysExcluded{"BASH_FUNC_*", "OLDPWD", "*HOROVOD_SECRET_KEY",
                                                     "HVD_AGENT"};

// A launcher that has started hvdrun, as one process, sets these for it. A worker would take itself
// for that process, and a library of MPI would look for the launcher's daemon. Settings stay, such
// as PMIX_MCA_* and OMPI_MCA_btl.
constexpr auto kOuterLaunchers = std::to_array<const char*>(
    {// PMI and PMIx.
     "PMI_*", "PMI2_*", "PMIX_[!M]*", "SLURM_PMI*",
     // Open MPI.
     "OMPI_COMM_WORLD_*", "OMPI_UNIVERSE_SIZE", "OMPI_COMMAND", "OMPI_ARGV", "OMPI_NUM_APP_CTX",
     "OMPI_FIRST_RANKS", "OMPI_APP_CTX_NUM_PROCS", "OMPI_FILE_LOCATION", "OMPI_MCA_ess*",
     "OMPI_MCA_orte_*", "OMPI_MCA_pmix", "OMPI_MCA_initial_wdir", "OMPI_MCA_shmem_RUNTIME_*",
     // MPICH, Intel MPI and MVAPICH2.
     "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "MPIR_CVAR_CH3_INTERFACE_HOSTNAME", "HYDI_*",
     "MV2_COMM_WORLD_*", "MPISPAWN_*",
     // jsrun, Flux, Cray's PALS and torchrun.
     "JSM_NAMESPACE_*", "FLUX_TASK_*", "FLUX_JOB_SIZE", "PALS_*", "TORCHELASTIC_*",
     // A task of srun.
     "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS", "SLURM_TASK_PID",
     "SLURM_STEP*", "SLURM_NTASKS*", "SLURM_NPROCS", "SLURM_TASKS_PER_NODE", "SLURM_CPUS_ON_NODE",
     "SLURMD_NODENAME", "SLURM_LAUNCH_NODE_IPADDR", "SLURM_SRUN_COMM_*", "SLURM_DISTRIBUTION",
     "SLURM_PRIO_PROCESS", "SLURM_TOPOLOGY_ADDR*", "SLURM_CPU_BIND*", "SLURM_MEM_BIND*"});

// The outer hvdrun chose these networks for a worker in which hvdrun runs.
constexpr std::array<const char*, 2> kOuterJobsChoice{"HOROVOD_GLOO_IFACE", "NCCL_SOCKET_IFNAME"};
constexpr std::array<std::string_view, 2> kSetInWorkers{"HVD_WORKER", "HVD_RANK"};

// Variables about the user, the login session and the devices of a host. Their values are
// meaningless on another host, or would disclose details of this one.
constexpr auto kHostsOwn = std::to_array<std::string_view>(
    {"HOME", "USER", "LOGNAME", "USERNAME", "SHELL", "MAIL", "HOSTNAME", "HOST", "TMPDIR", "TMP",
     "TEMP", "TEMPDIR",
     // The session.
     "XDG_RUNTIME_DIR", "XDG_SESSION_ID", "XDG_SESSION_TYPE", "XDG_SESSION_CLASS",
     "XDG_SESSION_DESKTOP", "XDG_CURRENT_DESKTOP", "XDG_SEAT", "XDG_VTNR", "XDG_DATA_DIRS",
     "XDG_CONFIG_DIRS", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME",
     "DBUS_SESSION_BUS_ADDRESS", "DBUS_STARTER_ADDRESS", "DBUS_STARTER_BUS_TYPE", "SSH_AUTH_SOCK",
     "SSH_AGENT_PID", "SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY", "SSH_ORIGINAL_COMMAND",
     "SSH_ASKPASS", "SSH_USER_AUTH", "KRB5CCNAME", "GPG_AGENT_INFO", "GPG_TTY",
     // The screen.
     "DISPLAY", "XAUTHORITY", "WAYLAND_DISPLAY", "SESSION_MANAGER", "WINDOWID", "TMUX", "TMUX_PANE",
     "STY",
     // The devices; a batch system gives each host its own.
     "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
     "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK", "SLURM_JOB_GPUS",
     "SLURM_GPUS_ON_NODE", "SLURM_SHARDS_ON_NODE"});
// Further variables of this kind, by pattern.
constexpr auto kHostsOwnPatterns =
    std::to_array<const char*>({"XDG_*", "SSH_*", "DBUS_*", "SYSTEMD_*", "*_VISIBLE_DEVICES",
                                "*_VISIBLE_CORES", "*_VISIBLE_CHIPS"});

bool is_hosts_own(const std::string& name) {
  return std::find(kHostsOwn.begin(), kHostsOwn.end(), name) != kHostsOwn.end() ||
         matches(name, kHostsOwnPatterns);
}

bool runs_in_a_worker(const std::vector<std::string>& own) {
  return std::any_of(kSetInWorkers.begin(), kSetInWorkers.end(), [&](std::string_view name) {
    return driver::find_value(own, name).has_value();
  });
}

// A host needs these to run anything. It has its own, unless srun brings this one's.
constexpr auto kBasics = std::to_array<const char*>({"PATH", "LANG", "LC_*", "TZ", "TERM"});

// All names that settings have in the environment.
std::vector<std::string> setting_variables() {
  std::vector<std::string> variables;
  for (const Knob* const setting : all_settings()) {
    for (auto& name : knob_variables(*setting)) variables.push_back(std::move(name));
  }
  return variables;
}

bool is_in(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool passes(const std::string& name, const EnvironmentArguments& arguments) {
  if (matches(name, arguments.included)) return true;
  if (matches(name, arguments.excluded)) return false;
  return !matches(name, kAlwaysExcluded) && !matches(name, kOuterLaunchers);
}

}  // namespace

Result<WorkerEnvironment> worker_environment(const std::vector<std::string>& own,
                                             const EnvironmentArguments& arguments,
                                             const Values& values) {
  std::map<std::string, std::string> outside;
  std::map<std::string, std::string> given;
  std::set<std::string> from_host(kHostsOwn.begin(), kHostsOwn.end());
  std::set<std::string> secrets;
  std::set<std::string> unnamed;
  const bool only_named = SettingsReader(values).text("env-policy") == "named";
  const auto settings = only_named ? setting_variables() : std::vector<std::string>();
  // Without it the output of a Python worker would arrive only when its buffer is full.
  given.emplace("PYTHONUNBUFFERED", "1");
  // As torchrun sets it: a collective of NCCL that fails ends its worker.
  given.emplace("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  const bool is_in_worker = runs_in_a_worker(own);

  for (const auto& entry : own) {
    const auto equals = entry.find('=');
    if (equals == std::string::npos || equals == 0) continue;
    const std::string name = entry.substr(0, equals);
    outside[name] = entry.substr(equals + 1);
    if (driver::is_own_variable(name)) continue;
    if (is_in_worker && matches(name, kOuterJobsChoice) && !matches(name, arguments.included)) {
      continue;
    }
    if (is_hosts_own(name)) {
      from_host.insert(name);
    } else if (looks_like_secret(name, outside[name]) && !matches(name, arguments.included)) {
      from_host.insert(name);
      secrets.insert(name);
    } else if (only_named && !is_in(settings, name) && !matches(name, arguments.included)) {
      from_host.insert(name);
      if (!matches(name, kBasics)) unnamed.insert(name);
    } else if (passes(name, arguments)) {
      given[name] = outside[name];
    }
  }

  for (const auto& [flag, value] : values) {
    const auto& table = knobs();
    const auto knob = std::find_if(table.begin(), table.end(),
                                   [&flag = flag](const Knob& k) { return k.flag == flag; });
    if (knob == table.end()) continue;
    given[std::string(knob->variable)] = value.text;
    given[std::string(knob->horovod_name)] = value.text;
  }

  for (const auto& word : arguments.set) {
    const auto equals = word.find('=');
    const std::string name = word.substr(0, equals);
    if (equals != std::string::npos) {
      given[name] = word.substr(equals + 1);
    } else if (const auto found = outside.find(name); found != outside.end()) {
      given[name] = found->second;
    } else {
      return Status(Code::not_found, cat("--env ", name,
                                         ": is not set in hvdrun's own environment; "
                                         "give it a value: --env ",
                                         name, "=..."));
    }
  }

  WorkerEnvironment result;
  result.entries.reserve(given.size());
  for (const auto& [name, value] : given) result.entries.push_back(cat(name, "=", value));
  for (const auto& name : from_host) {
    if (given.count(name) != 0 || !passes(name, arguments)) continue;
    result.host_variables.push_back(name);
    if (secrets.count(name) != 0) result.secrets.push_back(name);
    if (unnamed.count(name) != 0) result.unnamed.push_back(name);
  }
  return result;
}

Status check_env(const EnvironmentArguments& arguments) {
  for (const auto& word : arguments.set) {
    const std::string name = word.substr(0, word.find('='));
    if (name.empty()) return usage(cat("--env ", word, ": needs a name before the '='"));
    if (driver::is_own_variable(name)) {
      return usage(cat("--env ", word, ": hvdrun sets ", name,
                       " itself for each worker; give the value under another name"));
    }
  }
  return {};
}

std::vector<std::string> warnings_of_misspelt_settings(const std::vector<std::string>& own) {
  constexpr std::string_view kPrefix = "HVD_";
  std::vector<std::string> settings = setting_variables();
  std::erase_if(settings, [&](const std::string& name) { return !name.starts_with(kPrefix); });

  std::vector<std::string> warnings;
  for (const auto& entry : own) {
    const std::string name = entry.substr(0, entry.find('='));
    if (!name.starts_with(kPrefix) || name.size() == kPrefix.size()) continue;
    if (driver::is_own_variable(name)) continue;
    if (is_in(settings, name)) continue;
    // Programs have variables of their own: those that are meant for a setting begin like it.
    std::vector<std::string> alike;
    for (const auto& setting : settings) {
      if (setting[kPrefix.size()] == name[kPrefix.size()]) {
        alike.push_back(setting.substr(kPrefix.size()));
      }
    }
    const auto near = nearest(std::string_view(name).substr(kPrefix.size()), alike);
    if (!near) continue;
    warnings.push_back(cat("environment variable ", name, " is not a setting of hvd; did you mean ",
                           kPrefix, *near, "?"));
  }
  return warnings;
}

std::vector<std::string> own_environment() {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) result.emplace_back(*entry);
  return result;
}

}  // namespace hvd::cli
