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
// Under hvdrun the processes of the job form a world; without it a program is a world of one. All
// functions may be called from any thread. Collectives are matched between ranks by name, not by
// order. Errors are typed exceptions (hvd/error.h).
#pragma once

#include <hvd/collectives.h>
#include <hvd/error.h>
#include <hvd/export.h>
#include <hvd/types.h>

namespace hvd {

// Joins the world. Blocks until all members are connected; throws InitError if that cannot be. A
// second call without shutdown() in between does nothing.
HVD_API void init();

// Says that this worker is done, waits for what is in flight and leaves the world. After it init()
// may be called again. At the normal end of a program that did not call it, it is called.
HVD_API void shutdown();

HVD_API bool is_initialized();

// 0 <= rank() < size(). Ranks are numbered host by host. `local` counts the workers of this host,
// `cross` the hosts that have a worker with this local rank. Each throws NotInitializedError before
// init().
HVD_API int rank();
HVD_API int size();
HVD_API int local_rank();
HVD_API int local_size();
HVD_API int cross_rank();
HVD_API int cross_size();
HVD_API bool is_homogeneous();  // every host has the same number of workers

}  // namespace hvd
