// Sparse tensors: the rows of a large one that are not zero, and where they belong.
//
//     // Rows 3 and 17 of an embedding of 64 columns.
//     std::vector<std::int64_t> indices{3, 17};
//     std::vector<float> rows(2 * 64);
//     const auto sum = hvd::sparse_allreduce(indices, hvd::shaped(rows, {2, 64}));
//     for (i...) gradient[sum.indices[i]] += sum.values[i];
//
// Nothing is added up: the result has the entries of all ranks one after the other, in the order of
// ranks, and an index as often as ranks gave it.
#pragma once

#include <string>

#include <hvd/export.h>
#include <hvd/handle.h>
#include <hvd/process_set.h>
#include <hvd/tensor.h>
#include <hvd/types.h>

namespace hvd {

struct SparseTensor {
  Tensor indices;
  Tensor values;
};

struct SparseAllreduceOptions {
  std::string name = {};
  // Average divides the values by the number of ranks that gave something, be it no entries: all of
  // the set but joined ones. Or Sum.
  ReduceOp op = Average;
  ProcessSet process_set = {};
};

// `indices`: int32 or int64, of shape [n], or [n, d] for positions in d dimensions. `values`: of
// shape [n, ...], one entry for each. n may differ between ranks, and be 0. Both are gathered
// together, under the names <name>.indices and <name>.values.
HVD_API Future<SparseTensor> sparse_allreduce_async(const ConstTensorView& indices,
                                                    const ConstTensorView& values,
                                                    const SparseAllreduceOptions& options = {});
HVD_API SparseTensor sparse_allreduce(const ConstTensorView& indices, const ConstTensorView& values,
                                      const SparseAllreduceOptions& options = {});

template <>
HVD_API SparseTensor Future<SparseTensor>::get();

}  // namespace hvd
