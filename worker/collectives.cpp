#include <hvd/adapter.h>
#include <hvd/collectives.h>

#include "worker/pending.h"

namespace hvd {
namespace {

using adapter::Submission;
using detail::Pending;

Handle start(Submission work) {
  std::vector<Submission> one;
  one.push_back(std::move(work));
  return Handle(Pending::start(std::move(one), false));
}

template <typename Options>
Submission submission_of(Collective collective, const ConstTensorView& input,
                         const TensorView& output, const Options& options) {
  Submission work;
  work.collective = collective;
  work.name = options.name;
  work.input = input;
  work.output = output;
  work.process_set = options.process_set;
  return work;
}

}  // namespace

Handle allreduce_async(const ConstTensorView& input, const TensorView& output,
                       const AllreduceOptions& options) {
  auto work = submission_of(Collective::allreduce, input, output, options);
  work.op = options.op;
  work.prescale = options.prescale;
  work.postscale = options.postscale;
  work.compression = options.compression;
  return start(std::move(work));
}

Handle allreduce_async(const TensorView& tensor, const AllreduceOptions& options) {
  return allreduce_async(tensor, tensor, options);
}

Handle broadcast_async(const ConstTensorView& input, const TensorView& output,
                       const BroadcastOptions& options) {
  auto work = submission_of(Collective::broadcast, input, output, options);
  work.root = options.root;
  return start(std::move(work));
}

Handle broadcast_async(const TensorView& tensor, const BroadcastOptions& options) {
  return broadcast_async(tensor, tensor, options);
}

Handle barrier_async(const BarrierOptions& options) {
  return start(submission_of(Collective::barrier, {}, {}, options));
}

void allreduce(const TensorView& tensor, const AllreduceOptions& options) {
  allreduce_async(tensor, options).wait();
}

void allreduce(const ConstTensorView& input, const TensorView& output,
               const AllreduceOptions& options) {
  allreduce_async(input, output, options).wait();
}

void broadcast(const TensorView& tensor, const BroadcastOptions& options) {
  broadcast_async(tensor, options).wait();
}

void broadcast(const ConstTensorView& input, const TensorView& output,
               const BroadcastOptions& options) {
  broadcast_async(input, output, options).wait();
}

void barrier(const BarrierOptions& options) { barrier_async(options).wait(); }

}  // namespace hvd
