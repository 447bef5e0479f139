#include "cmd/hvd-agent/process_state.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unistd.h>

#include "base/machine/proc.h"
#include "base/text.h"
#include "cmd/hvd-agent/process_tree.h"

namespace hvd::agent {
namespace {

struct ProcessState {
  std::string name;
  char state = '?';
  std::uint64_t ticks = 0;  // of processor time, in user and kernel mode
};

// proc(5), /proc/PID/stat: "pid (name) state ppid ...", utime and stime are the fields 14 and 15.
std::optional<ProcessState> process_state(pid_t pid) {
  constexpr std::size_t kUserTime = 11;  // counted from the state on
  const std::string stat = read_proc_file(cat("/proc/", pid, "/stat"));
  const auto open = stat.find('(');
  const auto close = stat.rfind(')');  // the name may hold anything
  if (open == std::string::npos || close == std::string::npos || close < open) return std::nullopt;

  const auto fields = split(std::string_view(stat).substr(std::min(close + 2, stat.size())), ' ');
  if (fields.size() <= kUserTime + 1 || fields[0].empty()) return std::nullopt;
  ProcessState state;
  for (const char one : std::string_view(stat).substr(open + 1, close - open - 1)) {
    state.name += one > ' ' && one < 0x7f ? one : '?';  // a program names itself
  }
  state.state = fields[0].front();
  state.ticks = parse_number<std::uint64_t>(fields[kUserTime]).value_or(0) +
                parse_number<std::uint64_t>(fields[kUserTime + 1]).value_or(0);
  return state;
}

// The state that says most of a family: one that runs, else one that waits for a device.
int weight(char state) { return state == 'R' ? 2 : state == 'D' ? 1 : 0; }

}  // namespace

std::string describe_processes(pid_t root) {
  const auto first = process_state(root);
  if (!first) return cat("pid ", root, " has ended");

  char state = first->state;
  std::uint64_t ticks = first->ticks;
  std::size_t others = 0;
  for (const auto& descendant : descendants_of(root)) {
    const auto found = process_state(descendant.pid);
    if (!found) continue;
    ++others;
    ticks += found->ticks;
    if (weight(found->state) > weight(state)) state = found->state;
  }

  const auto per_second = static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK));
  const auto tenths = ticks * 10 / per_second;
  return cat(
      first->name, " (pid ", root,
      others == 0 ? std::string() : cat(", with ", others, others == 1 ? " child" : " descendants"),
      ") ", process_state_text(state), ", ", tenths / 10, ".", tenths % 10, " s of processor time");
}

}  // namespace hvd::agent
