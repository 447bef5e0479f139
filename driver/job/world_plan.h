// The next world as a pure function of the last one and of arrivals and departures. The same for a
// loss as for a planned change; driver/job/staffing.h decides which workers may come and which must
// go.
//
//   - Ranks are host-major. Hosts of the last world keep their order, hosts that are new come last.
//   - Survivors keep their order. A newcomer in the slot of a worker that goes takes its place;
//     any other stands among the members of its host where its slot belongs.
//   - Rank 0 is always a survivor, since it leads from the first moment on: of the first host that
//     has one, which comes first for that if it was not. Only a world without survivors is led by a
//     newcomer.
#pragma once

#include <string>
#include <vector>

#include "base/protocol/world_document.h"
#include "driver/job/job_io.h"

namespace hvd::driver {

struct Newcomer {
  std::string host;
  int slot = 0;
  Incarnation incarnation = 0;
  std::string address;
};

// `previous` is ordered by rank, and host-major. New hosts come in the order in which `newcomers`
// first names them. No newcomer stands in the slot of a survivor. Linear in the size of the world,
// but for hosts of very many slots.
std::vector<WorldMember> plan_world(const std::vector<WorldMember>& previous,
                                    const std::vector<Incarnation>& gone,
                                    const std::vector<Newcomer>& newcomers);

}  // namespace hvd::driver
