// How far this process is with writing the state of a job that is being suspended: told by the
// thread that writes, and reported with the work counters. Safe from any thread.
#pragma once

#include <cstdint>
#include <mutex>

#include "base/protocol/work_reading.h"

namespace hvd::worker {

class SaveMeter {
 public:
  void begin(std::uint64_t total) {
    const std::lock_guard lock(mutex_);
    saving_ = {.total_bytes = total};
  }
  void wrote(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    saving_.written_bytes += bytes;
  }
  void put_in_place() {
    const std::lock_guard lock(mutex_);
    saving_.is_in_place = true;
  }
  StateSaving read() const {
    const std::lock_guard lock(mutex_);
    return saving_;
  }

 private:
  mutable std::mutex mutex_;
  StateSaving saving_;
};

}  // namespace hvd::worker
