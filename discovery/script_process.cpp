#include "discovery/script_process.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <poll.h>
#include <string_view>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/machine/proc.h"
#include "base/socket.h"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace hvd::discovery {
namespace {

constexpr int kControl = 3;  // in the reaper
constexpr std::size_t kListSize = 4096;
constexpr int kLookAgainMs = 5;  // whether the script has ended, on a kernel without pidfd_open()

// ---- in the reaper: it was forked beside threads, so only what is safe in a signal handler ----

void set_signals_to_default() {
  for (int number = 1; number < NSIG; ++number) std::signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

[[noreturn]] void become_script(pid_t reaper, int null, int output, int errors,
                                char* const* arguments) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != reaper) ::_exit(1);  // it died before that held
  ::dup2(null, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(errors, STDERR_FILENO);
  close_descriptors(STDERR_FILENO + 1);
  ::execve(arguments[0], arguments, environ);
  ::_exit(127);
}

// Sends SIGKILL to every child of this process, as /proc tells. Children only: their numbers cannot
// be used again before they are reaped here.
void kill_children() {
  const int list = ::open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
  if (list < 0) return;
  std::array<char, kListSize> text{};
  pid_t pid = 0;
  for (;;) {
    const ssize_t size = ::read(list, text.data(), text.size());
    if (size <= 0) break;
    for (const char character : std::string_view(text.data(), static_cast<std::size_t>(size))) {
      if (character >= '0' && character <= '9') {
        pid = pid * 10 + (character - '0');
      } else {
        if (pid > 0) ::kill(pid, SIGKILL);
        pid = 0;
      }
    }
  }
  if (pid > 0) ::kill(pid, SIGKILL);
  ::close(list);
}

// Until no child is left. The script's own status is kept.
void end_all(pid_t script, int& script_status, bool& script_reaped) {
  // At once for all of its group, so that no fork gets away; then processes that left the group.
  if (!script_reaped) ::kill(-script, SIGKILL);
  for (;;) {
    kill_children();
    int status = 0;
    const pid_t ended = ::waitpid(-1, &status, __WALL);
    if (ended < 0 && errno == EINTR) continue;
    if (ended < 0) return;
    if (ended != script) continue;
    script_status = status;
    script_reaped = true;
    // While it was not reaped its number was its group's alone.
  }
}

[[noreturn]] void keep(int control, int output, int errors, char* const* arguments) {
  ::setsid();
  set_signals_to_default();

  // A script that ends its parent (kill $PPID) would end the process that makes sure that nothing
  // of the script stays.
  sigset_t every;
  sigfillset(&every);
  ::sigprocmask(SIG_SETMASK, &every, nullptr);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);

  const int null = ::open("/dev/null", O_RDWR);
  const pid_t self = ::getpid();
  const pid_t script = ::fork();
  if (script == 0) {
    set_signals_to_default();
    become_script(self, null, output, errors, arguments);
  }

  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null, standard);
  // Nobody's end of a link may stay open here when its owner is gone.
  if (control != kControl) ::dup2(control, kControl);
  close_descriptors(kControl + 1);

  int status = 127 << 8;
  if (script > 0) {
    bool reaped = false;
    const int watch = static_cast<int>(::syscall(SYS_pidfd_open, script, 0));
    std::array<pollfd, 2> events{pollfd{kControl, POLLIN, 0}, pollfd{watch, POLLIN, 0}};
    const int pause = watch < 0 ? kLookAgainMs : -1;
    for (;;) {
      const int ready = ::poll(events.data(), events.size(), pause);
      if (ready > 0 || (ready < 0 && errno != EINTR)) break;
      if (wait_for_child(script, TimePoint::min())) break;
    }
    end_all(script, status, reaped);
  }
  ::send(kControl, &status, sizeof status, MSG_NOSIGNAL);
  ::_exit(0);
}

// ---- in this process ----

Result<std::pair<UniqueFd, UniqueFd>> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return Status::from_errno("make a pipe", errno);
  return std::pair{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

std::vector<std::string> arguments_of(const std::string& command) {
  std::error_code error;
  const auto path = std::filesystem::absolute(command, error);
  if (!error && std::filesystem::exists(path, error) &&
      !std::filesystem::is_directory(path, error)) {
    // By way of the shell, which knows what to do with a script that has no #! line.
    return {"/bin/sh", "-c", "exec \"$0\"", path.string()};
  }
  return {"/bin/sh", "-c", command};
}

// One look. True if nothing of the session is left but the reaper.
bool kill_session_once(pid_t reaper, TimePoint deadline) {
  bool found = false;
  for (const pid_t pid : numbers_in("/proc")) {
    // A session keeps its number while its leader is not reaped; with a descriptor of the process
    // the signal goes to no other that got its number since.
    if (pid == reaper || ::getsid(pid) != reaper) continue;
    const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (::getsid(pid) != reaper) continue;
    const pid_t parent = parent_of(pid).value_or(reaper);
    const bool is_ours = parent == ::getpid();
    // Its parent left the session, and is to reap it.
    if (!is_ours && state_of(pid) == 'Z' && ::getsid(parent) != reaper) continue;
    if (process) {
      ::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0);
    } else {
      ::kill(pid, SIGKILL);
    }
    if (is_ours && wait_for_child(pid, deadline)) ::waitpid(pid, nullptr, WNOHANG);
    found = true;
  }
  return !found;
}

}  // namespace

Result<ScriptProcess> start_script(const std::string& command) {
  auto control = socket_pair();
  HVD_RETURN_IF_ERROR(control.status());
  auto output = make_pipe();
  HVD_RETURN_IF_ERROR(output.status());
  auto errors = make_pipe();
  HVD_RETURN_IF_ERROR(errors.status());
  std::vector<std::string> words = arguments_of(command);
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  // No handler of ours may run in the child.
  sigset_t every;
  sigset_t before;
  sigfillset(&every);
  ::pthread_sigmask(SIG_SETMASK, &every, &before);
  auto reaper = ChildProcess::start([&]() -> Result<pid_t> {
    const pid_t pid = ::fork();
    if (pid == 0) {
      keep(control->second.get(), output->second.get(), errors->second.get(), arguments.data());
    }
    if (pid < 0) return Status::from_errno("fork", errno);
    return pid;
  });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!reaper.ok()) return reaper.status();
  return ScriptProcess{*std::move(reaper), std::move(control->first), std::move(output->first),
                       std::move(errors->first)};
}

bool kill_session_of(pid_t reaper, std::chrono::milliseconds limit) {
  const TimePoint deadline = Clock::now() + limit;
  while (!kill_session_once(reaper, deadline)) {
    if (Clock::now() >= deadline) return false;
  }
  return true;
}

}  // namespace hvd::discovery
