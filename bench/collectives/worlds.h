// Worlds among ranks that are processes of this machine, and the work of benchmarks in them. An
// error is reported on stderr and ends the process.
#pragma once

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "bench/collectives/ranks.h"
#include "runtime/control/world.h"

namespace hvd::bench {

void check(const Status& status);

std::unique_ptr<runtime::World> form_world(Ranks& ranks, std::uint64_t generation,
                                           const runtime::Config& config = {});

// Reduces it in place, with Max, so that it stays what it was. Until the future is ready the data
// must live.
std::future<runtime::Failure> start_allreduce(runtime::World& world, std::vector<float>& data);
inline runtime::Failure allreduce(runtime::World& world, std::vector<float>& data) {
  return start_allreduce(world, data).get();
}

// A table of how late things are: the median, the tail, and how many took `late_ms` or more.
void print_tail_header(const std::string& title, int late_ms);
void print_tail(const char* what, std::vector<double> times, int late_ms);

}  // namespace hvd::bench
