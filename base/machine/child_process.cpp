#include "base/machine/child_process.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/machine/proc.h"
#include "base/text.h"

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

}  // namespace hvd
