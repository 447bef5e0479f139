// What another user of the machine does, for tests that run as root.
#pragma once

#include <functional>
#include <grp.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace hvd::test {

inline constexpr uid_t kOtherUser = 65534;  // nobody

// The result of `act` in a process of that user, who is a member of these groups. False, too, if
// there can be no such process.
inline bool as_other_user(const std::vector<gid_t>& groups, const std::function<bool()>& act) {
  const pid_t child = ::fork();
  if (child < 0) return false;
  if (child == 0) {
    const bool changed = ::setgroups(groups.size(), groups.data()) == 0 &&
                         ::setgid(kOtherUser) == 0 && ::setuid(kOtherUser) == 0;
    ::_exit(changed && act() ? 0 : 1);
  }
  int status = 1;
  return ::waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace hvd::test
