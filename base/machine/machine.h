// Queries about the machine that this process runs on. The system is asked each time; any thread
// may call.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <sys/resource.h>
#include <vector>

namespace hvd {

// The name that the machine gives itself; nothing if it does not say.
std::string machine_name();

struct Interface {
  std::string name;     // "eth0"
  std::string address;  // one of its addresses, without a scope
  friend bool operator==(const Interface&, const Interface&) = default;
  void fields(auto& archive) { archive(name, address); }
};

// Every address of every interface that is up, loopback and link-local ones too.
std::vector<Interface> machine_interfaces();

// Bytes of memory and swap that the machine has in all, whoever uses them, or that the control
// groups of this process leave it.
std::uint64_t memory_and_swap();

// Lets this process open as many files as it may at all; what people's shells allow by default is
// for less. Returns the limit as it was; nothing if that is not known, and nothing has changed
// then.
std::optional<rlimit> raise_open_files();

}  // namespace hvd
