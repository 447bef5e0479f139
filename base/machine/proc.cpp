#include "base/machine/proc.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <unistd.h>

#include "base/descriptors.h"
#include "base/text.h"

namespace hvd {
namespace {

// The fields of /proc/PID/stat from the state on; empty if there is no such process.
std::string stat_after_name(pid_t pid) {
  const std::string stat = read_proc_file(cat("/proc/", pid, "/stat"));
  const auto close = stat.rfind(')');  // the name before it may hold anything
  return close == std::string::npos || stat.size() < close + 3 ? "" : stat.substr(close + 2);
}

std::string status_of(pid_t pid) { return read_proc_file(cat("/proc/", pid, "/status")); }

// Whether the signal is one of those in this line of /proc/PID/status.
bool is_in_signals(const std::string& status, std::string_view line, int signal_number) {
  const auto at = status.find(line);
  if (at == std::string::npos) return false;
  std::uint64_t signals = 0;
  std::from_chars(status.data() + at + line.size(), status.data() + status.size(), signals, 16);
  return (signals >> (signal_number - 1) & 1) != 0;
}

}  // namespace

std::string read_proc_file(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  if (!fd) return text;
  std::array<char, 4096> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  for (;;) {
    const ssize_t got = ::read(fd.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

std::vector<pid_t> numbers_in(const std::string& directory) {
  std::vector<pid_t> numbers;
  const std::unique_ptr<DIR, int (*)(DIR*)> opened(::opendir(directory.c_str()), ::closedir);
  if (!opened) return numbers;
  while (const dirent* const entry = ::readdir(opened.get())) {
    if (const auto number = parse_number<pid_t>(entry->d_name)) numbers.push_back(*number);
  }
  return numbers;
}

std::optional<pid_t> parent_of(pid_t pid) {
  const std::string stat = stat_after_name(pid);
  if (stat.size() < 3) return std::nullopt;
  pid_t parent = 0;
  const char* const first = stat.data() + 2;  // "S 123 ..."
  if (std::from_chars(first, stat.data() + stat.size(), parent).ec != std::errc()) {
    return std::nullopt;
  }
  return parent;
}

std::string_view process_state_text(char state) {
  switch (state) {
    case 'R':
      return "runs";
    case 'S':
    case 'I':
      return "sleeps";
    case 'D':
      return "waits for a device or a file system";
    case 'T':
      return "is stopped";
    case 't':
      return "is held by a debugger";
    case 'Z':
    case 'X':
      return "has ended";
    default:
      return "is in an unknown state";
  }
}

std::optional<int> failure_of_dying(pid_t pid) {
  constexpr std::size_t kFlags = 6;  // of the fields after the name, as in proc(5)
  constexpr std::size_t kExitCode = 49;
  constexpr std::uint32_t kIsExiting = 0x4;  // PF_EXITING of the kernel
  const std::string stat = stat_after_name(pid);
  const auto fields = split(trim(stat), ' ');
  if (fields.size() <= kExitCode) return std::nullopt;
  const auto flags = parse_number<std::uint32_t>(fields[kFlags]);
  const auto code = parse_number<int>(fields[kExitCode]);
  // The flag is set a little before the code, which is 0 meanwhile.
  if (!flags || (*flags & kIsExiting) == 0 || code.value_or(0) == 0) return std::nullopt;
  // Linux before 5.16 ends threads while the core is still written, of which the code will tell.
  const bool dumps = status_of(pid).find("CoreDumping:\t1") != std::string::npos;
  return dumps ? std::nullopt : code;
}

bool handles(pid_t pid, int signal_number) {
  return is_in_signals(status_of(pid), "\nSigCgt:\t", signal_number);
}

bool is_about_to_stop(pid_t pid) { return is_in_signals(status_of(pid), "\nShdPnd:\t", SIGSTOP); }

// A thread that waits for a device may do so for long, so only the debugger's stop counts there.
bool has_stop_under_way(pid_t pid) {
  constexpr std::string_view kState = "\nState:\t";
  bool is_for_all = is_about_to_stop(pid);
  bool runs = false;
  for (const pid_t thread : numbers_in(cat("/proc/", pid, "/task"))) {
    const std::string status = status_of(thread);
    const auto at = status.find(kState);
    const char state = at == std::string::npos ? '\0' : status[at + kState.size()];
    is_for_all = is_for_all || state == 'T';
    runs = runs || state == 'R';
    if (state == 'T' || state == 't') continue;
    if (is_in_signals(status, "\nSigPnd:\t", SIGSTOP)) return true;
  }
  return is_for_all && runs;
}

char state_of(pid_t pid) {
  const std::string stat = stat_after_name(pid);
  return stat.empty() ? '\0' : stat.front();
}

// The first thread of a process may end before the others, and stays among them.
bool is_dead(pid_t pid) {
  const char state = state_of(pid);
  if (state == '\0' || state == 'X') return true;
  return state == 'Z' && numbers_in(cat("/proc/", pid, "/task")).size() <= 1;
}

bool is_stopped(pid_t pid) {
  const char state = state_of(pid);
  return state == 'T' || state == 't';
}

// The second number of schedstat, in nanoseconds.
std::optional<Duration> time_without_core() {
  const auto numbers = split(read_proc_file("/proc/thread-self/schedstat"), ' ');
  if (numbers.size() < 2) return std::nullopt;
  const auto waited = parse_number<std::int64_t>(numbers[1]);
  if (!waited) return std::nullopt;
  return std::chrono::nanoseconds(*waited);
}

}  // namespace hvd
