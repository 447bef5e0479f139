#include "worker/sparse_rows.h"

#include <span>

#include <hvd/error.h>

#include "base/text.h"
#include "runtime/core/arithmetic.h"
#include "runtime/core/request.h"
#include "runtime/ops/layout.h"

namespace hvd::worker {
namespace {

template <typename... Why>
[[noreturn]] void refuse(const std::string& name, const Why&... why) {
  throw InvalidArgumentError(cat("gradient \"", name, "\": ", why...));
}

}  // namespace

SparseRows::SparseRows(const std::vector<std::int64_t>& shape, DataType type)
    : shape_(shape),
      type_(type),
      row_elements_(static_cast<std::size_t>(
          detail::elements_of(std::span(shape).subspan(shape.empty() ? 0 : 1)))) {}

template <typename Index>
void SparseRows::append_indices(const ConstTensorView& indices, const std::string& name) {
  const std::span all(static_cast<const Index*>(indices.data),
                      static_cast<std::size_t>(indices.elements()));
  for (const auto index : all) {
    if (index < 0 || index >= shape_.front()) {
      refuse(name, "there is no row ", index, " in ", runtime::type_name(type_),
             runtime::shape_text(shape_));
    }
  }
  indices_.insert(indices_.end(), all.begin(), all.end());
}

void SparseRows::append(const SparseGradient& gradient, const std::string& name) {
  const auto& [indices, values] = gradient;
  if (!indices.device.is_host() || !values.device.is_host()) {
    refuse(name, "rows must lie in the memory of the host");
  }
  if (indices.shape.size() != 1 || indices.shape.front() < 0 ||
      (indices.type != DataType::int32 && indices.type != DataType::int64)) {
    refuse(name, "indices are int32 or int64 with one dimension, not ",
           runtime::type_name(indices.type), runtime::shape_text(indices.shape));
  }

  const auto expected = runtime::with_rows(shape_, indices.shape.front());
  if (values.type != type_ || values.shape != expected) {
    refuse(name, "the values of ", indices.shape.front(), " rows are ", runtime::type_name(type_),
           runtime::shape_text(expected), ", not ", runtime::type_name(values.type),
           runtime::shape_text(values.shape));
  }

  if (indices.elements() > 0 &&
      (indices.data == nullptr || (values.bytes() > 0 && values.data == nullptr))) {
    refuse(name, "there are ", indices.elements(), " rows, but no memory (data is null)");
  }

  if (indices.type == DataType::int32) {
    append_indices<std::int32_t>(indices, name);
  } else {
    append_indices<std::int64_t>(indices, name);
  }

  if (values.bytes() == 0) return;
  const auto* const bytes = static_cast<const std::byte*>(values.data);
  values_.insert(values_.end(), bytes, bytes + values.bytes());
}

void SparseRows::keep_first(std::size_t count) {
  indices_.resize(count);
  values_.resize(count * row_elements_ * size_of(type_));
}

ConstTensorView SparseRows::values() const {
  return {values_.data(), runtime::with_rows(shape_, static_cast<std::int64_t>(count())), type_};
}

void SparseRows::add_to(void* data) const {
  const auto add = runtime::reduce_function(type_, ReduceOp::sum);
  const std::size_t row_bytes = row_elements_ * size_of(type_);
  for (std::size_t i = 0; i < count(); ++i) {
    auto* const row =
        static_cast<std::byte*>(data) + static_cast<std::size_t>(indices_[i]) * row_bytes;
    add(row, row, values_.data() + i * row_bytes, row_elements_);
  }
}

}  // namespace hvd::worker
