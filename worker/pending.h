// What stands behind a Handle: some submissions, from the call until the last one is done.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <hvd/adapter.h>
#include <hvd/tensor.h>

namespace hvd::detail {

// Safe from any thread. Results may be taken once all is done.
class Pending {
 public:
  // One submission, and what comes out of it.
  struct Part {
    Tensor tensor;  // if the submission asked for room
    std::vector<std::int64_t> received_splits;
    int last_joined = -1;
    int process_set = -1;
  };

  explicit Pending(std::size_t parts) : parts_(parts), left_(parts) {}

  // Fills in `done` and, if there is no memory for the output and `with_room`, `allocate`; submits
  // them, as a group if they are more than one or `group` is a name.
  static std::shared_ptr<Pending> start(std::vector<adapter::Submission> works, bool with_room,
                                        const std::string& group = {});

  bool ready() const;
  // Blocks until all are done; throws the first error.
  void wait() const;
  void on_done(std::function<void(std::exception_ptr)> callback);
  // Waits. Throws InvalidArgumentError if it has been called before.
  std::vector<Part> take();

 private:
  void finish(std::size_t part, const adapter::Completion& completion);

  mutable std::mutex mutex_;
  mutable std::condition_variable finished_;
  std::vector<Part> parts_;
  std::size_t left_;
  bool taken_ = false;
  std::exception_ptr error_;
  std::vector<std::function<void(std::exception_ptr)>> callbacks_;
};

}  // namespace hvd::detail
