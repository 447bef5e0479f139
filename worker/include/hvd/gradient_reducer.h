// The heart of a distributed optimizer, for any framework: it is told when a gradient is ready, and
// reduces it over all ranks while the others are still being computed. (Where all ranks are on one
// host and outnumber its cores, the two would only take turns: there gradients in the memory of the
// host are reduced when the last of them is ready. Where all ranks are on one host, gradients of up
// to 8 KB in its memory, in no group, not compressed, and ready without an event, are packed, and
// reduced at synchronize().)
//
//     hvd::GradientReducer reducer({.op = hvd::Average});
//     for (auto& parameter : model) reducer.add(parameter.name, parameter.gradient);
//     for (;;) {
//       ... reducer.ready("layer1.weight") ...     // as the backward pass comes to each
//       reducer.synchronize();                     // all gradients are reduced, in place
//       optimizer.step();
//       reducer.zero_gradients();
//     }
//
// All ranks add the same gradients in the same order and call synchronize() equally often. Which of
// them become ready, and in which order, may differ. At synchronize() the ranks tell each other
// what they have, in one small collective. What only some of them have goes out as zeros from the
// others, so that a rank that did not use a parameter keeps nobody waiting. What none of them has
// is left out: nothing is sent, and its memory stays as it is, but for a sparse gradient's, which
// is zero.
//
// A step is: collecting (ready), then synchronize(), then synchronized. The first ready() after it
// begins the next step, as do next_step() and zero_gradients(). A second synchronize() in one step
// would reduce what is reduced already, and is an error: ask synchronized(). A rank that may have
// no gradient at all in a step calls next_step().
//
// Ownership: the memory of gradients is the caller's, and belongs to hvd from the ready() that
// completes a gradient until synchronize() has returned, or in_flight() is false. All calls are
// safe from any thread, those for different gradients at the same time; ready() also from a
// callback of hvd. Errors are those of hvd/error.h. One that ready() throws has changed nothing.
// After one that synchronize() throws the values of the gradients are not defined and the next step
// begins; the reducer may be used on, after shutdown() and init() too.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <hvd/export.h>
#include <hvd/process_set.h>
#include <hvd/tensor.h>
#include <hvd/types.h>

namespace hvd {

struct GradientReducerOptions {
  // Before the names of the gradients, with a dot: two reducers of one process need two.
  std::string name = "gradient";
  ReduceOp op = Average;
  // Average only: gradients are divided by it before they are added and multiplied by it after the
  // division by the number of ranks, for sums that are too large for the type.
  double gradient_predivide_factor = 1.0;
  // Average only; above 0: over so many shards, in place of the ranks (hvd/shards.h), so that the
  // batch of a step is the same in each world. A rank makes a pass for each shard that it has, and
  // backward_passes_per_step is their number; one that has none calls next_step() and then
  // synchronize().
  int shards = 0;
  Compression compression = Compression::none;
  ProcessSet process_set = {};
  // A gradient goes out when it is ready for the n-th time; the caller adds up in its memory.
  int backward_passes_per_step = 1;
  // Divide by the number of passes, too; else what was added up over passes stays a sum.
  bool average_over_passes = false;
  // Gradients that are reduced together, when the last of a group is ready: so many groups of
  // gradients that were added one after the other ...
  int number_of_groups = 0;
  // ... or these; what stands in none of them goes alone.
  std::vector<std::vector<std::string>> groups = {};
  // Sparse gradients are added up in the dense memory of add_sparse(), and that is reduced. Better
  // if most rows have values on most ranks.
  bool sparse_as_dense = false;
  // Sets a gradient to zero; needed if one does not lie in the memory of the host. It must not call
  // the reducer.
  std::function<void(const TensorView& gradient)> fill_zeros = {};
};

// Some rows of a gradient. A row that stands there several times counts as the sum of them.
struct SparseGradient {
  ConstTensorView indices;  // int32 or int64, [n]: which rows
  ConstTensorView values;   // [n, the shape of a row ...]
};

class HVD_API GradientReducer {
 public:
  // Throws InvalidArgumentError if the options contradict each other.
  explicit GradientReducer(GradientReducerOptions options = {});
  // Does not wait for what is in flight; its memory belongs to hvd until that is done, which
  // in_flight() tells before.
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  // Before the first ready(). Returns its index: 0, 1, ... Throws InvalidArgumentError if the name
  // is empty or taken, if this can not be reduced, or if it is too late. The memory may be null if
  // each ready() and rebind() names it.
  std::size_t add(std::string name, const TensorView& gradient);
  // The same for a gradient of which only some rows have values. The memory is used only with
  // sparse_as_dense, and may be null else. For Average and Sum; not compressed, in no group.
  std::size_t add_sparse(std::string name, const TensorView& gradient);

  std::size_t size() const;
  std::size_t index_of(std::string_view name) const;  // throws InvalidArgumentError

  // The gradient has the values of one more backward pass: now, or when the event says so. Throw
  // InvalidArgumentError if that is one pass too many, or there is no such gradient.
  void ready(std::size_t index, const std::shared_ptr<ReadyEvent>& event = {});
  void ready(std::string_view name, const std::shared_ptr<ReadyEvent>& event = {});
  // The same, and the gradient lies there now. Its type and shape may be others than before, alike
  // on all ranks: else synchronize() throws DisagreementError, or what the collective finds.
  void ready(std::size_t index, const TensorView& gradient,
             const std::shared_ptr<ReadyEvent>& event = {});
  // For a gradient of add_sparse(); the rows are copied at once.
  void ready(std::size_t index, const SparseGradient& gradient);
  void ready(std::string_view name, const SparseGradient& gradient);

  // The gradients that other ranks have in this step, and this one has not. Blocks until all ranks
  // have called it, or synchronize(). Until synchronize() has returned, ready() takes these only:
  // it is for callers that have no memory for a gradient before it is needed; type and shape are
  // those of the other ranks, or it may throw InvalidArgumentError. For at most so long:
  // false, and it goes on; the next call waits for the rest. Throws as synchronize() does.
  bool missing_for(std::chrono::milliseconds timeout, std::vector<std::size_t>& indices);

  // Sends what has not been sent, with zeros for what had no pass, and blocks until all is reduced.
  // Throws the first error, when nothing is in flight any more.
  void synchronize();
  // The same, for at most so long. False: it goes on, and the next call waits for the rest.
  bool synchronize_for(std::chrono::milliseconds timeout);
  bool synchronized() const;
  // After synchronize(), until the next step: whether a rank had this gradient. Else it is as it
  // was.
  bool present(std::size_t index) const;
  // Whether hvd reads or writes memory of a gradient, of this step or of one that was given up.
  bool in_flight() const;
  // The rows of all ranks, after synchronize(), until the next step: of a sparse gradient without
  // sparse_as_dense. The indices are int64.
  SparseGradient reduced(std::size_t index) const;

  // Begins the next step. Throw InvalidArgumentError if a gradient is ready and not synchronized:
  // it would be lost, or overwritten while it is sent.
  void next_step();
  void zero_gradients();  // and sets all gradients to zero

  // The gradient lies elsewhere now, alike. Between steps, or before it is ready.
  void rebind(std::size_t index, void* data);
  // Between steps. The same on all ranks.
  void set_backward_passes_per_step(int passes);
  int backward_passes_per_step() const;
  // Forgets the step. Blocks until nothing is in flight; after a failure of the world that is at
  // once.
  void reset();

 private:
  class HVD_HIDDEN Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hvd
