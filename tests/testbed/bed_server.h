// The processes behind a HostBed. One stays in the machine's namespaces only to clean up. Its child
// is the first process of the bed's own namespaces, owns the network, starts the hosts and serves
// the requests of the bed's maker. When the maker's end of the socket closes, or the maker ends,
// the child ends, the kernel ends everything in its namespaces, and the bed's directory is removed.
#pragma once

#include "tests/testbed/plan.h"

namespace hvd::test::bed {

// Each request and each answer is one record. Requests:
//   cut_off N | cut N M | heal | shape N RATE DELAY LOSS | crash N | boot N | capture FILE |
//   end_capture
// Answers are "ok" or "error" and, in the next line, what went wrong. The first answer comes by
// itself when the bed is up: "ok", its directory, and the pids of the hosts' first processes, the
// head's first; that to "boot" has the pid of its host.
//
// Returns at the bed's end with the exit code of the process.
int serve_bed(Plan plan, int control, pid_t maker);

}  // namespace hvd::test::bed
