#include "worker/c_api/c_api_work.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace hvd::c_api {

Registry<Work>& works() {
  static auto& only = *new Registry<Work>("handle");  // callers may still use it at the very end
  return only;
}

const Results& Work::results() {
  handle_.wait();
  const std::lock_guard lock(mutex_);
  if (!results_) results_ = take_();
  return *results_;
}

namespace {

// Results of collectives whose outputs lie in memory of the caller, `given`, or else of `pending`.
Results results_of(detail::Pending& pending, const std::shared_ptr<std::vector<Result>>& given) {
  const auto parts = std::make_shared<std::vector<detail::Pending::Part>>(pending.take());
  Results results;
  if (parts->size() == 1) {
    results.received_splits = parts->front().received_splits;
    results.last_joined = parts->front().last_joined;
  }
  results.memory = parts;
  if (given) {
    results.tensors = *given;
    return results;
  }
  for (const auto& part : *parts) {
    const auto& tensor = part.tensor;
    results.tensors.push_back({tensor.data(), tensor.shape(), tensor.type(), tensor.device()});
  }
  return results;
}

}  // namespace

CallOptions::CallOptions(const hvd_options* given, const char* call, std::size_t count)
    : call_(call),
      options_(read_options<hvd_options>(given, HVD_OPTIONS_INIT, sizeof(hvd_options), call)) {
  const auto events = options_.ready_count;
  if (events != 0 && events != 1 && events != count) {
    refuse(call, "(): options.ready_count is ", events, " for ", count, " tensors");
  }
  if (events != 0) not_null(options_.ready, call, "options.ready");
  events_ = events_of(options_.ready, events, call);
  if (options_.split_count != 0) not_null(options_.splits, call, "options.splits");
  op_of(options_.op, call);
  compression_of(options_.compression, call);
}

void CallOptions::need_no_memory() const {
  if (options_.ready_count != 0) refuse(call_, "(): it takes no ready events");
  if (options_.allocate != nullptr) refuse(call_, "(): it takes no allocator");
}

adapter::Submission CallOptions::submission(Collective collective, const TensorView& input,
                                            const TensorView& output, std::size_t index) const {
  adapter::Submission work;
  work.collective = collective;
  work.input = input;
  work.output = output;
  work.process_set = process_set();
  if (!events_.empty()) work.ready = events_.size() == 1 ? events_.front() : events_[index];
  if (collective == Collective::allreduce || collective == Collective::reducescatter) {
    work.op = op_of(options_.op, call_);
    work.prescale = options_.prescale;
    work.postscale = options_.postscale;
    work.compression = compression_of(options_.compression, call_);
  }
  if (collective == Collective::broadcast) work.root = options_.root;
  if (collective == Collective::alltoall) {
    work.splits.assign(options_.splits, options_.splits + options_.split_count);
  }
  return work;
}

std::shared_ptr<Work> start(std::vector<adapter::Submission> submissions,
                            const CallOptions& options, const char* call, bool grouped,
                            bool with_output) {
  std::shared_ptr<std::vector<Result>> results;
  const bool bare =
      !submissions.empty() && (submissions.front().collective == Collective::barrier ||
                               submissions.front().collective == Collective::join);
  const auto allocate = with_output ? nullptr : options.c().allocate;
  if (with_output || allocate != nullptr) {
    results = std::make_shared<std::vector<Result>>(bare ? 0 : submissions.size());
  }

  for (std::size_t i = 0; i < submissions.size(); ++i) {
    auto& work = submissions[i];
    if (with_output && !bare) {
      (*results)[i] = {work.output.data, work.output.shape, work.output.type, work.output.device};
    }
    if (allocate == nullptr) continue;
    work.allocate = [results, i, allocate, data = options.c().allocate_data, type = work.input.type,
                     device = work.input.device](const std::vector<std::int64_t>& shape) {
      void* const room = allocate(data, i, shape.data(), static_cast<std::int32_t>(shape.size()),
                                  static_cast<std::int32_t>(type));
      (*results)[i] = {room, shape, type, device};
      return room;
    };
  }

  const auto room = results ? worker::Room::given : worker::Room::made;
  auto pending = grouped ? worker::start_group(std::move(submissions), options.name(), call, room)
                         : worker::start(std::move(submissions.front()), options.name(), room);
  Handle started(pending);
  return std::make_shared<Work>(std::move(started),
                                [pending, results] { return results_of(*pending, results); });
}

