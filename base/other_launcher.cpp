#include "base/other_launcher.h"

#include <array>
#include <cstdint>

#include "base/text.h"

namespace hvd {
namespace {

// The variables that hvdrun gives to each worker; programs that a worker starts have it, too.
constexpr std::string_view kHvdrunVariable = "HVD_JOB_ID";
constexpr std::string_view kServiceVariable = "HVD_RENDEZVOUS";
constexpr std::string_view kRankVariable = "HVD_RANK";
constexpr std::string_view kSizeVariable = "HVD_SIZE";
constexpr std::string_view kSlurm = "Slurm";
constexpr std::string_view kTorchrun = "torchrun";
// So much of the command line is repeated.
constexpr std::size_t kMostOfCommand = 300;

struct Launcher {
  std::string_view name;
  std::string_view command;
  std::string_view rank;
  std::string_view size;
  std::string_view on_host;  // empty: the launcher does not say it
  std::string_view needed;   // the others count only together with this one; empty: with none
  bool speaks_pmi = true;    // PMIx or PMI that is there may be its own, with these ranks
};

// The order matters: one launcher may start another one, and the inner one is the one that counts.
// Open MPI's mpirun starts its daemons by srun, whose variables the processes then have, too;
// people start one torchrun on each host by mpirun.
constexpr std::array kLaunchers{
    Launcher{"another launcher", "it", kRankVariable, kSizeVariable, "HVD_LOCAL_SIZE",
             kServiceVariable},
    Launcher{kTorchrun, "torchrun", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID",
             false},
    Launcher{"Open MPI", "mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
             "OMPI_COMM_WORLD_LOCAL_SIZE", ""},
    Launcher{"MVAPICH2", "mpirun_rsh", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE",
             "MV2_COMM_WORLD_LOCAL_SIZE", ""},
    Launcher{"Horovod", "horovodrun", "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_SIZE", "",
             false},
    Launcher{"jsrun", "jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE",
             "JSM_NAMESPACE_LOCAL_SIZE", ""},
    Launcher{"Flux", "flux run", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "", ""},
    Launcher{"MPICH (PMI)", "mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", ""},
};

// torch's env://, which scripts, mp.spawn and Kubeflow's PyTorchJob set by hand. They count where
// no launcher is known, and only for programs: in a pod that has them hvdrun may be started once.
constexpr Launcher kByHand{"another launcher", "it", "RANK", "WORLD_SIZE",
                           "LOCAL_WORLD_SIZE", "",   false};

// Under sbatch and salloc a program has SLURM_NTASKS=8 and is one process: only a step that srun
// has started says how many it has started. The batch script itself, and an interactive shell, are
// steps with numbers from 0xfffffff0 on.
std::optional<OtherLaunch> slurm_step(const EnvironmentLookup& lookup) {
  constexpr std::int64_t kFirstSpecialStep = 0xfffffff0;
  const auto rank = count_of(lookup, "SLURM_PROCID");
  const auto size = count_of(lookup, "SLURM_STEP_NUM_TASKS");
  const auto text = lookup("SLURM_STEP_ID");
  const auto step = text ? parse_number<std::int64_t>(*text) : std::nullopt;
  if (!rank || !size || !step || *step < 0 || *step >= kFirstSpecialStep) return std::nullopt;
  return OtherLaunch{
      std::string(kSlurm),
      "srun",
      cat("SLURM_STEP_ID=", *step, ", SLURM_PROCID=", *rank, ", SLURM_STEP_NUM_TASKS=", *size),
      *rank,
      size,
      0,
      true,
      cat("slurm.", lookup("SLURM_JOB_ID").value_or(""), '.', *step, '.',
          lookup("SLURM_RESTART_COUNT").value_or("0"))};
}

// PMIx gives its processes no size: the first one has to ask (pmix_store.cpp), whether it is alone.
std::optional<OtherLaunch> pmix_process(const EnvironmentLookup& lookup) {
  const auto rank = count_of(lookup, "PMIX_RANK");
  if (!rank || (*rank == 0 && !lookup("PMIX_NAMESPACE"))) return std::nullopt;
  return OtherLaunch{"PMIx", "prun", cat("PMIX_RANK=", *rank), *rank, std::nullopt, 0};
}

std::string run_of(const EnvironmentLookup& lookup, const Launcher& launcher) {
  const auto id = lookup("TORCHELASTIC_RUN_ID");
  // torchrun's own name for a run that nobody has named.
  if (launcher.name != kTorchrun || !id || *id == "none") return "";
  return cat("torchrun.", *id, '.', lookup("TORCHELASTIC_RESTART_COUNT").value_or("0"));
}

std::optional<OtherLaunch> launched(const EnvironmentLookup& lookup, const Launcher& launcher) {
  if (!launcher.needed.empty() && !lookup(launcher.needed)) return std::nullopt;
  const auto rank = count_of(lookup, launcher.rank);
  const auto size = count_of(lookup, launcher.size);
  if (!rank || !size) return std::nullopt;
  return OtherLaunch{std::string(launcher.name),
                     std::string(launcher.command),
                     cat(launcher.rank, "=", *rank, ", ", launcher.size, "=", *size),
                     *rank,
                     size,
                     count_of(lookup, launcher.on_host).value_or(0),
                     launcher.speaks_pmi,
                     run_of(lookup, launcher)};
}

// People set the variables by hand under a launcher that hvd does not know. One that is mistyped or
// missing would make each process a world of its own.
Status check_own_variables(const EnvironmentLookup& lookup) {
  for (const auto name : {kRankVariable, kSizeVariable}) {
    const auto text = lookup(name);
    if (text && !count_of(lookup, name)) {
      return {Code::invalid_argument,
              cat("environment variable ", name, "=", *text, ": must be a number of at least 0")};
    }
  }

  const auto rank = count_of(lookup, kRankVariable);
  const auto size = count_of(lookup, kSizeVariable);
  if (rank.has_value() != size.has_value()) {
    return {Code::invalid_argument,
            cat("environment variable ", rank ? kSizeVariable : kRankVariable, " is not set, and ",
                rank ? kRankVariable : kSizeVariable, " is")};
  }
  if (rank && *rank >= *size) {
    return {Code::invalid_argument, cat("environment variable ", kRankVariable, "=", *rank,
                                        ": must be below ", kSizeVariable, "=", *size)};
  }
  return {};
}

// The innermost launcher that says how many it has started decides.
std::optional<OtherLaunch> innermost_launch(const EnvironmentLookup& lookup) {
  for (const auto& launcher : kLaunchers) {
    if (auto found = launched(lookup, launcher)) return found;
  }
  if (auto found = slurm_step(lookup)) return found;
  return pmix_process(lookup);
}

std::string command_text(const std::vector<std::string>& command) {
  std::vector<std::string> words;
  for (const auto& word : command) {
    if (!word.empty() || &word != &command.back()) words.push_back(shell_quote(word));
  }
  std::string text = words.empty() ? "PROGRAM" : join(words, " ");
  if (text.size() > kMostOfCommand) text = cat(words.front(), " ...");
  return text;
}

std::string hvdrun_line(const OtherLaunch& launch, const std::vector<std::string>& command) {
  std::string line = cat("hvdrun -np ", launch.size ? cat(*launch.size) : "N");
  const bool many_hosts =
      launch.size && launch.processes_on_host > 0 && launch.processes_on_host < *launch.size;
  if (many_hosts) line += cat(" -H HOST:", launch.processes_on_host, ",HOST:...");
  return cat(line, ' ', command_text(command));
}

}  // namespace

std::optional<int> count_of(const EnvironmentLookup& lookup, std::string_view name) {
  if (name.empty()) return std::nullopt;
  const auto text = lookup(name);
  const auto number = text ? parse_number<int>(*text) : std::nullopt;
  return number && *number >= 0 ? number : std::nullopt;
}

Result<bool> may_be_alone(const EnvironmentLookup& lookup) {
  const std::string allowed = lookup(kAllowSingleVariable).value_or("");
  if (!allowed.empty() && allowed != "0" && allowed != "1") {
    return Status(Code::invalid_argument, cat("environment variable ", kAllowSingleVariable, "=",
                                              allowed, ": must be 1 or 0"));
  }
  return allowed == "1" || lookup(kHvdrunVariable).has_value();
}

Result<std::optional<OtherLaunch>> find_other_launch(const EnvironmentLookup& lookup) {
  std::optional<OtherLaunch> none;
  const auto is_meant_to_be_alone = may_be_alone(lookup);
  if (!is_meant_to_be_alone.ok()) return is_meant_to_be_alone.status();
  if (*is_meant_to_be_alone) return none;
  const bool has_service = !lookup(kServiceVariable).value_or("").empty();
  if (has_service) HVD_RETURN_IF_ERROR(check_own_variables(lookup));

  auto launch = innermost_launch(lookup);
  if (!launch) launch = launched(lookup, kByHand);
  if (has_service && !launch) {
    return Status(Code::invalid_argument,
                  cat(kServiceVariable, " is set, and nothing says which process this is: set ",
                      kRankVariable, " and ", kSizeVariable, ", or ", kAllowSingleVariable,
                      "=1 if it is meant to be alone"));
  }
  if (launch && launch->size && *launch->size <= 1) return none;
  return launch;
}

Status check_hvdrun_is_alone(const EnvironmentLookup& lookup) {
  const auto is_meant_to_be_alone = may_be_alone(lookup);
  if (!is_meant_to_be_alone.ok() || *is_meant_to_be_alone) return is_meant_to_be_alone.status();
  const auto launch = innermost_launch(lookup);
  if (!launch || launch->size.value_or(launch->rank + 1) <= 1) return {};
  const std::string itself = launch->launcher == kSlurm ? "srun --mpi=pmix" : launch->command;
  return {Code::failed_precondition,
          cat(launch->launcher, " has started hvdrun as one of ",
              launch->size ? cat(*launch->size) : std::string("several"), " processes (",
              launch->evidence, "), and each of them would run the whole job: start hvdrun once, ",
              "without ", launch->command,
              launch->speaks_pmi ? cat(", or the program itself by ", itself) : "", "; or set ",
              kAllowSingleVariable, "=1 if each of them is meant to run a job of its own")};
}

Status refusal(const OtherLaunch& launch, const std::vector<std::string>& command,
               std::string_view why_not) {
  return {Code::failed_precondition,
          cat("this process is rank ", launch.rank,
              launch.size ? cat(" of ", *launch.size) : std::string(" of several"),
              " processes that ", launch.launcher, " has started (", launch.evidence,
              "), and hvdrun has not started it: each of them would train alone, in a world of "
              "one",
              why_not.empty() ? "" : cat(", since they cannot meet: ", why_not),
              ". Start the program with hvdrun instead of ", launch.command, ": ",
              hvdrun_line(launch, command),
              launch.launcher == kSlurm && why_not.empty()
                  ? " ; or by srun --mpi=pmix or --mpi=pmi2, through which the processes can meet"
                  : "",
              " ; or set ", kAllowSingleVariable,
              "=1 if each process is meant to be a world of its own")};
}

}  // namespace hvd
