#include "cmd/hvd-agent/process_tree.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <iterator>
#include <optional>
#include <set>
#include <signal.h>
#include <string>
#include <string_view>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/descriptors.h"
#include "base/machine/proc.h"
#include "base/text.h"

namespace hvd::agent {
namespace {

// Walks of one pass, at most: a fork bomb is frozen well before, and if not, the next pass goes on.
constexpr int kMaxFreezingWalks = 32;

// Children belong to the thread that made them, so there is one list a thread.
void append_children(pid_t pid, std::vector<Descendant>& into) {
  const std::string tasks = cat("/proc/", pid, "/task");
  for (const pid_t thread : numbers_in(tasks)) {
    for (const auto& word : split(read_proc_file(cat(tasks, "/", thread, "/children")), ' ')) {
      if (const auto child = parse_number<pid_t>(word)) into.push_back({*child, pid});
    }
  }
}

std::vector<Descendant> descendants_but(pid_t root, const std::vector<pid_t>& spared) {
  auto processes = descendants_of(root);
  std::set<pid_t> left_out(spared.begin(), spared.end());
  std::erase_if(processes, [&](const Descendant& process) {  // parents come first
    const bool out = process.parent == root ? left_out.count(process.pid) != 0
                                            : left_out.count(process.parent) != 0;
    if (out) left_out.insert(process.pid);
    return out;
  });
  return processes;
}

// Calls `freeze` for every process that is found, again until a walk finds no new one. Returns all
// of them, as they were found last: a walk may pass by some.
template <typename Freeze>
std::vector<Descendant> freeze_until_nothing_is_new(pid_t root, const Reap& reap,
                                                    const std::vector<pid_t>& spared,
                                                    Freeze freeze) {
  std::set<pid_t> seen;
  std::vector<Descendant> processes;
  for (int walk = 0; walk < kMaxFreezingWalks; ++walk) {
    reap();
    auto found = descendants_but(root, spared);
    bool found_new = false;
    std::set<pid_t> present;  // the number of a process that was reaped may be that of another one
    for (const auto& process : found) {
      present.insert(process.pid);
      if (seen.count(process.pid) != 0) continue;
      found_new = true;
      freeze(process);
    }
    std::copy_if(processes.begin(), processes.end(), std::back_inserter(found),
                 [&](const Descendant& process) { return present.count(process.pid) == 0; });
    processes = std::move(found);
    if (!found_new) break;
    seen.swap(present);
  }
  return processes;
}

// False if that is certain: it is gone, or another process has its number.
bool may_descend_from(pid_t pid, pid_t root) {
  if (::kill(pid, 0) != 0 && errno == ESRCH) return false;
  for (auto parent = parent_of(pid); parent != root; parent = parent_of(*parent)) {
    if (!parent) return true;  // it has just ended, or the system does not tell
    if (*parent == 0) return false;
  }
  return true;
}

}  // namespace

TreeSource best_tree_source() {
  static const bool has_children_files =
      ::access(cat("/proc/self/task/", ::getpid(), "/children").c_str(), R_OK) == 0;
  return has_children_files ? TreeSource::children_files : TreeSource::process_table;
}

std::vector<Descendant> descendants_of(pid_t root, TreeSource source) {
  std::vector<Descendant> found;
  if (source == TreeSource::children_files) {
    append_children(root, found);
    for (std::size_t i = 0; i < found.size(); ++i) append_children(found[i].pid, found);
    return found;
  }
  std::vector<Descendant> table;
  for (const pid_t pid : numbers_in("/proc")) {
    if (const auto parent = parent_of(pid)) table.push_back({pid, *parent});
  }
  const auto append_from_table = [&](pid_t pid) {
    for (const auto& process : table) {
      if (process.parent == pid) found.push_back(process);
    }
  };
  append_from_table(root);
  for (std::size_t i = 0; i < found.size(); ++i) append_from_table(found[i].pid);
  return found;
}

Signalled signal_descendant(const Descendant& process, pid_t root, int signal_number) {
  // The descriptor pins the identity: if the process is ours after it was opened, nobody else can
  // get the signal.
  const UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
  if (!pidfd && errno == ESRCH) return Signalled::gone;
  const auto parent = parent_of(process.pid);
  const auto send = [&](int number) {
    return pidfd ? ::syscall(SYS_pidfd_send_signal, pidfd.get(), number, nullptr, 0)
                 : ::kill(process.pid, number);
  };
  if (!parent && send(0) != 0 && errno == ESRCH) return Signalled::gone;
  if (parent != process.parent && parent != root) return Signalled::unknown;
  if (send(signal_number) == 0) return Signalled::yes;
  return errno == EPERM ? Signalled::forbidden : Signalled::gone;
}

KillPass kill_descendants(pid_t root, const Reap& reap, const std::vector<pid_t>& spared) {
  const auto processes = freeze_until_nothing_is_new(
      root, reap, spared,
      [&](const Descendant& process) { signal_descendant(process, root, SIGSTOP); });
  KillPass pass;
  for (const auto& process : processes) {
    const auto signalled = signal_descendant(process, root, SIGKILL);
    if (signalled == Signalled::gone) continue;
    pass.found.push_back(process.pid);
    if (signalled == Signalled::forbidden) pass.forbidden.push_back(process.pid);
  }
  return pass;
}

void freeze_descendants(pid_t root, const Reap& reap, std::set<pid_t>& frozen) {
  // Parents before children, so that a parent which asks for it does not hear of stopped children.
  freeze_until_nothing_is_new(root, reap, {}, [&](const Descendant& process) {
    // By us already, or by another process, whose stop a SIGCONT of ours would undo.
    if (state_of(process.pid) == 'T' || is_about_to_stop(process.pid)) return;
    signal_descendant(process, root, SIGSTOP);
    frozen.insert(process.pid);
  });
}

// A leak checker, for one, attaches to the program that ends by SIGSTOP, and waits for that stop
// for ever: so a process is let go on when it has stopped.
void thaw_descendants(pid_t root, std::set<pid_t>& frozen) {
  const auto processes = descendants_of(root);
  for (auto process = processes.rbegin(); process != processes.rend(); ++process) {
    if (frozen.count(process->pid) == 0 || has_stop_under_way(process->pid)) continue;
    if (signal_descendant(*process, root, SIGCONT) != Signalled::unknown) {
      frozen.erase(process->pid);
    }
  }
  std::erase_if(frozen, [&](pid_t pid) { return !may_descend_from(pid, root); });
}

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
