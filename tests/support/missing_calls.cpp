#include "tests/support/missing_calls.h"

#include <cerrno>
#include <cstddef>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <map>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hvd::test {

namespace {

sock_filter load(std::size_t at) {
  return sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<unsigned>(at));
}
// Without it the next `skipped` instructions are left out.
sock_filter expect(unsigned value, std::size_t skipped) {
  return sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0,
                              static_cast<unsigned char>(skipped));
}
sock_filter answer(unsigned what) { return sock_filter BPF_STMT(BPF_RET | BPF_K, what); }
sock_filter fail(int error) { return answer(SECCOMP_RET_ERRNO | static_cast<unsigned>(error)); }

// `rules` begin with the number of the call loaded. Negative: the kernel takes no such filter.
int install(const std::vector<sock_filter>& rules, unsigned flags = 0) {
#if defined(__x86_64__)
  constexpr unsigned kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
  constexpr unsigned kArchitecture = AUDIT_ARCH_AARCH64;
#else
  constexpr unsigned kArchitecture = 0;
#endif
  std::vector<sock_filter> program;
  program.push_back(load(offsetof(seccomp_data, arch)));
  program.push_back(sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0));
  program.push_back(answer(SECCOMP_RET_ALLOW));
  program.push_back(load(offsetof(seccomp_data, nr)));
  program.insert(program.end(), rules.begin(), rules.end());
  program.push_back(answer(SECCOMP_RET_ALLOW));
  sock_fprog whole{static_cast<unsigned short>(program.size()), program.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
  return static_cast<int>(::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &whole));
}

}  // namespace

bool take_away(const std::vector<std::string>& calls, int error) {
  static const std::map<std::string, unsigned> kNumbers{
      {"clone", SYS_clone},
      {"clone3", SYS_clone3},
      {"close_range", SYS_close_range},
      {"eventfd2", SYS_eventfd2},
      {"getrandom", SYS_getrandom},
      {"pidfd_open", SYS_pidfd_open},
      {"prctl", SYS_prctl},
      {"set_robust_list", SYS_set_robust_list},
      {"signalfd4", SYS_signalfd4},
  };
  std::vector<sock_filter> rules;
  for (const auto& call : calls) {
    const auto number = kNumbers.find(call);
    if (number == kNumbers.end()) return false;
    rules.push_back(expect(number->second, 1));
    rules.push_back(fail(error));
  }
  return install(rules) == 0;
}

bool take_away_as_containers_do() {
  // Of Docker's and containerd's default profile; calls that no program has used for long are left
  // out.
  constexpr unsigned kRefused[] = {SYS_acct,
                                   SYS_add_key,
                                   SYS_bpf,
                                   SYS_clock_adjtime,
                                   SYS_clock_settime,
                                   SYS_delete_module,
                                   SYS_finit_module,
                                   SYS_get_mempolicy,
                                   SYS_init_module,
                                   SYS_io_uring_enter,
                                   SYS_io_uring_register,
                                   SYS_io_uring_setup,
                                   SYS_kcmp,
                                   SYS_kexec_load,
                                   SYS_keyctl,
                                   SYS_mbind,
                                   SYS_mount,
                                   SYS_move_pages,
                                   SYS_open_by_handle_at,
                                   SYS_perf_event_open,
                                   SYS_pivot_root,
                                   SYS_quotactl,
                                   SYS_reboot,
                                   SYS_request_key,
                                   SYS_set_mempolicy,
                                   SYS_setns,
                                   SYS_settimeofday,
                                   SYS_swapoff,
                                   SYS_swapon,
                                   SYS_umount2,
                                   SYS_unshare,
                                   SYS_userfaultfd};
  std::vector<sock_filter> rules{expect(SYS_clone3, 1), fail(ENOSYS)};
  for (const unsigned call : kRefused) {
    rules.push_back(expect(call, 1));
    rules.push_back(fail(EPERM));
  }
  return install(rules) == 0;
}

bool take_away_watch(int fd) {
  // The low halves of the arguments.
  constexpr std::size_t kOperation = offsetof(seccomp_data, args[1]);
  constexpr std::size_t kDescriptor = offsetof(seccomp_data, args[2]);
  return install({expect(SYS_epoll_ctl, 5), load(kOperation), expect(EPOLL_CTL_ADD, 3),
                  load(kDescriptor), expect(static_cast<unsigned>(fd), 1), fail(ENOSPC)}) == 0;
}

UniqueFd hold_reservations() {
  constexpr std::size_t kMode = offsetof(seccomp_data, args[1]);
  return UniqueFd(
      install({expect(SYS_fallocate, 3), load(kMode), expect(0, 1), answer(SECCOMP_RET_USER_NOTIF)},
              SECCOMP_FILTER_FLAG_NEW_LISTENER));
}

bool answer_next(const UniqueFd& held, int error) {
  seccomp_notif call{};
  if (::ioctl(held.get(), SECCOMP_IOCTL_NOTIF_RECV, &call) != 0) return false;
  seccomp_notif_resp response{.id = call.id, .val = 0, .error = -error, .flags = 0};
  if (error == 0) response.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
  return ::ioctl(held.get(), SECCOMP_IOCTL_NOTIF_SEND, &response) == 0;
}

int without_threads(const std::function<int()>& act) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(take_away({"clone", "clone3"}, EAGAIN) ? act() : 77);
  int status = 0;
  if (::waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace hvd::test
