// The settings of the runtime. Read once, in worker/ (from base/knobs.h), and passed to each World.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/port_range.h"
#include "base/security/sealing.h"
#include "base/status.h"
#include "runtime/core/link_speed.h"
#include "runtime/core/parameters.h"

namespace hvd::runtime {

namespace gpu {
class Gpu;
}

// The transport of tensors between ranks.
enum class Transport {
  hvd,       // transport/tcp_mesh.h
  gloo_tcp,  // ops/gloo_mesh.h, Gloo's own, for comparison
};

// The operations that are asked first for tensors of the host.
enum class CpuOperations {
  gloo,  // over our connections, and in shared memory
  mpi,   // ops/mpi.h; then gloo
  ccl,   // ops/ccl.h; then gloo
};
constexpr std::string_view name_of(CpuOperations operations) {
  switch (operations) {
    case CpuOperations::gloo:
      return "gloo";
    case CpuOperations::mpi:
      return "mpi";
    case CpuOperations::ccl:
      return "ccl";
  }
  return "unknown";
}

struct Config {
  Transport transport = Transport::hvd;
  CpuOperations cpu_operations = CpuOperations::gloo;
  // Whether MPI is to be ready for calls of several threads, those of the program.
  bool mpi_threads = true;
  // Where the listeners of this rank take their ports; not those of gloo_tcp.
  ListenPorts ports = {};
  // Data connections between two ranks, over which large messages are split; of our transport.
  int sockets_per_pair = 1;
  // How the bytes on these connections are protected.
  Protection data_security = Protection::integrity;
  std::size_t fusion_threshold = std::size_t{128} << 20;  // bytes of one fused batch; 0: no fusion
  // The longest time for which ready tensors wait for others to share their batch while the
  // executor is busy, and for which requests that no thread waits for are gathered.
  std::chrono::microseconds cycle_time{1'000};
  // Entries of the response cache; 0: no cache. A program that has more tensors in a step finds
  // none of them there, and 1,000 of them take ten times as long.
  std::size_t cache_capacity = 8192;
  // Hierarchical operations: inside hosts first, then between them; Response::hierarchical. If
  // unset, they are used where ranks of a host share memory (docs/internals/tuning.md).
  std::optional<bool> hierarchical_allreduce = std::nullopt;
  std::optional<bool> hierarchical_allgather = std::nullopt;
  TuningOptions tuning;
  // The speed of the links between hosts, instead of what is measured.
  LinkSpeed link_speed = {};
  // The core that all threads of the runtime run on; -1: any.
  int core = -1;
  // Each rank of this host may use only cores that no other one may.
  bool bound = false;
  // Ranks of one host reduce in shared memory (shm/shm_rendezvous.h), if all of them have this set.
  bool shared_memory = true;
  // Larger tensors pass through that memory in chunks of this size, of which each rank has three
  // (and large ones, shm/shm_layout.h); a multiple of 4 KiB. The chunks of all ranks fit into the
  // caches, which gains more than the synchronisation of all ranks per window costs
  // (docs/internals/shared_memory.md).
  std::size_t chunk_bytes = std::size_t{256} << 10;
  // Streams of a GPU that batches use in turns; each has its own communicators.
  int gpu_lanes = 1;
  // Whether allreduces on GPUs are hierarchical: only if hierarchical_allreduce was set explicitly,
  // since NCCL chooses its own algorithms. World sets it.
  bool gpu_by_hosts = false;
  // Opens a GPU; empty: with the module for NCCL (gpu/module.h).
  std::function<Result<std::unique_ptr<gpu::Gpu>>(int device, int lanes)> open_gpu = {};
  // Batches that do not depend on timing, so that the same program gives the same bits.
  bool deterministic = false;
  // How long a tensor waits for some ranks before rank 0 warns, and again each time; 0: never.
  std::chrono::milliseconds stall_warning{60'000};
  // How long until such a stall is a failure of the world; 0: never.
  std::chrono::milliseconds stall_shutdown{0};
  // From create() until all members have published their addresses; live members may take long to
  // get there. 0: for ever.
  std::chrono::milliseconds rendezvous_timeout{3'600'000};
  std::chrono::milliseconds connect_timeout{30'000};   // from then on until all ranks are connected
  std::chrono::milliseconds handshake_timeout{5'000};  // for one peer's handshake
  // How long a peer may be silent in the middle of an exchange of data.
  std::chrono::milliseconds collective_timeout{30'000};
  // How long a neighbour in the control tree on another host may say nothing, although its
  // connection stands and its host acknowledges; 0: for ever.
  std::chrono::milliseconds control_timeout{0};
  // How long the error of a broken data connection waits for the report that a rank has died,
  // before the error itself is reported as the cause.
  std::chrono::milliseconds verdict_timeout{1'000};
  std::chrono::milliseconds shutdown_timeout{30'000};  // for all ranks to call shutdown()
  std::string timeline = {};          // rank 0 records all ranks into this file from the start
  bool timeline_mark_cycles = false;  // with a mark for each batch that rank 0 decides
  // Where the flight recorder writes: a directory, "stderr", or empty: only to the log.
  std::string flight_recorder = {};
  // A descriptor that becomes readable when the flight recorder is to be written; -1: none.
  int dump_requests = -1;
};

}  // namespace hvd::runtime
