// The activity of a process and of all that descend from it, in words for a person. A free function
// over /proc; it keeps nothing.
#pragma once

#include <string>
#include <sys/types.h>

namespace hvd::agent {

// "train (pid 4242) runs, 12.3 s of processor time"; of several processes, how many there are, the
// time of all that live, and whether any of them runs. "pid 4242 has ended" if there is none.
std::string describe_processes(pid_t root);

}  // namespace hvd::agent
