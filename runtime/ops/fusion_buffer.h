// The memory in which tensors of one batch lie side by side. Grows to the largest batch seen and
// stays. For one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

#include "runtime/core/activity.h"

namespace hvd::runtime {

class FusionBuffer {
 public:
  // At least `bytes` of memory, aligned for any vector instruction; what lay in it is lost.
  std::byte* reserve(std::size_t bytes) {
    if (bytes > size_) {
      const trace::ActivityScope activity(trace::Activity::init_fusion_buffer);
      memory_.reset();
      memory_.reset(static_cast<std::byte*>(::operator new(bytes, kAlignment)));
      size_ = bytes;
    }
    return memory_.get();
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete(memory, kAlignment); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t size_ = 0;
};

}  // namespace hvd::runtime
