#include "base/machine/child_process.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/machine/proc.h"
#include "base/text.h"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace hvd {
namespace {

// A start may take long: until the child's program is found, on a file system that does not answer.
constexpr std::chrono::milliseconds kStartTimeout{100};

struct OwnedChildren {
  std::shared_timed_mutex starting;  // shared by all starts that are under way
  std::mutex mutex;                  // of what follows; held while a child is reaped, too
  std::set<pid_t> pids;
};

// Never destroyed: threads that were left behind at the end of the process may still use it.
OwnedChildren& owned_children() {
  static auto* const owned = new OwnedChildren;
  return *owned;
}

}  // namespace

Result<ChildProcess> ChildProcess::start(const std::function<Result<pid_t>()>& spawn) {
  OwnedChildren& owned = owned_children();
  const std::shared_lock starting(owned.starting);
  const auto pid = spawn();
  if (!pid.ok()) return pid.status();
  const std::scoped_lock lock(owned.mutex);
  owned.pids.insert(*pid);
  ChildProcess child;
  child.pid_ = *pid;
  return child;
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  return *this;
}

ChildProcess::~ChildProcess() {
  signal(SIGKILL);
  static_cast<void>(wait());
}

void ChildProcess::signal(int number) const {
  if (pid_ > 0) ::kill(pid_, number);
}

void ChildProcess::signal_group(int number) const {
  if (pid_ > 0) ::kill(-pid_, number);
}

Result<int> ChildProcess::wait() {
  if (pid_ < 0) return Status(Code::failed_precondition, "there is no child to wait for");
  wait_for_child(pid_, kNever);

  OwnedChildren& owned = owned_children();
  const std::scoped_lock lock(owned.mutex);
  const pid_t pid = std::exchange(pid_, -1);
  owned.pids.erase(pid);
  int status = 0;
  if (::waitpid(pid, &status, WNOHANG | __WALL) != pid) {
    return Status::from_errno(cat("wait for the child ", pid), errno);
  }
  return status;
}

void ChildProcess::disown() {
  OwnedChildren& owned = owned_children();
  const std::scoped_lock lock(owned.mutex);
  owned.pids.erase(std::exchange(pid_, -1));
}

std::vector<pid_t> children_without_owner() {
  OwnedChildren& owned = owned_children();
  // A child that is being started has no owner yet.
  const std::unique_lock none_starts(owned.starting, kStartTimeout);
  if (!none_starts) return {};
  const std::scoped_lock lock(owned.mutex);
  std::vector<pid_t> children;
  const pid_t self = ::getpid();
  for (const pid_t pid : numbers_in("/proc")) {
    if (parent_of(pid) == self && !owned.pids.contains(pid)) children.push_back(pid);
  }
  return children;
}

namespace {

// Owns posix_spawn's two objects.
struct SpawnPlan {
  posix_spawn_file_actions_t actions{};
  posix_spawnattr_t attributes{};
  SpawnPlan() {
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawnattr_init(&attributes);
  }
  ~SpawnPlan() {
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;
};

std::vector<char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (const auto& word : words) {
    pointers.push_back(const_cast<char*>(word.c_str()));  // NOLINT: exec's form
  }
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

Result<ChildProcess> spawn_in_session(const std::vector<std::string>& command,
                                      const ChildDescriptors& descriptors,
                                      const std::vector<std::string>* environment) {
  SpawnPlan plan;
  ::posix_spawn_file_actions_adddup2(&plan.actions, descriptors.input, STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&plan.actions, descriptors.output, STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&plan.actions, descriptors.errors, STDERR_FILENO);
  ::posix_spawn_file_actions_addclosefrom_np(&plan.actions, STDERR_FILENO + 1);

  sigset_t every;
  sigset_t none;
  sigfillset(&every);
  sigemptyset(&none);
  ::posix_spawnattr_setsigdefault(&plan.attributes, &every);
  ::posix_spawnattr_setsigmask(&plan.attributes, &none);
  ::posix_spawnattr_setflags(&plan.attributes,
                             POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);

  const auto words = pointers_to(command);
  const auto variables = environment == nullptr ? std::vector<char*>() : pointers_to(*environment);
  return ChildProcess::start([&]() -> Result<pid_t> {
    pid_t pid = -1;
    const int error =
        ::posix_spawnp(&pid, words.front(), &plan.actions, &plan.attributes, words.data(),
                       environment == nullptr ? environ : variables.data());
    if (error != 0) return Status::from_errno(cat("start ", command.front()), error);
    return pid;
  });
}

std::string signal_text(int signal_number) {
  const char* const name = ::sigabbrev_np(signal_number);
  return name == nullptr ? cat("signal ", signal_number)
                         : cat("SIG", name, " (signal ", signal_number, ")");
}

std::string end_text(int exit_code, int signal_number, bool core_dumped) {
  if (signal_number == 0) return cat("exited with code ", exit_code);
  return cat("was killed by ", signal_text(signal_number), core_dumped ? ", core dumped" : "");
}

std::string end_text(const Result<int>& wait_status) {
  if (!wait_status.ok()) return "ended";
  const int status = *wait_status;
  if (WIFSIGNALED(status)) return end_text(0, WTERMSIG(status), WCOREDUMP(status));
  return end_text(WEXITSTATUS(status), 0, false);
}

}  // namespace hvd
