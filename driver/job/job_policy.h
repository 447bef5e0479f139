// How a job differs from the general one, as a value that driver/job/job.h asks.
#pragma once

namespace hvd::driver {

struct JobPolicy {
  // Hosts come and go, each on its own. Otherwise they are a list: all of them are made ready
  // together, and a host that cannot take part ends the job.
  bool discovers_hosts = true;
  // A worker that fails costs its slot a restart. Otherwise it ends the job.
  bool restarts_workers = true;
  // A loss or a newcomer leads to another world. Otherwise the first world is the only one.
  bool changes_world = true;

  static constexpr JobPolicy elastic() { return {}; }
  static constexpr JobPolicy fixed() { return {false, false, false}; }
};

}  // namespace hvd::driver
