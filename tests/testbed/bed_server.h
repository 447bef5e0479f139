// Keeps a bed: the processes behind a HostBed. One stays on the machine only to clear up; its child
// is the first process of the bed's own namespaces, holds the wire, starts the hosts and does what
// the maker of the bed asks. When the maker's end of the socket closes, or the maker ends, that
// child ends, with it the kernel ends all that it holds, and the bed's directory is removed.
#pragma once

#include "tests/testbed/plan.h"

namespace hvd::test::bed {

// A request is one record, an answer another. Requests are words, one in a line:
//   cut_off N | cut N M | heal | shape N RATE DELAY LOSS | crash N | boot N | capture FILE |
//   end_capture
// Answers are "ok" or "error" and, in the next line, what went wrong. The first answer comes by
// itself when the bed is up: "ok", its directory, and the pids of the hosts' first processes, the
// head's first; that to "boot" has the pid of its host.
//
// Never returns before the bed's end; the exit code of the process.
int serve_bed(Plan plan, int control, pid_t maker);

}  // namespace hvd::test::bed
