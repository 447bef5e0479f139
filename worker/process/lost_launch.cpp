#include "worker/process/lost_launch.h"

#include <algorithm>
#include <unistd.h>
#include <vector>

#include "base/machine/life_lock.h"
#include "base/machine/proc.h"
#include "base/other_launcher.h"
#include "base/printable.h"
#include "base/protocol/worker_link.h"
#include "base/text.h"
#include "base/wrapper.h"

namespace hvd::worker {
namespace {

// The programs above this one, up to the process that hvdrun puts above each worker.
struct Ancestors {
  bool of_worker = false;             // that process is there
  std::vector<std::string> programs;  // the outermost first
  const Wrapper* wrapper = nullptr;
};

Ancestors ancestors_of_this_process() {
  Ancestors found;
  for (auto pid = parent_of(::getpid()); pid && *pid > 0; pid = parent_of(*pid)) {
    found.of_worker =
        trim(read_proc_file(cat("/proc/", *pid, "/comm"))) == worker_link::kReaperName;
    if (found.of_worker) break;
    const auto command = split(read_proc_file(cat("/proc/", *pid, "/cmdline")), '\0');
    if (command.empty()) continue;
    const auto& program = command.front();
    found.programs.insert(found.programs.begin(),
                          printable(program.substr(program.rfind('/') + 1)));
    if (const auto* const wrapper = find_wrapper(command)) found.wrapper = wrapper;
  }
  return found;
}

bool is_in_container() {
  return ::access("/.dockerenv", F_OK) == 0 || ::access("/run/.containerenv", F_OK) == 0;
}

// A worker inherits it, and the programs of a worker that has called init() do not.
bool has_life_lock() {
  const auto descriptors = numbers_in("/proc/self/fd");
  return std::any_of(descriptors.begin(), descriptors.end(),
                     [](int number) { return LifeLock::open(number).ok(); });
}

std::string programs_text(const Ancestors& ancestors) {
  return ancestors.programs.empty()
             ? std::string()
             : cat(" (between hvdrun and this one: ", join(ancestors.programs, ", "), ")");
}

}  // namespace

Status check_environment_was_kept(const EnvironmentLookup& lookup) {
  const auto allowed = may_be_alone(lookup);
  if (!allowed.ok() || *allowed) return allowed.status();
  const Ancestors ancestors = ancestors_of_this_process();
  if (!ancestors.of_worker && !has_life_lock()) return {};

  const bool is_known = ancestors.of_worker && ancestors.wrapper != nullptr;
  const std::string who =
      is_known ? ancestors.wrapper->name()
               : cat("a program in between", ancestors.of_worker ? programs_text(ancestors) : "");
  const std::string remedy =
      is_known ? std::string(ancestors.wrapper->remedy)
               : std::string(
                     "let that program hand on the variables whose names begin with HVD_ "
                     "and HOROVOD_");
  return {Code::failed_precondition,
          cat("hvdrun has started this process as a worker, but ", who,
              " has cleared its environment (", worker_link::kDescriptorVariable,
              " is not set): it would train alone, in a world of one. To be a worker: ", remedy,
              " ; or set ", kAllowSingleVariable, "=1 if it is meant to be a world of its own")};
}

std::vector<std::string> own_command_line() {
  pid_t pid = ::getpid();
  for (;;) {
    auto words = split(read_proc_file(cat("/proc/", pid, "/cmdline")), '\0');
    const bool is_of_multiprocessing = std::any_of(
        words.begin(), words.end(),
        [](const std::string& word) { return word.starts_with("from multiprocessing."); });
    const auto parent = is_of_multiprocessing ? parent_of(pid) : std::nullopt;
    if (!parent || *parent == 0) return words;
    pid = *parent;
  }
}

std::string closed_link_text() {
  const Ancestors ancestors = ancestors_of_this_process();
  if (ancestors.of_worker && ancestors.wrapper != nullptr) {
    return cat(ancestors.wrapper->name(), " has closed it: ", ancestors.wrapper->remedy, '.');
  }
  if (!ancestors.of_worker && is_in_container()) {
    return cat(
        "This process is in a container that was started for a worker, and no container inherits "
        "that link, whatever docker or podman is told: ",
        kContainerRemedy, '.');
  }
  return cat("Either a program between hvdrun and this one has closed it",
             ancestors.of_worker ? programs_text(ancestors) : "",
             ": Python's subprocess does so without close_fds=False, and multiprocessing with its "
             "methods spawn and forkserver always; sudo, ssh, docker and conda run do. Or this "
             "program was started by exec() after a call of hvd::init(): the link ends with the "
             "program that called it. Or the variable was set by hand: only hvdrun sets it.");
}

}  // namespace hvd::worker
