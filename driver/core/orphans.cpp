#include "driver/core/orphans.h"

#include <csignal>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <vector>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/machine/child_process.h"
#include "base/text.h"

namespace hvd::driver {

Subreaper::Subreaper() {
  ::prctl(PR_GET_CHILD_SUBREAPER, &previous_);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  for (const pid_t pid : children_without_owner()) earlier_children_.insert(pid);
}

Subreaper::~Subreaper() { ::prctl(PR_SET_CHILD_SUBREAPER, previous_); }

bool Subreaper::any_child() {
  siginfo_t info{};
  return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) == 0;
}

std::size_t Subreaper::kill_orphans(std::chrono::milliseconds limit) const {
  const TimePoint until = Clock::now() + limit;
  for (;;) {
    std::vector<pid_t> orphans;
    for (const pid_t pid : children_without_owner()) {
      if (earlier_children_.count(pid) == 0) orphans.push_back(pid);
    }
    if (orphans.empty()) return 0;

    // These are all children of this process, so their pids cannot be reused before they are reaped
    // here. Their own children are children of this process in the next round.
    for (const pid_t pid : orphans) ::kill(pid, SIGKILL);
    std::size_t left = 0;
    for (const pid_t pid : orphans) {
      wait_for_child(pid, until);
      if (::waitpid(pid, nullptr, WNOHANG | __WALL) == 0) ++left;
    }
    if (left > 0 && Clock::now() >= until) return left;
  }
}

namespace {

constexpr std::chrono::seconds kLimit{5};
// In the loop, where leases wait to be renewed.
constexpr std::chrono::milliseconds kMoment{50};

}  // namespace

void OrphanKiller::kill() {
  until_ = Clock::now() + kLimit;
  kill_within(kMoment);
}

void OrphanKiller::kill_within(std::chrono::milliseconds moment) {
  const std::size_t left = subreaper_.kill_orphans(moment);
  if (left == 0) return;
  if (Clock::now() >= until_) return warn(left);
  timer_.expires_after(kMoment);
  timer_.async_wait([this](boost::system::error_code error) {
    if (!error) kill_within(std::chrono::milliseconds(0));
  });
}

void OrphanKiller::kill_all() {
  if (Subreaper::any_child()) warn(subreaper_.kill_orphans(kLimit));
}

void OrphanKiller::warn(std::size_t left) {
  if (left == 0) return;
  observer_.on_warning(cat("could not kill ", left, " processes left by an agent that died"));
}

}  // namespace hvd::driver
