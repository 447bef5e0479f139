// Facts about processes from Linux's /proc. A process that ends meanwhile is simply not there any
// more: no call here fails. Safe from any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "base/clock.h"

namespace hvd {

// A file of /proc, whole; empty if it cannot be read.
std::string read_proc_file(const std::string& path);
// The numbers that are names in a directory of /proc: of "/proc" itself, the pids of all processes.
std::vector<pid_t> numbers_in(const std::string& directory);
// Nothing if there is no such process.
std::optional<pid_t> parent_of(pid_t pid);
// 'R' runs, 'S' sleeps, 'D' waits for a device, 'T' was stopped by a signal, 't' by a debugger, 'Z'
// has ended; 0: there is no such process.
char state_of(pid_t pid);
// Such a letter in words: "sleeps", "waits for a device or a file system".
std::string_view process_state_text(char state);
// The wait status of a process that ends with a failure, as soon as that is certain: its memory may
// still have to be freed, before its parent can wait for it. Nothing: it lives, or ends with 0.
std::optional<int> failure_of_dying(pid_t pid);
// It has a handler for this signal.
bool handles(pid_t pid, int signal_number);
// It was sent SIGSTOP, and has not run since, so it has not stopped yet.
bool is_about_to_stop(pid_t pid);
// It is going to stop as soon as it gets a core: as above, or since some of its threads have
// stopped, or one that a debugger attaches to has not. SIGCONT would take back the stop that the
// debugger waits for.
bool has_stop_under_way(pid_t pid);
// There is no such process, or all its threads have ended, so that its memory and its descriptors
// are free.
bool is_dead(pid_t pid);
// Stopped by a signal or by a debugger, so that it does nothing until somebody lets it go on.
bool is_stopped(pid_t pid);

// For how long the calling thread was ready to run and had no core, since it began. Nothing if the
// kernel does not tell.
std::optional<Duration> time_without_core();

}  // namespace hvd
