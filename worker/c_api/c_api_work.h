// The object behind an hvd_handle: work in flight, and then its results. Safe from any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <hvd/adapter.h>
#include <hvd/handle.h>

#include "worker/c_api/c_api.h"
#include "worker/submissions.h"

namespace hvd::c_api {

// One tensor of a result.
struct Result {
  const void* data = nullptr;
  std::vector<std::int64_t> shape = {};
  DataType type = DataType::uint8;
  Device device = {};
};

// The results of work.
struct Results {
  std::vector<Result> tensors = {};
  std::vector<std::int64_t> received_splits = {};
  int last_joined = -1;
  std::shared_ptr<const void> memory = {};  // of tensors that hvd has made
};

class Work {
 public:
  // `take` is called once, when the handle is ready and well.
  Work(Handle handle, std::function<Results()> take)
      : handle_(std::move(handle)), take_(std::move(take)) {}

  const Handle& handle() const { return handle_; }
  // Waits, and throws what went wrong, if anything did.
  const Results& results();

 private:
  const Handle handle_;
  std::mutex mutex_;
  const std::function<Results()> take_;
  std::optional<Results> results_;  // under mutex_
};

Registry<Work>& works();

// Options of one call, checked, and the events that it has taken over.
class CallOptions {
 public:
  // For a call of `count` tensors.
  CallOptions(const hvd_options* given, const char* call, std::size_t count);

  // For calls that know no events and make room by themselves.
  void need_no_memory() const;
  const hvd_options& c() const { return options_; }
  std::string name() const { return options_.name == nullptr ? "" : options_.name; }
  ProcessSet process_set() const { return ProcessSet(options_.process_set); }
  // All that options say of the tensor `index`.
  adapter::Submission submission(Collective collective, const TensorView& input,
                                 const TensorView& output, std::size_t index) const;

 private:
  const char* call_;
  hvd_options options_;
  std::vector<std::shared_ptr<ReadyEvent>> events_;
};

// Starts `works`, as a group if `grouped`; those without an output get one, from the caller's
// allocator or from hvd.
std::shared_ptr<Work> start(std::vector<adapter::Submission> works, const CallOptions& options,
                            const char* call, bool grouped, bool with_output);

// Puts it where `handle` says.
int give(hvd_handle* handle, const std::shared_ptr<Work>& work);
// Waits for the work that a call has started; without success there is no handle.
int finish(int started, hvd_handle* handle);

}  // namespace hvd::c_api
