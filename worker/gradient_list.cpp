#include "worker/gradient_list.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "base/checksum.h"
#include "runtime/core/request.h"

namespace hvd::worker {
namespace {

// Above that a copy takes as long as what is saved.
constexpr std::size_t kMostPackableBytes = 8 << 10;

template <typename T>
void add_to(Checksum& sum, const T& value) {
  sum.add(std::as_bytes(std::span(&value, 1)));
}

}  // namespace

void Gradient::forget_step() {
  passes = 0;
  complete = false;
  left_out = false;
  events.clear();
  gathering.reset();
  indices = {};
  values = {};
  // The old ones may still be read.
  if (sparse) rows = std::make_shared<SparseRows>(tensor.shape, tensor.type);
}

void Gradient::forget_rows() {
  auto shape = tensor.shape;
  shape[0] = 0;
  indices = Tensor({0}, DataType::int64);
  values = Tensor(std::move(shape), tensor.type);
}

GradientList::GradientList(GradientReducerOptions options) : options_(std::move(options)) {
  check_options();
}

void GradientList::check_options() const {
  if (options_.name.empty()) {
    refuse_gradient("it needs a name, which stands before those of the gradients");
  }

  const double factor = options_.gradient_predivide_factor;
  if (!std::isfinite(factor) || factor <= 0) {
    refuse_gradient("gradient_predivide_factor ", factor, ": it must be above 0");
  }
  if (factor != 1 && options_.op != Average) {
    refuse_gradient("gradient_predivide_factor ", factor, " is there for average only, not for ",
                    runtime::op_name(options_.op));
  }

  if (options_.shards < 0) {
    refuse_gradient("shards ", options_.shards, ": it must be 0, for none, or more");
  }
  if (options_.shards != 0 && options_.op != Average) {
    refuse_gradient("shards ", options_.shards, " is there for average only, not for ",
                    runtime::op_name(options_.op));
  }

  if (options_.backward_passes_per_step < 1) {
    refuse_gradient("backward_passes_per_step ", options_.backward_passes_per_step,
                    ": it must be 1 or more");
  }

  if (options_.number_of_groups < 0) {
    refuse_gradient("number_of_groups ", options_.number_of_groups, ": it must be 0 or more");
  }
  if (options_.number_of_groups != 0 && !options_.groups.empty()) {
    refuse_gradient("number_of_groups and groups exclude each other");
  }
  for (const auto& group : options_.groups) {
    if (group.empty()) refuse_gradient("a group has no members");
  }
}

void GradientList::check_tensor(const Gradient& gradient) const {
  const auto& tensor = gradient.tensor;
  runtime::Request request;
  request.name = full_name(gradient);
  request.type = tensor.type;
  request.op = options_.op;
  request.shape = tensor.shape;
  request.compression = options_.compression;
  if (const Status status = runtime::check_request(request, 1); !status.ok()) {
    refuse_gradient(status.message());
  }

  if (!gradient.sparse) {
    // Without memory of its own each ready() names some, also where zeros are wanted.
    if (tensor.device.is_host() || options_.fill_zeros || tensor.data == nullptr) return;
    refuse_gradient("\"", gradient.name,
                    "\" does not lie in the memory of the host: that needs fill_zeros");
  }

  if (tensor.shape.empty()) refuse_gradient("\"", gradient.name, "\": a scalar has no rows");
  if (!tensor.device.is_host()) {
    refuse_gradient("\"", gradient.name, "\": rows are added in the memory of the host");
  }
  if (gradient.as_rows && options_.op != Average && options_.op != Sum) {
    refuse_gradient("\"", gradient.name, "\": rows can be averaged or added; ",
                    runtime::op_name(options_.op), " needs sparse_as_dense");
  }
}

void GradientList::check_memory(const Gradient& gradient) const {
  const auto& tensor = gradient.tensor;
  if (gradient.as_rows || tensor.data != nullptr || tensor.elements() == 0) return;
  refuse_gradient("\"", gradient.name, "\" has ", tensor.elements(),
                  " elements, but no memory (data is null)");
}

void GradientList::move(Gradient& gradient, const TensorView& tensor) {
  if (!is_alike(tensor, gradient.tensor)) {
    Gradient moved{.name = gradient.name,
                   .tensor = tensor,
                   .sparse = gradient.sparse,
                   .as_rows = gradient.as_rows};
    moved.tensor.data = nullptr;
    check_tensor(moved);
    is_digest_current_ = false;
  }
  gradient.tensor = tensor;
}

std::size_t GradientList::add(std::string name, const TensorView& tensor, bool sparse) {
  if (!open_) {
    refuse_gradient("\"", name, "\" comes too late: gradients are added before the first is ready");
  }
  if (name.empty()) refuse_gradient("a gradient needs a name");
  if (index_.contains(name)) refuse_gradient("there is a gradient \"", name, "\" already");
  Gradient gradient{.name = std::move(name),
                    .tensor = tensor,
                    .sparse = sparse,
                    .as_rows = sparse && !options_.sparse_as_dense};
  check_tensor(gradient);
  gradient.forget_step();
  const std::size_t index = gradients_.size();
  index_.emplace(gradient.name, index);
  gradients_.push_back(std::move(gradient));
  return index;
}

std::size_t GradientList::index_of(std::string_view name) const {
  const auto found = index_.find(std::string(name));
  if (found == index_.end()) refuse_gradient("there is no gradient \"", name, "\"");
  return found->second;
}

const Gradient& GradientList::at(std::size_t index) const {
  if (index < gradients_.size()) return gradients_[index];
  refuse_gradient("there is no gradient ", index, "; there are ", gradients_.size());
}

Gradient& GradientList::at(std::size_t index) {
  return const_cast<Gradient&>(std::as_const(*this).at(index));  // of this list, which is not const
}

std::vector<GradientGroup> GradientList::named_groups() const {
  std::vector<GradientGroup> groups;
  std::vector<bool> taken(gradients_.size());
  for (const auto& names : options_.groups) {
    auto& group = groups.emplace_back();
    for (const auto& name : names) {
      const auto found = index_.find(name);
      if (found == index_.end()) refuse_gradient("groups: there is no gradient \"", name, "\"");
      const auto index = found->second;
      if (taken[index]) refuse_gradient("groups: \"", name, "\" stands there twice");
      if (gradients_[index].as_rows) {
        refuse_gradient("groups: \"", name, "\" is sparse: that needs sparse_as_dense");
      }
      taken[index] = true;
      group.members.push_back(index);
    }
  }
  return groups;
}

std::vector<GradientGroup> GradientList::numbered_groups() const {
  std::vector<std::size_t> dense;
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    if (!gradients_[i].as_rows) dense.push_back(i);
  }
  const auto count = std::min(static_cast<std::size_t>(options_.number_of_groups), dense.size());
  std::vector<GradientGroup> groups(count);
  for (std::size_t g = 0; g < count; ++g) {
    const auto first = dense.size() * g / count;
    const auto last = dense.size() * (g + 1) / count;
    groups[g].members.assign(dense.begin() + static_cast<std::ptrdiff_t>(first),
                             dense.begin() + static_cast<std::ptrdiff_t>(last));
  }
  return groups;
}

