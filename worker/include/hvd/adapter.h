// The seam for frameworks and other languages, one floor below hvd/collectives.h, which is built on
// it: what to do with which memory, how to make room for what comes out, until when the input is
// not there yet, and whom to tell. An adapter needs to know nothing of what carries the bytes.
//
//     hvd::adapter::Submission work;
//     work.collective = hvd::Collective::allgather;
//     work.name = "embeddings";
//     work.input = {tensor.data(), tensor.sizes(), type_of(tensor), device_of(tensor)};
//     work.allocate = [&](const std::vector<std::int64_t>& shape) { return resize(result, shape);
//     }; work.ready = std::make_shared<StreamEvent>(stream); work.done = [](const
//     hvd::adapter::Completion& completion) { ... }; hvd::adapter::submit(std::move(work));
//
// Safe from any thread.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <hvd/export.h>
#include <hvd/process_set.h>
#include <hvd/tensor.h>
#include <hvd/types.h>

namespace hvd::runtime {
struct TreeInput;
}

namespace hvd::adapter {

// The outcome of a submission. Valid during the callback.
struct Completion {
  std::exception_ptr error;         // null: none; else one of hvd/error.h
  void* output = nullptr;           // Submission::output's memory, or what allocate returned
  std::vector<std::int64_t> shape;  // of the output
  std::vector<std::int64_t> received_splits;  // alltoall: rows from each rank of the set
  int contributors = 0;  // ranks that gave something: all of the set but joined ones
  int last_joined = -1;  // join: the rank that came last
  int process_set = -1;  // add_process_set: its number
};

struct Submission {
  Collective collective = Collective::allreduce;
  std::string name = {};  // empty: numbered by the order of this rank's calls
  ConstTensorView input = {};
  // Where the result goes; may be the input's memory. Not used if `allocate` is set.
  TensorView output = {};
  // Makes room for a result of this shape, in the memory that the input's device reaches; null:
  // there is none. Called once, from a thread of hvd, and before `done`.
  std::function<void*(const std::vector<std::int64_t>& shape)> allocate = {};
  // The input is read, and the output written, only after it is ready. Null: it is.
  std::shared_ptr<ReadyEvent> ready = {};
  // Called exactly once, from a thread of hvd, unless submit() has thrown. Must not block or throw.
  std::function<void(const Completion&)> done;

  ReduceOp op = Average;
  double prescale = 1.0;
  double postscale = 1.0;
  Compression compression = Compression::none;
  int root = 0;                           // broadcast: a rank of the world
  std::vector<std::int64_t> splits = {};  // alltoall: rows for each rank of the set; empty: even
  std::vector<int> ranks = {};            // add_process_set; send_recv: the sender, the receiver
  ProcessSet process_set = {};            // remove_process_set: which one
  bool by_members = false;                // add_process_set: its members alone call it
  // allreduce: what it adds up along a tree, in place of an input, which has no data then. For hvd
  // itself: ShardReducer.
  std::shared_ptr<const runtime::TreeInput> leaves = {};
};

// Throws what hvd/error.h says if this can never be done; `done` is not called then. Errors that
// only the ranks together can find reach `done`.
HVD_API void submit(Submission work);
// A group: all of them or none, and they are run together, none before all are ready on all ranks.
// They must have names, and a name for the whole, the same on all ranks.
HVD_API void submit_group(const std::string& name, std::vector<Submission> works);

}  // namespace hvd::adapter
