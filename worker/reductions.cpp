// allreduce and reducescatter.
#include <hvd/collectives.h>
#include <hvd/error.h>

#include "base/text.h"
#include "worker/submissions.h"

namespace hvd {

using worker::reduction_of;
using worker::Room;

Handle allreduce_async(const ConstTensorView& input, const TensorView& output,
                       const AllreduceOptions& options) {
  return Handle(worker::start(reduction_of(Collective::allreduce, input, output, options),
                              options.name, Room::given));
}

Handle allreduce_async(const TensorView& tensor, const AllreduceOptions& options) {
  return allreduce_async(tensor, tensor, options);
}

void allreduce(const TensorView& tensor, const AllreduceOptions& options) {
  allreduce_async(tensor, options).wait();
}

void allreduce(const ConstTensorView& input, const TensorView& output,
               const AllreduceOptions& options) {
  allreduce_async(input, output, options).wait();
}

Handle grouped_allreduce_async(const std::vector<ConstTensorView>& inputs,
                               const std::vector<TensorView>& outputs,
                               const AllreduceOptions& options) {
  if (inputs.size() != outputs.size()) {
    throw InvalidArgumentError(cat("grouped_allreduce \"", options.name, "\": there are ",
                                   inputs.size(), " inputs, but ", outputs.size(), " outputs"));
  }
  std::vector<adapter::Submission> works;
  works.reserve(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    works.push_back(reduction_of(Collective::allreduce, inputs[i], outputs[i], options));
  }
  return Handle(
      worker::start_group(std::move(works), options.name, "grouped_allreduce", Room::given));
}

Handle grouped_allreduce_async(const std::vector<TensorView>& tensors,
                               const AllreduceOptions& options) {
  return grouped_allreduce_async({tensors.begin(), tensors.end()}, tensors, options);
}

void grouped_allreduce(const std::vector<TensorView>& tensors, const AllreduceOptions& options) {
  grouped_allreduce_async(tensors, options).wait();
}

void grouped_allreduce(const std::vector<ConstTensorView>& inputs,
                       const std::vector<TensorView>& outputs, const AllreduceOptions& options) {
  grouped_allreduce_async(inputs, outputs, options).wait();
}

Future<Tensor> reducescatter_async(const ConstTensorView& tensor,
                                   const ReducescatterOptions& options) {
  return Future<Tensor>(worker::start(reduction_of(Collective::reducescatter, tensor, {}, options),
                                      options.name, Room::made));
}

Handle reducescatter_async(const ConstTensorView& input, const TensorView& output,
                           const ReducescatterOptions& options) {
  return Handle(worker::start(reduction_of(Collective::reducescatter, input, output, options),
                              options.name, Room::given));
}

Tensor reducescatter(const ConstTensorView& tensor, const ReducescatterOptions& options) {
  return reducescatter_async(tensor, options).get();
}

void reducescatter(const ConstTensorView& input, const TensorView& output,
                   const ReducescatterOptions& options) {
  reducescatter_async(input, output, options).wait();
}

Future<std::vector<Tensor>> grouped_reducescatter_async(const std::vector<ConstTensorView>& tensors,
                                                        const ReducescatterOptions& options) {
  std::vector<adapter::Submission> works;
  works.reserve(tensors.size());
  for (const auto& tensor : tensors) {
    works.push_back(reduction_of(Collective::reducescatter, tensor, {}, options));
  }
  return Future<std::vector<Tensor>>(
      worker::start_group(std::move(works), options.name, "grouped_reducescatter", Room::made));
}

std::vector<Tensor> grouped_reducescatter(const std::vector<ConstTensorView>& tensors,
                                          const ReducescatterOptions& options) {
  return grouped_reducescatter_async(tensors, options).get();
}

}  // namespace hvd
