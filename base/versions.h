// The version of each wire to which a program's own libhvd speaks. Such a program may be linked
// with another build of hvd than the hvdrun that starts it, and than the other workers of the job.
// The rule: equal numbers work together, whatever the builds; other numbers are refused at the
// first message, with both builds and hosts named. (The link of hvdrun and its agents has its own
// number in base/protocol/agent_link.h, and they have to be of the same build.)
//
// A change of a message, or of what it means, adds one to the number of its wire.
// docs/internals/versions.md says how each wire carries it.
#pragma once

#include <cstdint>

namespace hvd {

struct WireVersions {
  // An agent and a worker (base/protocol/worker_link.h), with the world document and the requests
  // to the rendezvous that follow from its Welcome.
  std::uint32_t worker_link = 0;
  // The workers of one world: introductions, the control tree, data connections, shared memory.
  std::uint32_t members = 0;
};

// Those of this program. Defined in a file of its own, which tests replace to build another
// version.
WireVersions wire_versions();

}  // namespace hvd
