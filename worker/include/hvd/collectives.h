// The collectives: every rank of the world, or of a process set, calls them, in any order; calls
// are matched by name.
//
//     std::vector<float> gradients = ...;
//     hvd::allreduce(gradients, {.name = "gradients"});                   // in place, average
//     hvd::allreduce(gradients, result, {.op = hvd::Sum});                // into another buffer
//     auto handle = hvd::allreduce_async(gradients, {.name = "gradients"});
//     ...
//     handle.wait();                                      // or handle.ready(), handle.on_done()
//     hvd::broadcast(weights, {.root = 0});
//     hvd::Tensor all = hvd::allgather(own);                              // all.as<float>()
//
// The synchronous forms block until the result is there. The asynchronous ones return at once; the
// buffers then belong to hvd, and must stay alive and untouched, until the handle says that they
// are done. All are safe from any thread, and throw what hvd/error.h says.
//
// An output must be like its input (of reducescatter: like this rank's rows of it). Both may begin
// at the same address; where they overlap in another way the call is refused.
//
// A call without a name gets "allreduce.noname.0", "allreduce.noname.1", ... in the order of this
// rank's calls in the process set: that matches only if all members of the set make their unnamed
// calls in the same order. Members of a group called g of n tensors are called g_1ofn to g_nofn. A
// group without tensors is done at once, on this rank alone.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <hvd/export.h>
#include <hvd/handle.h>
#include <hvd/process_set.h>
#include <hvd/tensor.h>
#include <hvd/types.h>

