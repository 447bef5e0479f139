// hvd: the calls of a worker. Include this one header.
//
//     #include <hvd/hvd.h>
//
//     int main() {
//       hvd::init();
//       std::vector<float> gradients = ...;
//       hvd::allreduce(gradients, {.name = "gradients", .op = hvd::Average});
//     }
//
// Under hvdrun the processes of the job form a world; without it a program is a world of one,
// unless another launcher has started several (docs/api.md). All functions may be called from any
// thread. Collectives are matched between ranks by name. Errors are typed exceptions (hvd/error.h).
#pragma once

#include <string>
#include <vector>

#include <hvd/adapter.h>
#include <hvd/collectives.h>
#include <hvd/cuda.h>
#include <hvd/elastic.h>
#include <hvd/error.h>
#include <hvd/export.h>
#include <hvd/gradient_reducer.h>
#include <hvd/handle.h>
#include <hvd/objects.h>
#include <hvd/process_set.h>
#include <hvd/sampler.h>
#include <hvd/shards.h>
#include <hvd/shared_memory.h>
#include <hvd/sparse.h>
#include <hvd/tensor.h>
#include <hvd/types.h>
#include <hvd/version.h>

namespace hvd {

// "0.1.0": of the library that this program runs with. HVD_VERSION_STRING is that of the headers.
HVD_API const char* version() noexcept;

struct InitOptions {
  // The ranks of each process set that exists from the start, the same on all ranks; the first one
  // has number 1.
  std::vector<std::vector<int>> process_sets = {};
  // add_process_set() and remove_process_set() may be called. Also by HVD_DYNAMIC_PROCESS_SETS=1.
  bool dynamic_process_sets = false;
  LostMember lost_member = LostMember::fail;  // of the sets that exist from the start

  friend bool operator==(const InitOptions&, const InitOptions&) = default;
};

// Joins the world. Blocks until all members are connected; throws InitError if that cannot be. A
// second call without shutdown() in between does nothing, with the same options or with none; with
// others it throws InvalidArgumentError. A worker that joins an elastic job later returns at once:
// the first call that needs the world, elastic::run say, waits for it.
HVD_API void init(const InitOptions& options = {});

// Says that this worker is done, waits for what is in flight and leaves the world. Calls that
// another rank has not made before its own shutdown() fail with a CollectiveError. After it init()
// may be called again. At the normal end of a program that did not call it, it is called. Throws
// InvalidArgumentError if a callback of hvd calls it.
HVD_API void shutdown();

HVD_API bool is_initialized();

// 0 <= rank() < size(). Ranks are numbered host by host. `local` counts the workers of this host,
// `cross` the hosts that have a worker with this local rank. Each throws NotInitializedError before
// init(). local_rank() of a worker that has no world yet is its slot on its host.
HVD_API int rank();
HVD_API int size();
HVD_API int local_rank();
HVD_API int local_size();
HVD_API int cross_rank();
HVD_API int cross_size();
HVD_API bool is_homogeneous();  // every host has the same number of workers

// Whether this installation has a module for an MPI; whether the world of this process uses it for
// tensors of the host (HVD_CPU_OPERATIONS=mpi; false before init()); and then whether MPI takes
// calls from several threads at the same time.
HVD_API bool mpi_built();
HVD_API bool mpi_enabled();
HVD_API bool mpi_threads_supported();  // throws NotInitializedError before init()
// Whether this installation has the module for oneCCL (HVD_CPU_OPERATIONS=ccl).
HVD_API bool ccl_built();

// Records what the ranks do, all of them, into one file on rank 0's host: Chrome's trace format,
// which Perfetto opens. Called by rank 0; calls of other ranks change nothing. An existing file is
// replaced. `mark_cycles` adds a mark for every batch that rank 0 decides. Throws
// InvalidArgumentError if the file cannot be written. A start while one is being recorded, and a
// stop while none is, have no effect but a warning in rank 0's log.
// HVD_TIMELINE=FILE records from init() to shutdown().
HVD_API void start_timeline(const std::string& path, bool mark_cycles = false);
HVD_API void stop_timeline();  // returns when the file is complete

}  // namespace hvd
