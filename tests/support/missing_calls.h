// A kernel that lacks some system calls, for this process and what it starts: a filter answers them
// with ENOSYS (or another error). Linux on x86-64 and arm64.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/descriptors.h"

namespace hvd::test {

// Names as in <sys/syscall.h>: "close_range", "pidfd_open", ... For good. False if the
// kernel takes no such filter, or a name is not known here.
bool take_away(const std::vector<std::string>& calls, int error);

// What the default filter of Docker and of Kubernetes' runtimes takes away from a container without
// capabilities.
bool take_away_as_containers_do();

// The same for the watch of this descriptor by an epoll, as if the user had no more of them
// (fs.epoll.max_user_watches).
bool take_away_watch(int fd);

// Holds each fallocate() of the calling thread that reserves memory until answer_next(). The
// descriptor is readable while one is held; empty: the kernel takes no such filter.
UniqueFd hold_reservations();
// Waits for the next one; then it fails with `error`, or is done if that is 0.
bool answer_next(const UniqueFd& held, int error);

// Runs `act` in a fork of this process that can start no thread. Its exit code; 77 if the kernel
// takes no such filter.
int without_threads(const std::function<int()>& act);

}  // namespace hvd::test
