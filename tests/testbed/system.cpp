#include "tests/testbed/system.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <linux/capability.h>
#include <linux/nsfs.h>
#include <poll.h>
#include <sched.h>
#include <stdexcept>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/machine/proc.h"
#include "base/text.h"

namespace hvd::test::bed {
namespace {

UniqueFd memory_file(const std::string& content) {
  UniqueFd fd(::memfd_create("hvd-hosts", MFD_CLOEXEC));
  if (!fd) throw_errno("memfd_create");
  if (::write(fd.get(), content.data(), content.size()) != static_cast<ssize_t>(content.size())) {
    throw_errno("write to memory");
  }
  ::lseek(fd.get(), 0, SEEK_SET);
  return fd;
}

std::string content_of(int fd) {
  std::string text;
  ::lseek(fd, 0, SEEK_SET);
  std::array<char, 4096> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  for (ssize_t got = 0; (got = ::read(fd, buffer.data(), buffer.size())) > 0;) {
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return text;
}

}  // namespace

void throw_errno(const std::string& what) {
  throw std::runtime_error(cat(what, ": ", std::strerror(errno)));
}

void mount_at(const std::string& source, const std::filesystem::path& target,
              const std::string& type, unsigned long flags, const std::string& data) {
  if (::mount(source.c_str(), target.c_str(), type.c_str(), flags, data.c_str()) != 0) {
    throw_errno(cat("mount ", type.empty() ? source : type, " at ", target.string()));
  }
}

void bind_mount(const std::filesystem::path& source, const std::filesystem::path& target,
                bool read_only) {
  mount_at(source, target, "", MS_BIND | MS_REC);
  if (read_only) mount_at(source, target, "", MS_REMOUNT | MS_BIND | MS_RDONLY);
}

void mount_empty(const std::filesystem::path& target, const std::string& mode) {
  std::filesystem::create_directories(target);
  mount_at("none", target, "tmpfs", MS_NOSUID, "mode=" + mode);
}

void write_file(const std::filesystem::path& path, std::string_view content, mode_t mode) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode));
  if (!fd ||
      ::write(fd.get(), content.data(), content.size()) != static_cast<ssize_t>(content.size())) {
    throw_errno("write " + path.string());
  }
}

pid_t fork_into(unsigned long namespaces) {
  const long pid = ::syscall(SYS_clone, namespaces | SIGCHLD, nullptr, nullptr, nullptr, nullptr);
  if (pid < 0) throw_errno("make namespaces");
  return static_cast<pid_t>(pid);
}

UniqueFd open_pidfd(pid_t pid) {
  UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!fd) throw_errno(cat("pidfd_open ", pid));
  ::fcntl(fd.get(), F_SETFD, FD_CLOEXEC);
  return fd;
}

void enter_namespaces(int pidfd, int namespaces, const std::string& whose) {
  if (::setns(pidfd, namespaces) != 0) throw_errno("enter the namespaces of " + whose);
}

void close_others(int kept) {
  constexpr unsigned kFirst = 3;
  const auto last = static_cast<unsigned>(kept);
  if (last > kFirst) ::syscall(SYS_close_range, kFirst, last - 1, 0);
  ::syscall(SYS_close_range, std::max(last + 1, kFirst), ~0U, 0);
}

void reset_signals() {
  for (int number = 1; number < NSIG; ++number) {
    if (number != SIGKILL && number != SIGSTOP) ::signal(number, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

void give_up_the_clock() {
  if (::prctl(PR_CAPBSET_DROP, CAP_SYS_TIME) != 0) throw_errno("give up CAP_SYS_TIME");
}

ino_t pid_namespace_of(pid_t pid) {
  struct stat about {};
  return ::stat(cat("/proc/", pid, "/ns/pid").c_str(), &about) == 0 ? about.st_ino : 0;
}

bool lives_in(pid_t pid, ino_t pid_namespace) {
  UniqueFd at(::open(cat("/proc/", pid, "/ns/pid").c_str(), O_RDONLY | O_CLOEXEC));
  while (at) {
    struct stat about {};
    if (::fstat(at.get(), &about) != 0) return false;
    if (about.st_ino == pid_namespace) return true;
    at.reset(::ioctl(at.get(), NS_GET_PARENT));  // none above the machine's own
  }
  return false;
}

bool end_namespace(pid_t first, ino_t pid_namespace) {
  // A process gives up its files, then its network, and then waits to be reaped.
  const auto lives = [&](pid_t pid) {
    return lives_in(pid, pid_namespace) &&
           ::access(cat("/proc/", pid, "/ns/net").c_str(), F_OK) == 0;
  };
  ::kill(first, SIGKILL);
  constexpr int kRoundsForReaping = 20;
  for (int quiet_rounds = 0; quiet_rounds < kRoundsForReaping;) {
    if (::waitpid(first, nullptr, WNOHANG) == first) return true;
    const auto pids = numbers_in("/proc");
    if (std::none_of(pids.begin(), pids.end(), lives)) ++quiet_rounds;
    ::usleep(1000);
  }
  return false;
}

std::string run_program(const Command& command) {
  const UniqueFd input = memory_file(command.input);
  const UniqueFd output = memory_file("");
  std::vector<char*> arguments;
  arguments.reserve(command.arguments.size() + 1);
  for (const auto& word : command.arguments)
    arguments.push_back(const_cast<char*>(word.c_str()));  // NOLINT
  arguments.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) throw_errno("fork");
  if (pid == 0) {
    if (command.network_of >= 0 && ::setns(command.network_of, CLONE_NEWNET) != 0) ::_exit(126);
    reset_signals();
    ::dup2(input.get(), 0);
    ::dup2(output.get(), 1);
    ::dup2(output.get(), 2);
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  int raw = 0;
  while (::waitpid(pid, &raw, 0) < 0 && errno == EINTR) {
  }
  std::string printed = content_of(output.get());
  if (raw != 0) {
    const std::string ended = WIFSIGNALED(raw) ? cat("was killed by signal ", WTERMSIG(raw))
                                               : cat("ended with ", WEXITSTATUS(raw));
    throw std::runtime_error(
        cat("`", join(command.arguments, " "), "` ", ended, ": ", trim(printed)));
  }
  return printed;
}

void send_record(int socket, const std::string& text) {
  if (::send(socket, text.data(), text.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(text.size())) {
    throw_errno("send a request within the test bed");
  }
}

void tell(int socket, const std::string& text) noexcept {
  ::send(socket, text.data(), text.size(), MSG_NOSIGNAL);
}

bool receive_record(int socket, std::string& text, int limit_ms) {
  pollfd polled{socket, POLLIN, 0};
  int ready = 0;
  while ((ready = ::poll(&polled, 1, limit_ms)) < 0 && errno == EINTR) {
  }
  if (ready == 0) {
    throw std::runtime_error(cat("the test bed did not answer within ", limit_ms / 1000, " s"));
  }
  text.resize(65536);
  const ssize_t got = ::recv(socket, text.data(), text.size(), 0);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return got > 0;
}

}  // namespace hvd::test::bed
