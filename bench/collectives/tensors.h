// Tensors of one name each that are reduced all at once, through the whole pipeline. For
// benchmarks.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "runtime/control/world.h"
#include "runtime/shm/shared_heap.h"

namespace hvd::bench {

[[noreturn]] inline void give_up(const Status& why) {
  std::fprintf(stderr, "%s\n", why.to_string().c_str());
  std::_Exit(1);
}

// Waits for many collectives.
class Latch {
 public:
  void expect(int count) {
    const std::lock_guard lock(mutex_);
    open_ += count;
  }
  void done(const runtime::Outcome& outcome) {
    if (!outcome.ok()) give_up(outcome.failure.status);
    const std::lock_guard lock(mutex_);
    if (--open_ == 0) changed_.notify_one();
  }
  void wait(runtime::World& world) {
    world.progress_until([this] {
      const std::lock_guard lock(mutex_);
      return open_ == 0;
    });
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int open_ = 0;
};

class Tensors {
 public:
  // In memory of their own, or in the shared heap.
  enum class Memory { own, shared };
  Tensors(runtime::World& world, std::string_view name, const std::vector<std::size_t>& sizes,
          Memory memory = Memory::own)
      : world_(world) {
    for (const auto size : sizes) {
      names_.push_back(cat(name, ".", data_.size()));
      data_.push_back(memory == Memory::own ? own_memory(size) : shared_memory(size));
      std::fill(data_.back().begin(), data_.back().end(), 1.0F);
    }
  }
  ~Tensors() {
    for (const auto& data : shared_) runtime::SharedHeap::of_process().free(data);
  }
  Tensors(const Tensors&) = delete;
  Tensors& operator=(const Tensors&) = delete;
  void allreduce() {
    latch_.expect(static_cast<int>(data_.size()));
    for (std::size_t i = 0; i < data_.size(); ++i) {
      runtime::Entry entry;
      entry.request.name = names_[i];
      entry.request.kind = runtime::Kind::allreduce;
      entry.request.type = DataType::float32;
      entry.request.op = ReduceOp::sum;
      entry.request.shape = {static_cast<std::int64_t>(data_[i].size())};
      entry.input = entry.output = data_[i].data();
      entry.done_wakes_only = true;
      entry.done = [this](const runtime::Outcome& outcome) { latch_.done(outcome); };
      const auto refused = world_.enqueue(std::move(entry));
      if (!refused.ok()) give_up(refused.status);
    }
    latch_.wait(world_);
  }

 private:
  std::span<float> own_memory(std::size_t size) { return own_.emplace_back(size); }
  std::span<float> shared_memory(std::size_t size) {
    const auto memory = runtime::SharedHeap::of_process().allocate(size * sizeof(float));
    if (!memory.ok()) give_up(memory.status());
    shared_.push_back(*memory);
    return {reinterpret_cast<float*>(*memory), size};
  }

  runtime::World& world_;
  std::vector<std::string> names_;
  std::vector<std::span<float>> data_;
  std::vector<std::vector<float>> own_;
  std::vector<const std::byte*> shared_;
  Latch latch_;
};

}  // namespace hvd::bench
