#include "driver/orphans.h"

#include <array>
#include <csignal>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <poll.h>
#include <string>
#include <string_view>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "base/clock.h"
#include "base/text.h"
#include "base/unique_fd.h"

namespace hvd::driver {
namespace {

// From /proc/PID/stat: "pid (name) state parent ..."; the name may hold anything.
pid_t parent_of(pid_t pid) {
  const UniqueFd file(::open(cat("/proc/", pid, "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return 0;
  std::array<char, 1024> text{};
  const ssize_t size = ::read(file.get(), text.data(), text.size());
  if (size <= 0) return 0;
  const std::string_view stat(text.data(), static_cast<std::size_t>(size));
  const auto close = stat.rfind(')');
  if (close == std::string_view::npos) return 0;
  const auto fields = split(stat.substr(close + 1), ' ');  // "", state, parent
  return fields.size() < 3 ? 0 : parse_number<pid_t>(fields[2]).value_or(0);
}

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

std::vector<pid_t> children() {
  std::vector<pid_t> result;
  const std::unique_ptr<DIR, CloseDirectory> directory(::opendir("/proc"));
  if (!directory) return result;
  const pid_t self = ::getpid();
  while (const dirent* const entry = ::readdir(directory.get())) {
    const auto pid = parse_number<pid_t>(entry->d_name);
    if (pid && parent_of(*pid) == self) result.push_back(*pid);
  }
  return result;
}

}  // namespace

Subreaper::Subreaper() {
  ::prctl(PR_GET_CHILD_SUBREAPER, &previous_);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  for (const pid_t pid : children()) earlier_children_.insert(pid);
}

Subreaper::~Subreaper() { ::prctl(PR_SET_CHILD_SUBREAPER, previous_); }

bool Subreaper::any_child() {
  siginfo_t info{};
  return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) == 0;
}

std::size_t Subreaper::kill_orphans(const std::set<pid_t>& spared,
                                    std::chrono::milliseconds limit) const {
  const TimePoint until = Clock::now() + limit;
  for (;;) {
    std::vector<pid_t> orphans;
    for (const pid_t pid : children()) {
      if (earlier_children_.count(pid) == 0 && spared.count(pid) == 0) orphans.push_back(pid);
    }
    if (orphans.empty()) return 0;
    if (Clock::now() >= until) return orphans.size();
    // Only children: their numbers cannot be used again before we have reaped them. What they leave
    // behind are our children in the next round.
    for (const pid_t pid : orphans) ::kill(pid, SIGKILL);
    for (const pid_t pid : orphans) {
      const UniqueFd watch(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
      pollfd poll_watch{watch.get(), POLLIN, 0};
      if (watch) ::poll(&poll_watch, 1, milliseconds_until(until, Clock::now()));
      ::waitpid(pid, nullptr, WNOHANG | __WALL);
    }
  }
}

}  // namespace hvd::driver
