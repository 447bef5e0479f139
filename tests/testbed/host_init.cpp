#include "tests/testbed/host_init.h"

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <sched.h>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "tests/testbed/files.h"
#include "tests/testbed/system.h"

namespace hvd::test::bed {

const unsigned long kHostNamespaces =
    CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC;

namespace {

namespace fs = std::filesystem;

// Of the /proc that this process was born with, so as the machine counts.
std::string pid_on_machine() { return fs::read_symlink("/proc/self").string(); }

void print_to(const fs::path& log) {
  const UniqueFd in(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const UniqueFd out(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!in || !out) throw_errno("open " + log.string());
  ::dup2(in.get(), 0);
  ::dup2(out.get(), 1);
  ::dup2(out.get(), 2);
}

void set_up_network(const Plan& plan, int number) {
  const BedOptions& options = plan.options;
  const fs::path ipv6_settings = "/proc/sys/net/ipv6/conf";
  if (fs::exists(ipv6_settings)) {
    for (const char* name : {"all", "default", "lo", "eth0"}) {
      if (!fs::exists(ipv6_settings / name)) continue;
      // An address is usable at once: no other host can have it.
      write_file(ipv6_settings / name / "accept_dad", "0");
      write_file(ipv6_settings / name / "accept_ra", "0");
      write_file(ipv6_settings / name / "disable_ipv6", options.ipv6 ? "0" : "1");
    }
  } else if (options.ipv6) {
    throw std::runtime_error("this kernel has no IPv6; a bed with ipv6 = false would do");
  }
  std::string batch = "link set lo up\n";
  if (!options.ipv4) batch += "address del 127.0.0.1/8 dev lo\n";
  if (options.ipv4) batch += cat("address add ", ipv4_of(number), "/24 dev eth0\n");
  if (options.ipv6) batch += cat("address add ", ipv6_of(number), "/64 dev eth0 nodad\n");
  batch += "link set eth0 up\n";
  // All neighbours are entered beforehand, as on a network behind routers: a host that is off is
  // silent, instead of "no route to host" after some seconds.
  for (int other = 0; other <= plan.last(); ++other) {
    if (other == number) continue;
    const std::string rest = cat(" lladdr ", mac_of(other), " dev eth0 nud permanent\n");
    // The kernel may have learned it already, from a host that looks for this one.
    if (options.ipv4) batch += cat("neighbour replace ", ipv4_of(other), rest);
    if (options.ipv6) batch += cat("neighbour replace ", ipv6_of(other), rest);
  }
  run_program({.arguments = {"ip", "-batch", "-"}, .input = batch});
}

// Returns when it listens: it writes its pid then.
void start_sshd(const fs::path& log) {
  const pid_t pid = ::fork();
  if (pid < 0) throw_errno("fork");
  if (pid == 0) {
    reset_signals();
    ::setsid();
    ::execl("/usr/sbin/sshd", "/usr/sbin/sshd", "-D", "-e", nullptr);
    ::_exit(127);
  }
  while (!fs::exists(kSshdPidFile)) {
    int raw = 0;
    if (::waitpid(pid, &raw, WNOHANG) == pid) {
      throw std::runtime_error(cat("sshd does not start; it says: ", trim(read_log(log))));
    }
    ::usleep(500);
  }
}

[[noreturn]] void reap_for_ever() {
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  for (;;) {
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    int number = 0;
    ::sigwait(&child, &number);
  }
}

void become_host(const Plan& plan, int number, int server) {
  const std::string name = name_of(number);
  const std::string pid = pid_on_machine();
  ::setsid();
  print_to(plan.directory_of(number) / "log");
  if (::sethostname(name.c_str(), name.size()) != 0) throw_errno("sethostname");
  const UniqueFd log(::open((plan.directory_of(number) / "log").c_str(), O_RDONLY | O_CLOEXEC));
  if (number == kHead) {
    make_head_files(plan);
  } else {
    make_host_files(plan, number);
  }
  send_record(server, "files " + pid);
  std::string go;
  if (!receive_record(server, go)) ::_exit(1);
  set_up_network(plan, number);
  if (number != kHead) start_sshd(cat("/proc/self/fd/", log.get()));
}

}  // namespace

void be_host(const Plan& plan, int number, int server) {
  try {
    close_others(server);
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    ::sigprocmask(SIG_BLOCK, &child, nullptr);
    become_host(plan, number, server);
    send_record(server, "ready");
    ::close(server);
  } catch (const std::exception& error) {
    tell(server, cat("error ", name_of(number), ": ", error.what()));
    ::_exit(1);
  }
  reap_for_ever();
}

}  // namespace hvd::test::bed
