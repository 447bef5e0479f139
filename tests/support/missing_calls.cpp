#include "tests/support/missing_calls.h"

#include <cerrno>
#include <cstddef>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <map>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hvd::test {

bool take_away(const std::vector<std::string>& calls, int error) {
  static const std::map<std::string, unsigned> kNumbers{{"clone", SYS_clone},
                                                        {"clone3", SYS_clone3},
                                                        {"close_range", SYS_close_range},
                                                        {"pidfd_open", SYS_pidfd_open},
                                                        {"getrandom", SYS_getrandom}};
#if defined(__x86_64__)
  constexpr unsigned kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
  constexpr unsigned kArchitecture = AUDIT_ARCH_AARCH64;
#else
  constexpr unsigned kArchitecture = 0;
#endif
  const auto load = [](std::size_t at) {
    return sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<unsigned>(at));
  };
  const auto answer = [](unsigned what) { return sock_filter BPF_STMT(BPF_RET | BPF_K, what); };
  std::vector<sock_filter> program;
  program.push_back(load(offsetof(seccomp_data, arch)));
  program.push_back(sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0));
  program.push_back(answer(SECCOMP_RET_ALLOW));
  program.push_back(load(offsetof(seccomp_data, nr)));
  for (const auto& call : calls) {
    const auto number = kNumbers.find(call);
    if (number == kNumbers.end()) return false;
    program.push_back(sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number->second, 0, 1));
    program.push_back(answer(SECCOMP_RET_ERRNO | static_cast<unsigned>(error)));
  }
  program.push_back(answer(SECCOMP_RET_ALLOW));
  sock_fprog whole{static_cast<unsigned short>(program.size()), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &whole) == 0;
}

int without_threads(const std::function<int()>& act) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(take_away({"clone", "clone3"}, EAGAIN) ? act() : 77);
  int status = 0;
  if (::waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace hvd::test
