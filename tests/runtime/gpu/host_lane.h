// A queue of work on a simulated GPU: a thread of its own does the work in the order of put(). Any
// thread may put; the queue ends when all is done.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include <hvd/cuda_event.h>

namespace hvd::test {

class HostLane {
 public:
  HostLane() : thread_([this] { work(); }) {}
  ~HostLane() {
    put(nullptr);
    thread_.join();
  }
  HostLane(const HostLane&) = delete;
  HostLane& operator=(const HostLane&) = delete;

  // The same as a stream of CUDA, for code that only passes it on.
  cuda::Stream stream() { return reinterpret_cast<cuda::Stream>(this); }
  static HostLane& of(cuda::Stream stream) { return *reinterpret_cast<HostLane*>(stream); }

  void put(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(work));
    changed_.notify_all();
  }

 private:
  void work() {
    for (;;) {
      std::function<void()> next;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return !waiting_.empty(); });
        next = std::move(waiting_.front());
        waiting_.pop_front();
      }
      if (!next) return;
      next();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  std::thread thread_;
};

}  // namespace hvd::test