int give(hvd_handle* handle, const std::shared_ptr<Work>& work) {
  *handle = works().add(work);
  return HVD_OK;
}

int finish(int started, hvd_handle* handle) {
  if (started != HVD_OK) return started;
  const int code = hvd_wait(*handle);
  if (code == HVD_OK) return code;
  hvd_release(*handle);
  *handle = 0;
  return code;
}

}  // namespace hvd::c_api

using namespace hvd::c_api;  // NOLINT(google-build-using-namespace): the calls below are of C

int hvd_wait(hvd_handle handle) {
  return guard([&] {
    works().find(handle)->handle().wait();
    return HVD_OK;
  });
}

int hvd_wait_for(hvd_handle handle, int64_t timeout_ms) {
  return guard([&] {
    const std::chrono::milliseconds timeout(std::max<std::int64_t>(timeout_ms, 0));
    if (works().find(handle)->handle().wait_for(timeout)) return static_cast<int>(HVD_OK);
    return note(HVD_ERROR_NOT_READY,
                hvd::cat("hvd_wait_for(): the work is not done after ", timeout.count(), " ms"));
  });
}

int hvd_ready(hvd_handle handle) {
  return guard([&] { return works().find(handle)->handle().ready(); });
}

int hvd_on_done(hvd_handle handle, hvd_callback done, void* data) {
  return guard([&] {
    not_null(done, "hvd_on_done", "done");
    works().find(handle)->handle().on_done(
        [done, data](const std::exception_ptr& error) { done(data, note(error)); });
    return HVD_OK;
  });
}

int hvd_release(hvd_handle handle) {
  if (handle == 0) return HVD_OK;
  return guard([&] {
    works().remove(handle);
    return HVD_OK;
  });
}

namespace {

// `call` with the work, if it is done.
template <typename Call>
int when_ready(hvd_handle handle, Call call) {
  return guard([&] {
    const auto work = works().find(handle);
    if (!work->handle().ready()) {
      return note(HVD_ERROR_NOT_READY,
                  hvd::cat("handle ", handle, " is not done: hvd_wait() first"));
    }
    return call(*work);
  });
}

}  // namespace

int hvd_result_count(hvd_handle handle) {
  return when_ready(handle,
                    [](Work& work) { return static_cast<int>(work.results().tensors.size()); });
}

int hvd_result(hvd_handle handle, size_t index, hvd_tensor* tensor) {
  return when_ready(handle, [&](Work& work) {
    const auto& tensors = work.results().tensors;
    if (index >= tensors.size()) {
      refuse("hvd_result(): there is no result ", index, "; there are ", tensors.size());
    }
    const auto& result = tensors[index];
    write_tensor(tensor, c_tensor_of(result.data, result.shape, result.type, result.device),
                 "hvd_result", "tensor");
    return static_cast<int>(HVD_OK);
  });
}

int hvd_received_splits(hvd_handle handle, const int64_t** splits, size_t* count) {
  return when_ready(handle, [&](Work& work) {
    not_null(splits, "hvd_received_splits", "splits");
    not_null(count, "hvd_received_splits", "count");
    const auto& received = work.results().received_splits;
    if (received.empty()) refuse("hvd_received_splits(): handle ", handle, " is of no alltoall");
    *splits = received.data();
    *count = received.size();
    return static_cast<int>(HVD_OK);
  });
}

int hvd_last_joined(hvd_handle handle) {
  return when_ready(handle, [&](Work& work) {
    const int rank = work.results().last_joined;
    if (rank < 0) refuse("hvd_last_joined(): handle ", handle, " is of no join");
    return rank;
  });
}
