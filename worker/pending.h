// The object behind a Handle: some submissions, from the call until the last one is done.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <sys/types.h>
#include <unistd.h>
#include <vector>

#include <hvd/adapter.h>
#include <hvd/tensor.h>

#include "base/clock.h"

namespace hvd::runtime {
class World;
}

namespace hvd::detail {

// Safe from any thread. Results may be taken once all is done.
class Pending : public std::enable_shared_from_this<Pending> {
 public:
  // One submission, and what comes out of it.
  struct Part {
    Tensor tensor;  // if it was to make its own room
    ReduceOp op = ReduceOp::average;
    std::vector<std::int64_t> received_splits;
    int contributors = 0;
    int last_joined = -1;
    int process_set = -1;
  };
  // Where results go: into the memory of the caller, or into tensors that are made for them.
  enum class Room { given, made };

  explicit Pending(std::size_t parts) : parts_(parts), left_(parts), delivered_(parts == 0) {}

  // Fills in what the submissions lack, and submits them: as a group if `group` is a name.
  static std::shared_ptr<Pending> start(std::vector<adapter::Submission> works, Room room,
                                        const std::string& group = {});

  bool ready() const;
  // Blocks until all are done; throws the first error.
  void wait() const;
  // The same, until the deadline at most; false: some are not done by then.
  bool wait_until(TimePoint deadline) const;
  void on_done(std::function<void(std::exception_ptr)> callback);
  // Waits. Throws InvalidArgumentError if it has been called before.
  std::vector<Part> take();

 private:
  // Throws NotInitializedError if this process was forked from the one that started the work, and
  // the work was not done then: the threads that finish it are in the parent alone.
  void check_process() const;
  // The calling thread drives the world that the work is for, until all are done; it may return
  // earlier.
  void drive_world_until(TimePoint deadline) const;
  // Throws the error of the finished work, if there is one.
  void throw_error() const;
  void finish(std::size_t part, const adapter::Completion& completion);
  void call_back();

  const pid_t starter_ = ::getpid();
  std::weak_ptr<runtime::World> world_;  // set before another thread has this
  mutable std::mutex mutex_;
  mutable std::condition_variable finished_;
  std::vector<Part> parts_;
  std::size_t left_;
  bool taken_ = false;
  std::exception_ptr error_;  // of the first that failed; does not change once all are done
  std::vector<std::function<void(std::exception_ptr)>> callbacks_;  // not called yet
  bool delivered_;  // all that came in time have been called: later ones are called at once
};

// The results of a Future; throws InvalidArgumentError if it is one of nothing.
std::vector<Pending::Part> take(const std::shared_ptr<Pending>& pending);

}  // namespace hvd::detail
