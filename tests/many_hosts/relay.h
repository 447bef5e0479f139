// Somebody on the way between pretend hosts: all that a host connects to passes through a program
// on that host, which does to the bytes what its rules say (programs/relay.py has them).
#pragma once

#include <memory>
#include <string>

#include "tests/e2e/job_test.h"
#include "tests/testbed/hosts.h"

namespace hvd::test {

class Relay {
 public:
  // For the connections over IPv4 that `host` makes to `ports` ("22", "40000:40999") of others from
  // now on. The bed must outlive it; a host has one at a time. Throws std::runtime_error.
  Relay(Host& host, const std::string& ports, const Words& rules);
  // Connections that stand end; later ones go their own way.
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  // Blocks until one of the rules with this in it has acted; false at the limit.
  bool acts(const std::string& what);
  // The rules that have acted so far, a line each.
  std::string acted();

 private:
  Host& host_;
  std::unique_ptr<Process> process_;
};

}  // namespace hvd::test
