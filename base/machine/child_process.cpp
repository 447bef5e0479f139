#include "base/machine/child_process.h"

#include <cerrno>
#include <csignal>
#include <mutex>
#include <set>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/machine/proc.h"
#include "base/text.h"

namespace hvd {
namespace {

struct OwnedChildren {
  std::mutex mutex;  // held while a child is started, and while it is reaped
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
  const std::scoped_lock lock(owned.mutex);
  const auto pid = spawn();
  if (!pid.ok()) return pid.status();
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
  const std::scoped_lock lock(owned.mutex);
  std::vector<pid_t> children;
  const pid_t self = ::getpid();
  for (const pid_t pid : numbers_in("/proc")) {
    if (parent_of(pid) == self && !owned.pids.contains(pid)) children.push_back(pid);
  }
  return children;
}

}  // namespace hvd
