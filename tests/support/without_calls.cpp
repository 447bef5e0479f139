// hvd_without_calls CALL,CALL...[=EPERM] PROGRAM [ARGUMENTS...]: runs a program as if the kernel
// lacked these system calls, or forbade them. With watch=FD in their place it is as if there were
// too many watches for an epoll to take this descriptor, and with container as in a container.
// Exit code 77 if that cannot be done here.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

#include "base/text.h"
#include "tests/support/missing_calls.h"

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const auto words = hvd::split(argv[1], '=');
  const int error = words.size() > 1 && words[1] == "EPERM" ? EPERM : ENOSYS;
  bool taken = false;
  if (words[0] == "watch" && words.size() > 1) {
    taken = hvd::test::take_away_watch(std::atoi(words[1].c_str()));
  } else if (words[0] == "container") {
    taken = hvd::test::take_away_as_containers_do();
  } else {
    taken = hvd::test::take_away(hvd::split(words[0], ','), error);
  }
  if (!taken) return 77;
  ::execvp(argv[2], argv + 2);
  std::perror(argv[2]);
  return 127;
}
