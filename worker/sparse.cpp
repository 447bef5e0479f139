#include <hvd/error.h>
#include <hvd/sparse.h>

#include "base/text.h"
#include "runtime/core/arithmetic.h"
#include "worker/process/current_world.h"
#include "worker/process/process_world.h"
#include "worker/submissions.h"

namespace hvd {
namespace {

template <typename... Why>
[[noreturn]] void refuse(const std::string& name, const Why&... why) {
  throw InvalidArgumentError(cat("sparse_allreduce \"", name, "\": ", why...));
}

void check(const std::string& name, const ConstTensorView& indices, const ConstTensorView& values,
           ReduceOp op) {
  const auto text = [](const ConstTensorView& view) {
    return cat(runtime::type_name(view.type), runtime::shape_text(view.shape));
  };
  if (op != Average && op != Sum) {
    refuse(name, "it can be summed or averaged; ", runtime::op_name(op), " is for dense tensors");
  }
  if (!indices.device.is_host() || !values.device.is_host()) {
    refuse(name, "indices and values must lie in the memory of the host");
  }
  if (indices.type != DataType::int32 && indices.type != DataType::int64) {
    refuse(name, "indices are int32 or int64, not ", text(indices));
  }
  if (indices.shape.empty() || indices.shape.size() > 2) {
    refuse(name, "indices have one or two dimensions, not those of ", text(indices));
  }
  if (values.type == DataType::boolean) refuse(name, "booleans cannot be added up");
  if (values.shape.empty() || values.shape.front() != indices.shape.front()) {
    refuse(name, "there must be as many values as indices, but the values are ", text(values),
           ", the indices ", text(indices));
  }
}

}  // namespace

Future<SparseTensor> sparse_allreduce_async(const ConstTensorView& indices,
                                            const ConstTensorView& values,
                                            const SparseAllreduceOptions& options) {
  worker::ProcessWorld::instance().world_for_collective("sparse_allreduce");
  worker::CallName name(options.name, {"sparse_allreduce", options.process_set.id()});
  check(name.text(), indices, values, options.op);
  std::vector<adapter::Submission> works;
  for (const auto& view : {indices, values}) {
    works.push_back(worker::submission_of(Collective::allgather, view, {}, options));
    works.back().op = options.op;  // gathering does nothing with it, but the ranks must agree
  }
  works[0].name = cat(name.text(), ".indices");
  works[1].name = cat(name.text(), ".values");
  auto started =
      worker::start_group(std::move(works), name.text(), "sparse_allreduce", worker::Room::made);
  name.keep();
  return Future<SparseTensor>(std::move(started));
}

SparseTensor sparse_allreduce(const ConstTensorView& indices, const ConstTensorView& values,
                              const SparseAllreduceOptions& options) {
  return sparse_allreduce_async(indices, values, options).get();
}

// Here, and not where the result arrives: the caller's thread has time for it, ours has not.
template <>
SparseTensor Future<SparseTensor>::get() {
  auto parts = take(pending_);
  auto& values = parts[1].tensor;
  if (parts[1].op == Average) {
    runtime::divide(values.type(), static_cast<std::byte*>(values.data()),
                    static_cast<std::size_t>(values.elements()), parts[1].contributors);
  }
  return {std::move(parts[0].tensor), std::move(values)};
}

}  // namespace hvd
