// Which build this is, and which versions of the wires it speaks. Defined in a file of their own,
// which tests replace to make another build.
#pragma once

#include <cstdint>
#include <string_view>

namespace hvd {

// The version (hvd/version.h), with a digest of the sources that it was built from. hvdrun and its
// agents must be of the same build: their wire is private to it.
std::string_view build_id();

// The version of each wire to which a program's own libhvd speaks. Such a program may be linked
// with another build of hvd than the hvdrun that starts it, and than the other workers of the job.
// The rule: equal numbers work together, whatever the builds; other numbers are refused at the
// first message, with both builds and hosts named. (The link of hvdrun and its agents has its own
// number in base/protocol/agent_link.h, and they have to be of the same build.)
//
// A change of a message, or of what it means, adds one to the number of its wire.
// docs/internals/versions.md says how each wire carries it.
struct WireVersions {
  // An agent and a worker (base/protocol/worker_link.h), with the world document and the requests
  // to the rendezvous that follow from its Welcome.
  std::uint32_t worker_link = 0;
  // The workers of one world: introductions, the control tree, data connections, shared memory.
  std::uint32_t members = 0;
};

// Those of this program.
WireVersions wire_versions();

}  // namespace hvd
