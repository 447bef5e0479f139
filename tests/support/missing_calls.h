// A kernel that lacks some system calls, for this process and what it starts: a filter answers them
// with ENOSYS (or another error). Linux on x86-64 and arm64.
#pragma once

#include <string>
#include <vector>

namespace hvd::test {

// Names as in <sys/syscall.h>: "close_range", "pidfd_open", "getrandom". For good. False if the
// kernel takes no such filter, or a name is not known here.
bool take_away(const std::vector<std::string>& calls, int error);

}  // namespace hvd::test