void GradientList::close() {
  if (!open_) return;
  auto groups = options_.groups.empty() ? numbered_groups() : named_groups();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    groups[g].name = cat(options_.name, ".group.", g);
    groups[g].incomplete = groups[g].members.size();
    for (const auto member : groups[g].members) gradients_[member].group = g;
  }
  groups_ = std::move(groups);
  mark_packable();
  open_ = false;
}

void GradientList::mark_packable() {
  if (options_.op == Adasum || options_.compression != Compression::none) return;
  for (auto& gradient : gradients_) {
    const auto& tensor = gradient.tensor;
    gradient.packable = !gradient.sparse && gradient.group == kNoGroup && tensor.device.is_host() &&
                        tensor.bytes() <= kMostPackableBytes;
  }
}

std::optional<std::uint64_t> GradientList::digest_of_packable() {
  if (!is_digest_current_) digest_ = compute_digest();
  is_digest_current_ = true;
  return digest_;
}

std::optional<std::uint64_t> GradientList::compute_digest() const {
  Checksum sum;
  std::size_t count = 0;
  for (const auto& gradient : gradients_) {
    if (!gradient.packable) continue;
    const auto& tensor = gradient.tensor;
    if (!tensor.device.is_host()) return {};
    add_to(sum, gradient.name.size());
    sum.add(std::as_bytes(std::span(gradient.name)));
    add_to(sum, tensor.type);
    add_to(sum, tensor.shape.size());
    sum.add(std::as_bytes(std::span(tensor.shape)));
    ++count;
  }
  if (count < 2) return {};
  return sum.value();
}

void GradientList::forget_step() {
  for (auto& gradient : gradients_) gradient.forget_step();
  for (auto& group : groups_) group.incomplete = group.members.size();
}

}  // namespace hvd::worker
