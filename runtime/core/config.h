// What can be tuned in the runtime. Read once, in worker/ (from base/knobs.h), and handed to each
// World.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "runtime/core/parameters.h"

namespace hvd::runtime {

namespace gpu {
class Gpu;
}

// What carries the bytes of tensors between ranks.
enum class Transport {
  hvd,       // transport/tcp_mesh.h
  gloo_tcp,  // ops/gloo_mesh.h, Gloo's own, for comparison
};

struct Config {
  Transport transport = Transport::hvd;
  // Data connections between two ranks, over which large messages are cut up; of our transport.
  int sockets_per_pair = 1;
  std::size_t fusion_threshold = std::size_t{128} << 20;  // bytes of one fused batch; 0: no fusion
  // How long tensors that are ready wait at most for others to share their batch, while the
  // executor has something to do; and requests that nobody waits for, to be heard of together.
  std::chrono::microseconds cycle_time{1'000};
  // Tensors that are known by a short name because they were agreed about before; 0: none.
  std::size_t cache_capacity = 1024;
  // Inside hosts first, then between them; Response::hierarchical. Unless somebody says, that is
  // what is done where there is shared memory to do it in (docs/tuning.md).
  std::optional<bool> hierarchical_allreduce = std::nullopt;
  std::optional<bool> hierarchical_allgather = std::nullopt;
  TuningOptions tuning;
  // The core that all threads of the runtime run on; -1: any.
  int core = -1;
  // Ranks of one host reduce in memory that they share (shm/host_door.h), if all of them want it.
  bool shared_memory = true;
  // What is larger goes through that memory in windows of this size, of which each rank has three;
  // a multiple of 4 KiB. Those of all ranks fit into the caches, and that is worth more than the
  // meeting of all ranks that each one costs (docs/shared_memory.md).
  std::size_t window_bytes = std::size_t{256} << 10;
  // Streams of a GPU that batches take turns on; each has communicators of its own.
  int gpu_lanes = 1;
  // Whether allreduces on GPUs go by hosts: only if hierarchical_allreduce was asked for, since
  // NCCL finds ways by itself. World sets it.
  bool gpu_by_hosts = false;
  // How a GPU is opened; empty: by the module for NCCL (gpu/module.h).
  std::function<Result<std::unique_ptr<gpu::Gpu>>(int device, int lanes)> open_gpu = {};
  // Batches that do not depend on timing, so that the same program gives the same bits.
  bool deterministic = false;
  // How long a tensor waits for some ranks before rank 0 says so, and again each time; 0: never.
  std::chrono::milliseconds stall_warning{60'000};
  // How long until that is a failure of the world; 0: never.
  std::chrono::milliseconds stall_shutdown{0};
  // From create() until all members have published their addresses. Members that live may take long
  // before they come. 0: for ever.
  std::chrono::milliseconds meet_timeout{3'600'000};
  std::chrono::milliseconds connect_timeout{30'000};   // from then on until all are connected
  std::chrono::milliseconds handshake_timeout{5'000};  // for one peer to prove itself
  std::chrono::milliseconds collective_timeout{
      30'000};  // silence of a peer in the midst of its data
  // How long a broken data connection waits for the news of who has died, before it is itself the
  // cause that everybody is told.
  std::chrono::milliseconds verdict_timeout{1'000};
  std::chrono::milliseconds shutdown_timeout{30'000};  // for the others to come to shutdown(), too
  std::string timeline = {};          // rank 0 records all ranks into this file from the start
  bool timeline_mark_cycles = false;  // with a mark for each decision of rank 0
  // Where the flight recorder writes: a directory, "stderr", or nowhere but the log.
  std::string flight_recorder = {};
  // A descriptor that becomes readable when somebody wants the flight recorder to write; -1: none.
  int dump_requests = -1;
};

}  // namespace hvd::runtime
