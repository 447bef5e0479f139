// The gradients of a GradientReducer: what was added, in which groups they travel, which of them
// may be packed, and how far each has come in this step. For one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <hvd/error.h>
#include <hvd/gradient_reducer.h>

#include "base/text.h"
#include "worker/pending.h"
#include "worker/sparse_rows.h"

namespace hvd::worker {

inline constexpr std::size_t kNoGroup = std::numeric_limits<std::size_t>::max();

struct Gradient {
  std::string name;
  TensorView tensor;
  bool sparse = false;
  bool as_rows = false;  // sparse, and not added up in `tensor`
  std::size_t group = kNoGroup;
  bool packable = false;  // small, and in no group (GradientPack)
  // State of this step:
  int passes = 0;
  bool complete = false;  // sent, or waits for others
  bool left_out = false;  // no rank has it
  std::vector<std::shared_ptr<ReadyEvent>> events = {};
  std::shared_ptr<SparseRows> rows = {};            // of a sparse one; never null then
  std::shared_ptr<detail::Pending> gathering = {};  // of rows that have been sent
  Tensor indices = {};                              // what came of it
  Tensor values = {};

  void forget_step();
  void forget_rows();  // those of all ranks are none
};

struct GradientGroup {
  std::string name;
  std::vector<std::size_t> members;
  std::size_t incomplete = 0;  // of members, in this step
};

// Throws what a misuse of the reducer throws.
template <typename... Why>
[[noreturn]] void refuse_gradient(const Why&... why) {
  throw InvalidArgumentError(cat("GradientReducer: ", why...));
}

// But for where it lies.
inline bool is_alike(const TensorView& a, const TensorView& b) {
  return a.type == b.type && a.shape == b.shape && a.device == b.device;
}

class GradientList {
 public:
  // Throws InvalidArgumentError if the options contradict each other.
  explicit GradientList(GradientReducerOptions options);

  const GradientReducerOptions& options() const { return options_; }
  std::size_t add(std::string name, const TensorView& tensor, bool sparse);
  // Nothing can be added from now on; forms the groups: the same on all ranks that added alike.
  void close();
  void forget_step();
  // The gradient lies there now. Throws InvalidArgumentError if that cannot be reduced.
  void move(Gradient& gradient, const TensorView& tensor);
  // Throws InvalidArgumentError if a gradient that is about to be sent has none.
  void check_memory(const Gradient& gradient) const;

  std::size_t index_of(std::string_view name) const;
  Gradient& at(std::size_t index);
  const Gradient& at(std::size_t index) const;
  std::vector<Gradient>& all() { return gradients_; }
  const std::vector<Gradient>& all() const { return gradients_; }
  GradientGroup& group(std::size_t index) { return groups_[index]; }
  // Digest of the names, types and shapes of all packable gradients, by index. None: there are not
  // two, or one of them does not lie in the memory of the host.
  std::optional<std::uint64_t> digest_of_packable();
  // The name of the collective.
  std::string full_name(const Gradient& gradient) const {
    return cat(options_.name, ".", gradient.name);
  }

 private:
  void check_options() const;
  void check_tensor(const Gradient& gradient) const;
  std::vector<GradientGroup> named_groups() const;
  std::vector<GradientGroup> numbered_groups() const;
  void mark_packable();
  std::optional<std::uint64_t> compute_digest() const;

  GradientReducerOptions options_;
  bool open_ = true;
  std::vector<Gradient> gradients_;
  std::unordered_map<std::string, std::size_t> index_;
  std::vector<GradientGroup> groups_;
  std::optional<std::uint64_t> digest_;
  bool is_digest_current_ = false;
};

}  // namespace hvd::worker