namespace hvd {

// --- allreduce ----------------------------------------------------------------------------------

// Average divides the sum by the number of ranks that gave something. Of integers it is truncated
// toward zero, as are scaled integers; of booleans Sum and Max are "any", Product, Min and Average
// are "all". Adasum adds what gradients agree about once and the rest twice (arXiv:2006.02924); it
// is for floating point.
struct AllreduceOptions {
  std::string name = {};
  ReduceOp op = Average;
  double prescale = 1.0;   // every element is multiplied by it before it is reduced ...
  double postscale = 1.0;  // ... and by this afterwards
  Compression compression = Compression::none;
  ProcessSet process_set = {};
};

HVD_API Handle allreduce_async(const TensorView& tensor, const AllreduceOptions& options = {});
HVD_API Handle allreduce_async(const ConstTensorView& input, const TensorView& output,
                               const AllreduceOptions& options = {});
HVD_API void allreduce(const TensorView& tensor, const AllreduceOptions& options = {});
HVD_API void allreduce(const ConstTensorView& input, const TensorView& output,
                       const AllreduceOptions& options = {});

// Tensors that are reduced together: none before all are ready on all ranks.
HVD_API Handle grouped_allreduce_async(const std::vector<TensorView>& tensors,
                                       const AllreduceOptions& options = {});
HVD_API Handle grouped_allreduce_async(const std::vector<ConstTensorView>& inputs,
                                       const std::vector<TensorView>& outputs,
                                       const AllreduceOptions& options = {});
HVD_API void grouped_allreduce(const std::vector<TensorView>& tensors,
                               const AllreduceOptions& options = {});
HVD_API void grouped_allreduce(const std::vector<ConstTensorView>& inputs,
                               const std::vector<TensorView>& outputs,
                               const AllreduceOptions& options = {});

// --- broadcast and barrier ----------------------------------------------------------------------

struct BroadcastOptions {
  std::string name = {};
  int root = 0;  // the rank, of the world, whose elements all get
  ProcessSet process_set = {};
};

HVD_API Handle broadcast_async(const TensorView& tensor, const BroadcastOptions& options = {});
// Only the root's input is read.
HVD_API Handle broadcast_async(const ConstTensorView& input, const TensorView& output,
                               const BroadcastOptions& options = {});
HVD_API void broadcast(const TensorView& tensor, const BroadcastOptions& options = {});
HVD_API void broadcast(const ConstTensorView& input, const TensorView& output,
                       const BroadcastOptions& options = {});

struct BarrierOptions {
  std::string name = {};
  ProcessSet process_set = {};
};

HVD_API Handle barrier_async(const BarrierOptions& options = {});
HVD_API void barrier(const BarrierOptions& options = {});

// --- allgather ----------------------------------------------------------------------------------

struct AllgatherOptions {
  std::string name = {};
  ProcessSet process_set = {};
};

// The ranks' tensors one after the other along the first dimension, in the order of ranks. That
// dimension may differ between ranks, the others may not; a tensor without dimensions is an error.
HVD_API Future<Tensor> allgather_async(const ConstTensorView& tensor,
                                       const AllgatherOptions& options = {});
HVD_API Tensor allgather(const ConstTensorView& tensor, const AllgatherOptions& options = {});
HVD_API Future<std::vector<Tensor>> grouped_allgather_async(
    const std::vector<ConstTensorView>& tensors, const AllgatherOptions& options = {});
HVD_API std::vector<Tensor> grouped_allgather(const std::vector<ConstTensorView>& tensors,
                                              const AllgatherOptions& options = {});

// --- alltoall -----------------------------------------------------------------------------------

struct AlltoallOptions {
  std::string name = {};
  // How many rows of the first dimension go to each rank of the set; their sum may be less than
  // there are. Empty: as many to each.
  std::vector<std::int64_t> splits = {};
  ProcessSet process_set = {};
};

// Rows that came from the ranks of the set, in their order, and how many from each.
struct Rows {
  Tensor tensor;
  std::vector<std::int64_t> received_splits;
};

HVD_API Future<Rows> alltoall_async(const ConstTensorView& tensor,
                                    const AlltoallOptions& options = {});
HVD_API Rows alltoall(const ConstTensorView& tensor, const AlltoallOptions& options = {});

// --- reducescatter ------------------------------------------------------------------------------

struct ReducescatterOptions {
  std::string name = {};
  ReduceOp op = Average;  // any but Adasum
  double prescale = 1.0;
  double postscale = 1.0;
  Compression compression = Compression::none;
  ProcessSet process_set = {};
};

// Rows of the first dimension are shared out: of r rows among n ranks each gets r / n, the first
// r % n ranks one more. `output` must have exactly these. Ranks that have joined count here, too:
// the rows that would be theirs are lost.
HVD_API Future<Tensor> reducescatter_async(const ConstTensorView& tensor,
                                           const ReducescatterOptions& options = {});
HVD_API Handle reducescatter_async(const ConstTensorView& input, const TensorView& output,
                                   const ReducescatterOptions& options = {});
HVD_API Tensor reducescatter(const ConstTensorView& tensor,
                             const ReducescatterOptions& options = {});
HVD_API void reducescatter(const ConstTensorView& input, const TensorView& output,
                           const ReducescatterOptions& options = {});
HVD_API Future<std::vector<Tensor>> grouped_reducescatter_async(
    const std::vector<ConstTensorView>& tensors, const ReducescatterOptions& options = {});
HVD_API std::vector<Tensor> grouped_reducescatter(const std::vector<ConstTensorView>& tensors,
                                                  const ReducescatterOptions& options = {});

// --- send and recv ------------------------------------------------------------------------------

// Between two ranks, while the others go on. Calls of one rank to another are matched by name;
// those without a name in the order in which the two ranks make them.
struct SendRecvOptions {
  std::string name = {};
};

// `to` and `from` are ranks of the world, other than this one. Type and shape must be the same at
// both ends. The tensor lies in memory of the host. A send is done when the tensor may be used
// again, which is not before the other rank has called recv.
HVD_API Handle send_async(const ConstTensorView& tensor, int to,
                          const SendRecvOptions& options = {});
HVD_API void send(const ConstTensorView& tensor, int to, const SendRecvOptions& options = {});
HVD_API Handle recv_async(const TensorView& tensor, int from, const SendRecvOptions& options = {});
HVD_API void recv(const TensorView& tensor, int from, const SendRecvOptions& options = {});

// --- join ---------------------------------------------------------------------------------------

// This rank has no more work. Until all have said so, it gives the neutral element to what the
// others do: their sums, averages, minima and concatenations are those of the others. The result is
// the rank that joined last. While it is in flight this rank can ask for nothing else.
HVD_API Future<int> join_async();
HVD_API int join();

template <>
HVD_API Tensor Future<Tensor>::get();
template <>
HVD_API std::vector<Tensor> Future<std::vector<Tensor>>::get();
template <>
HVD_API Rows Future<Rows>::get();
template <>
HVD_API int Future<int>::get();

}  // namespace hvd
