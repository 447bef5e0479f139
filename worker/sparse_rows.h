// Rows of a gradient that were given to a GradientReducer and are not sent yet: copies, in the
// order in which they came. For one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <hvd/gradient_reducer.h>
#include <hvd/tensor.h>

namespace hvd::worker {

class SparseRows {
 public:
  SparseRows() = default;
  // Rows of a tensor of this shape and type.
  SparseRows(const std::vector<std::int64_t>& shape, DataType type);

  // Throws InvalidArgumentError, which names the tensor, if they are not rows of it.
  void append(const SparseGradient& gradient, const std::string& name);
  void keep_first(std::size_t count);  // forgets the others
  std::size_t count() const { return indices_.size(); }

  ConstTensorView indices() const { return indices_; }  // int64
  ConstTensorView values() const;
  // data[index] += row, for each of them.
  void add_to(void* data) const;

 private:
  template <typename Index>
  void append_indices(const ConstTensorView& indices, const std::string& name);

  std::vector<std::int64_t> shape_;  // of the tensor
  DataType type_ = DataType::uint8;
  std::size_t row_elements_ = 0;
  std::vector<std::int64_t> indices_;
  std::vector<std::byte> values_;
};

}  // namespace hvd::worker
