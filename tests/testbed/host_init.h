// The first process of a pretend host: makes the host's files and addresses, starts its sshd, and
// then only reaps, as an init does. When it ends, the kernel ends everything on the host.
#pragma once

#include "tests/testbed/plan.h"

namespace hvd::test::bed {

// The namespaces that make it a host of its own.
extern const unsigned long kHostNamespaces;

// Runs in a child that was forked into them. Says on `server` either "files PID", its pid as this
// machine numbers it, when its files are there; waits for "go", which means that eth0 is there; and
// says "ready" when the sshd listens. Or, at any time, "error ...".
[[noreturn]] void be_host(const Plan& plan, int number, int server);

}  // namespace hvd::test::bed
