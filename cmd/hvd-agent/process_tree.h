// Finding, freezing and ending every process that descends from one, also those that left its
// session and its process group, and telling what they do. Free functions over /proc; they keep
// nothing. Used by the reaper (reaper.h).
#pragma once

#include <functional>
#include <set>
#include <string>
#include <sys/types.h>
#include <vector>

namespace hvd::agent {

struct Descendant {
  pid_t pid = 0;
  pid_t parent = 0;  // when it was seen
};

// Where the walk looks: /proc/<pid>/task/*/children reads only the tree itself, but not every
// kernel has it; the table of all processes always works.
enum class TreeSource { children_files, process_table };
TreeSource best_tree_source();

// Everything that descends from `root`, without `root`, parents first. A tree that changes
// meanwhile may be seen in part. Zombies may be among them.
std::vector<Descendant> descendants_of(pid_t root, TreeSource source = best_tree_source());

enum class Signalled {
  yes,
  forbidden,
  gone,
  unknown,  // not sent: it does not seem to be a child of either, and may be a stranger
};
// Sends `signal_number`, unless the number meanwhile belongs to a process that is neither a child
// of `process.parent` nor of `root` (which inherits orphans): never hits a stranger.
Signalled signal_descendant(const Descendant& process, pid_t root, int signal_number);

// One pass of killing: freezes everything that descends from `root`, again until a walk finds
// nothing new, so that nothing can fork away; then SIGKILL to all that was frozen. A killed process
// is not yet gone: the caller reaps, and calls again until there is nothing left to reap. Children
// of `root` that stand in `spared` are left alone, with all that descends from them.
//
// `reap` is called before each walk, to take away the children of the caller that have ended. A
// process that forks and ends, again and again, leaves thousands of them, and a walk that passes by
// all of them comes to the last one when it has ended, too.
struct KillPass {
  std::vector<pid_t> found;      // everything that was there
  std::vector<pid_t> forbidden;  // of them, those that may not be signalled
};
using Reap = std::function<void()>;
KillPass kill_descendants(pid_t root, const Reap& reap, const std::vector<pid_t>& spared = {});

// Stops everything that descends from `root`, again until a walk finds nothing new, and adds to
// `frozen` the processes that ran until then: a process that was stopped before must not be thawed.
// To be called again now and then, since any process may send SIGCONT. `reap` as above.
void freeze_descendants(pid_t root, const Reap& reap, std::set<pid_t>& frozen);
// Lets go on what stands in `frozen`, children before parents. There stays what cannot go on yet or
// was not found, though it may be there: to be called again until it is empty.
void thaw_descendants(pid_t root, std::set<pid_t>& frozen);

// The activity of a process and of all that descend from it, in words for a person:
// "train (pid 4242) runs, 12.3 s of processor time"; of several processes, how many there are, the
// time of all that live, and whether any of them runs. "pid 4242 has ended" if there is none.
std::string describe_processes(pid_t root);

}  // namespace hvd::agent
