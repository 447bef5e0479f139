// All collectives that compute nothing; those that do are in reductions.cpp.
#include <hvd/collectives.h>

#include "worker/submissions.h"

namespace hvd {

using worker::Room;
using worker::submission_of;

Handle broadcast_async(const ConstTensorView& input, const TensorView& output,
                       const BroadcastOptions& options) {
  auto work = submission_of(Collective::broadcast, input, output, options);
  work.root = options.root;
  return Handle(worker::start(std::move(work), options.name, Room::given));
}

Handle broadcast_async(const TensorView& tensor, const BroadcastOptions& options) {
  return broadcast_async(tensor, tensor, options);
}

void broadcast(const TensorView& tensor, const BroadcastOptions& options) {
  broadcast_async(tensor, options).wait();
}

void broadcast(const ConstTensorView& input, const TensorView& output,
               const BroadcastOptions& options) {
  broadcast_async(input, output, options).wait();
}

Handle barrier_async(const BarrierOptions& options) {
  return Handle(worker::start(submission_of(Collective::barrier, {}, {}, options), options.name,
                              Room::given));
}

void barrier(const BarrierOptions& options) { barrier_async(options).wait(); }

Future<Tensor> allgather_async(const ConstTensorView& tensor, const AllgatherOptions& options) {
  return Future<Tensor>(worker::start(submission_of(Collective::allgather, tensor, {}, options),
                                      options.name, Room::made));
}

Tensor allgather(const ConstTensorView& tensor, const AllgatherOptions& options) {
  return allgather_async(tensor, options).get();
}

Future<std::vector<Tensor>> grouped_allgather_async(const std::vector<ConstTensorView>& tensors,
                                                    const AllgatherOptions& options) {
  std::vector<adapter::Submission> works;
  works.reserve(tensors.size());
  for (const auto& tensor : tensors) {
    works.push_back(submission_of(Collective::allgather, tensor, {}, options));
  }
  return Future<std::vector<Tensor>>(
      worker::start_group(std::move(works), options.name, "grouped_allgather", Room::made));
}

std::vector<Tensor> grouped_allgather(const std::vector<ConstTensorView>& tensors,
                                      const AllgatherOptions& options) {
  return grouped_allgather_async(tensors, options).get();
}

Future<Rows> alltoall_async(const ConstTensorView& tensor, const AlltoallOptions& options) {
  auto work = submission_of(Collective::alltoall, tensor, {}, options);
  work.splits = options.splits;
  return Future<Rows>(worker::start(std::move(work), options.name, Room::made));
}

Rows alltoall(const ConstTensorView& tensor, const AlltoallOptions& options) {
  return alltoall_async(tensor, options).get();
}

Handle send_async(const ConstTensorView& tensor, int to, const SendRecvOptions& options) {
  adapter::Submission work;
  work.collective = Collective::send_recv;
  work.input = tensor;
  work.ranks = worker::ranks_of_send(to);
  return Handle(worker::start(std::move(work), options.name, Room::given));
}

void send(const ConstTensorView& tensor, int to, const SendRecvOptions& options) {
  send_async(tensor, to, options).wait();
}

Handle recv_async(const TensorView& tensor, int from, const SendRecvOptions& options) {
  adapter::Submission work;
  work.collective = Collective::send_recv;
  work.input = tensor;  // its shape and type
  work.output = tensor;
  work.ranks = worker::ranks_of_recv(from);
  return Handle(worker::start(std::move(work), options.name, Room::given));
}

void recv(const TensorView& tensor, int from, const SendRecvOptions& options) {
  recv_async(tensor, from, options).wait();
}

Future<int> join_async() {
  adapter::Submission work;
  work.collective = Collective::join;
  return Future<int>(worker::start(std::move(work), {}, Room::given));
}

int join() { return join_async().get(); }

}  // namespace hvd
