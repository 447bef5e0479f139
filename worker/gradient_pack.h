// The small gradients of a step as a few tensors, one for each type: one operation and a copy of
// each gradient in place of an operation for each. The ranks must pack the same gradients, which
// they find out together in every step: each gives a mark, and the largest of the marks says
// whether all do. For one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <hvd/tensor.h>

#include "worker/gradient_list.h"

namespace hvd::worker {

class GradientPack {
 public:
  // The bytes of the digest, and their complements: the largest of each are complements again if
  // all digests are equal, and only then. A rank that has joined gives zeros, which change nothing.
  using Mark = std::array<std::uint8_t, 2 * sizeof(std::uint64_t)>;
  // Without a digest the ranks do not agree.
  static Mark mark(std::optional<std::uint64_t> digest);
  static bool is_agreed(std::span<const std::uint8_t> largest);

  // Kept alive by the operation that works on it.
  struct Part {
    Tensor memory;
    std::vector<std::size_t> members;
  };
  // Packs the packable gradients that are not left out, with zeros for those without a pass. Waits
  // for their events. All operations on earlier parts have ended.
  void fill(GradientList& list);
  const std::vector<std::shared_ptr<Part>>& parts() const { return parts_; }
  // What the parts hold goes into the gradients.
  void unpack(GradientList& list) const;

 private:
  Part& part_for(DataType type);

  std::vector<std::shared_ptr<Part>> parts_;
};

}  // namespace hvd::worker
