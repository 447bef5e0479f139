// Whether this machine lets a test make hosts.
#include <cerrno>
#include <cstring>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "tests/testbed/hosts.h"
#include "tests/testbed/system.h"

namespace hvd::test {
namespace {

bool is_installed(const std::string& program) {
  for (const char* directory : {"/usr/sbin/", "/usr/bin/", "/sbin/", "/bin/"}) {
    if (::access((directory + program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

// Tries it in a child; its exit code is errno.
int errno_of_namespaces() {
  const pid_t pid = ::fork();
  if (pid < 0) return errno;
  if (pid == 0) {
    const int all = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC;
    ::_exit(::unshare(all) == 0 ? 0 : errno);
  }
  int raw = 0;
  ::waitpid(pid, &raw, 0);
  return WIFEXITED(raw) ? WEXITSTATUS(raw) : EPERM;
}

std::optional<std::string> find_reason() {
  if (::geteuid() != 0) return "pretend hosts need root, and this is an ordinary user";
  for (const auto& [program, package] :
       std::vector<std::pair<std::string, std::string>>{{"sshd", "openssh-server"},
                                                        {"ssh-keygen", "openssh-client"},
                                                        {"ssh", "openssh-client"},
                                                        {"ip", "iproute2"},
                                                        {"bridge", "iproute2"},
                                                        {"tc", "iproute2"},
                                                        {"iptables-restore", "iptables"},
                                                        {"ip6tables-restore", "iptables"},
                                                        {"tcpdump", "tcpdump"}}) {
    if (is_installed(program)) continue;
    return cat("the program ", program, " is missing: scripts/setup installs it (package ", package,
               ")");
  }
  if (const int error = errno_of_namespaces(); error != 0) {
    return cat("this machine lets nobody make namespaces: unshare: ", std::strerror(error));
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> HostBed::why_impossible() {
  static const std::optional<std::string> reason = find_reason();
  return reason;
}

}  // namespace hvd::test
