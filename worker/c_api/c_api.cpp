// Errors, init and shutdown, places, process sets.
#include "worker/c_api/c_api.h"

#include <algorithm>
#include <new>

#include <hvd/hvd.h>

namespace hvd::c_api {
namespace {

struct LastError {
  int code = HVD_OK;
  std::string text;
  int rank = -1;
  std::string host;
  std::string cause;
  std::exception_ptr exception;  // null if the failure was none of C++
};

thread_local LastError last_error;

constexpr std::int32_t kMaxDimensions = 256;

// Sizes in the first version of each struct.
constexpr std::size_t kFirstTensor = sizeof(hvd_tensor);
constexpr std::size_t kFirstReadyEvent = sizeof(hvd_ready_event);

class CReadyEvent final : public ReadyEvent {
 public:
  explicit CReadyEvent(const hvd_ready_event& event) : event_(event) {}
  ~CReadyEvent() override {
    if (event_.release != nullptr) event_.release(event_.data);
  }
  CReadyEvent(const CReadyEvent&) = delete;
  CReadyEvent& operator=(const CReadyEvent&) = delete;
  bool ready() const override { return event_.ready(event_.data) != 0; }
  void wait() override { event_.wait(event_.data); }

 private:
  hvd_ready_event event_;
};

int remember(int code, const char* what, int rank = -1, const std::string& host = {},
             const std::string& cause = {}) noexcept {
  try {
    last_error = {code, what, rank, host, cause, nullptr};
  } catch (...) {  // no memory for the text
    last_error.code = code;
    last_error.text.clear();
  }
  return code;
}

}  // namespace

namespace {

int remember_exception(const std::exception_ptr& error) noexcept {
  try {
    std::rethrow_exception(error);
  } catch (const CallbackError& e) {
    return remember(e.code(), e.what());
  } catch (const ProcessSetError& e) {
    return remember(static_cast<int>(e.code()), e.what());
  } catch (const InvalidArgumentError& e) {
    return remember(HVD_ERROR_INVALID_ARGUMENT, e.what());
  } catch (const NotInitializedError& e) {
    return remember(HVD_ERROR_NOT_INITIALIZED, e.what());
  } catch (const InitError& e) {
    return remember(HVD_ERROR_INIT, e.what());
  } catch (const CollectiveError& e) {
    return remember(HVD_ERROR_COLLECTIVE, e.what(), e.rank(), e.host(), e.cause());
  } catch (const HostsUpdated& e) {
    return remember(HVD_ERROR_HOSTS_UPDATED, e.what());
  } catch (const CommittedStateLostError& e) {
    return remember(HVD_ERROR_STATE_LOST, e.what());
  } catch (const StateDivergedError& e) {
    return remember(HVD_ERROR_STATE_DIVERGED, e.what());
  } catch (const OutOfMemoryError& e) {
    return remember(HVD_ERROR_OUT_OF_MEMORY, e.what());
  } catch (const std::bad_alloc&) {
    return remember(HVD_ERROR_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& e) {
    return remember(HVD_ERROR_INTERNAL, e.what());
  } catch (...) {
    return remember(HVD_ERROR_INTERNAL, "something other than a std::exception was thrown");
  }
}

}  // namespace

int note(const std::exception_ptr& error) noexcept {
  if (!error) return HVD_OK;
  const int code = remember_exception(error);
  last_error.exception = error;
  return code;
}

void forget_failure() noexcept { last_error.exception = nullptr; }

void check_callback(int code, const char* what) {
  if (code == HVD_OK) return;
  const std::exception_ptr failure = std::exchange(last_error.exception, nullptr);
  if (failure && last_error.code == code) std::rethrow_exception(failure);
  throw CallbackError(code, cat(what, " has returned ", code));
}

int note(int code, const std::string& what) noexcept { return remember(code, what.c_str()); }

TensorView tensor_of(const hvd_tensor* tensor, const char* call, const char* what) {
  const auto given = read_struct<hvd_tensor>(not_null(tensor, call, what), HVD_TENSOR_INIT,
                                             kFirstTensor, call, what);
  if (given.dimensions < 0 || given.dimensions > kMaxDimensions) {
    refuse(call, "(): ", what, " has ", given.dimensions, " dimensions; 0 to ", kMaxDimensions,
           " are allowed");
  }
  if (given.dimensions > 0 && given.shape == nullptr) {
    refuse(call, "(): ", what, " has ", given.dimensions, " dimensions, but its shape is null");
  }
  if (given.type < HVD_BOOL || given.type >= kDataTypes) {
    refuse(call, "(): ", what, " has the type ", given.type, ", which is none of hvd_data_type");
  }
  if (given.device < HVD_HOST) {
    refuse(call, "(): ", what, " has the device ", given.device,
           ", which is neither HVD_HOST nor HVD_CUDA(n)");
  }
  if (given.reserved != 0) refuse(call, "(): ", what, ": the member `reserved` is not 0");
  return {given.data,
          {given.shape, given.shape + given.dimensions},
          static_cast<DataType>(given.type),
          {given.device - 1}};
}

TensorView tensor_of(const hvd_tensor* tensors, std::size_t index, const char* call,
                     const char* what) {
  return tensor_of(element_of(tensors, index, kFirstTensor, call, what), call, what);
}

hvd_tensor c_tensor_of(const void* data, const std::vector<std::int64_t>& shape, DataType type,
                       Device device) {
  return HVD_TENSOR_OF(const_cast<void*>(data), shape.data(),
                       static_cast<std::int32_t>(shape.size()), static_cast<std::int32_t>(type),
                       device.cuda + 1);
}

void write_tensor(hvd_tensor* out, hvd_tensor tensor, const char* call, const char* what) {
  const std::size_t size = check_size(not_null(out, call, what), kFirstTensor, call, what);
  tensor.size = size;
  std::memcpy(out, &tensor, std::min(size, sizeof(tensor)));
}

ReduceOp op_of(std::int32_t op, const char* call) {
  if (op < HVD_AVERAGE || op > HVD_PRODUCT) {
    refuse(call, "(): op is ", op, ", which is none of hvd_reduce_op");
  }
  return static_cast<ReduceOp>(op);
}

Compression compression_of(std::int32_t compression, const char* call) {
  if (compression < HVD_COMPRESSION_NONE || compression > HVD_COMPRESSION_BFLOAT16) {
    refuse(call, "(): compression is ", compression, ", which is none of hvd_compression");
  }
  return static_cast<Compression>(compression);
}

std::vector<std::shared_ptr<ReadyEvent>> events_of(const hvd_ready_event* events, std::size_t count,
                                                   const char* call) {
  constexpr const char* kWhat = "a ready event";
  std::vector<hvd_ready_event> read;
  for (std::size_t i = 0; i < count; ++i) {
    read.push_back(
        read_struct<hvd_ready_event>(*element_of(events, i, kFirstReadyEvent, call, kWhat),
                                     HVD_READY_EVENT_INIT, kFirstReadyEvent, call, kWhat));
  }

  std::vector<std::shared_ptr<ReadyEvent>> owned;
  for (const auto& event : read) {
    auto cuda = cuda_event_of(event);
    const bool is_cuda = cuda != nullptr;
    owned.push_back(is_cuda ? std::move(cuda) : std::make_shared<CReadyEvent>(event));
    if (is_cuda) event.release(event.data);
  }
  for (const auto& event : read) {
    if (event.ready == nullptr || event.wait == nullptr) {
      refuse(call, "(): a ready event needs its functions `ready` and `wait`");
    }
  }
  return owned;
}

namespace {

int write_numbers(const std::vector<int>& numbers, std::int32_t* out, std::size_t capacity,
                  const char* call) {
  if (capacity > 0) not_null(out, call, "the memory for the numbers");
  std::copy_n(numbers.begin(), std::min(capacity, numbers.size()), out);
  return static_cast<int>(numbers.size());
}

int add_set(const char* call, const std::int32_t* ranks, std::size_t count,
            hvd::LostMember lost_member) {
  return guard([&] {
    if (count > 0) not_null(ranks, call, "ranks");
    return hvd::add_process_set({ranks, ranks + count}, lost_member).id();
  });
}

}  // namespace
}  // namespace hvd::c_api

using namespace hvd::c_api;  // NOLINT(google-build-using-namespace): the calls below are of C

const char* hvd_last_error(void) { return last_error.text.c_str(); }
int hvd_last_error_code(void) { return last_error.code; }
int hvd_last_error_rank(void) { return last_error.rank; }
const char* hvd_last_error_host(void) { return last_error.host.c_str(); }
const char* hvd_last_error_cause(void) { return last_error.cause.c_str(); }

int hvd_fail(int code, const char* text) {
  return guard([&]() -> int {
    if (code == HVD_OK) return HVD_OK;
    throw CallbackError(code, text == nullptr ? "" : text);
  });
}

const char* hvd_code_text(int code) {
  switch (code) {
    case HVD_OK:
      return "ok";
    case HVD_ERROR_NOT_INITIALIZED:
      return "not initialized";
    case HVD_ERROR_NOT_DYNAMIC:
      return "process sets are not dynamic";
    case HVD_ERROR_UNKNOWN_PROCESS_SET:
      return "unknown process set";
    case HVD_ERROR_NOT_A_MEMBER:
      return "not a member of the process set";
    case HVD_ERROR_SHUT_DOWN:
      return "shut down";
    case HVD_ERROR_DUPLICATE_PROCESS_SET:
      return "duplicate process set";
    case HVD_ERROR_INVALID_ARGUMENT:
      return "invalid argument";
    case HVD_ERROR_INIT:
      return "the world could not be formed";
    case HVD_ERROR_COLLECTIVE:
      return "the world is broken";
    case HVD_ERROR_INTERNAL:
      return "internal error";
    case HVD_ERROR_OUT_OF_MEMORY:
      return "out of memory";
    case HVD_ERROR_NOT_READY:
      return "not ready";
    case HVD_ERROR_LOST_MEMBER:
      return "the process set has lost a member";
    case HVD_ERROR_HOSTS_UPDATED:
      return "the world has changed";
    case HVD_ERROR_LEFT:
      return "the job goes on without this worker";
    case HVD_ERROR_STATE_LOST:
      return "the committed state is lost";
    case HVD_ERROR_STATE_DIVERGED:
      return "the ranks' states differ";
    default:
      return "unknown code";
  }
}

int hvd_tensor_init(hvd_tensor* tensor, size_t size) {
  return write_defaults<hvd_tensor>(tensor, size, HVD_TENSOR_INIT, kFirstTensor, "hvd_tensor_init");
}

int hvd_ready_event_init(hvd_ready_event* event, size_t size) {
  return write_defaults<hvd_ready_event>(event, size, HVD_READY_EVENT_INIT, kFirstReadyEvent,
                                         "hvd_ready_event_init");
}

int hvd_init_options_init(hvd_init_options* options, size_t size) {
  return write_defaults(options, size, HVD_INIT_OPTIONS_INIT, sizeof(hvd_init_options),
                        "hvd_init_options_init");
}

const char* hvd_version(void) { return hvd::version(); }

int hvd_init(const hvd_init_options* given) {
  return guard([&] {
    const auto read = read_options<hvd_init_options>(given, HVD_INIT_OPTIONS_INIT,
                                                     sizeof(hvd_init_options), "hvd_init");
    hvd::InitOptions options;
    options.dynamic_process_sets = read.dynamic_process_sets != 0;
    if (read.process_sets_shrink != 0) options.lost_member = hvd::LostMember::shrink;
    if (read.process_set_count > 0) {
      not_null(read.process_sets, "hvd_init", "options.process_sets");
      not_null(read.process_set_sizes, "hvd_init", "options.process_set_sizes");
    }
    for (std::size_t i = 0; i < read.process_set_count; ++i) {
      const auto count = read.process_set_sizes[i];
      const auto* const ranks = read.process_sets[i];
      if (count > 0) not_null(ranks, "hvd_init", "one of options.process_sets");
      options.process_sets.emplace_back(ranks, ranks + count);
    }
    hvd::init(options);
    return HVD_OK;
  });
}

int hvd_shutdown(void) {
  return guard([] {
    hvd::shutdown();
    return HVD_OK;
  });
}

int hvd_is_initialized(void) {
  return guard([] { return hvd::is_initialized(); });
}
int hvd_rank(void) { return guard(hvd::rank); }
int hvd_size(void) { return guard(hvd::size); }
int hvd_local_rank(void) { return guard(hvd::local_rank); }
int hvd_local_size(void) { return guard(hvd::local_size); }
int hvd_cross_rank(void) { return guard(hvd::cross_rank); }
int hvd_cross_size(void) { return guard(hvd::cross_size); }
int hvd_is_homogeneous(void) { return guard(hvd::is_homogeneous); }
int hvd_mpi_built(void) { return guard(hvd::mpi_built); }
int hvd_mpi_enabled(void) { return guard(hvd::mpi_enabled); }
int hvd_mpi_threads_supported(void) { return guard(hvd::mpi_threads_supported); }
int hvd_ccl_built(void) { return guard(hvd::ccl_built); }

int hvd_start_timeline(const char* path, int mark_cycles) {
  return guard([&] {
    hvd::start_timeline(&not_null(path, "hvd_start_timeline", "path"), mark_cycles != 0);
    return HVD_OK;
  });
}

int hvd_stop_timeline(void) {
  return guard([] {
    hvd::stop_timeline();
    return HVD_OK;
  });
}

int hvd_add_process_set(const int32_t* ranks, size_t count) {
  return add_set("hvd_add_process_set", ranks, count, hvd::LostMember::fail);
}

int hvd_add_shrinking_process_set(const int32_t* ranks, size_t count) {
  return add_set("hvd_add_shrinking_process_set", ranks, count, hvd::LostMember::shrink);
}

int hvd_add_process_set_by_members(const int32_t* ranks, size_t count) {
  return guard([&] {
    if (count > 0) not_null(ranks, "hvd_add_process_set_by_members", "ranks");
    return hvd::add_process_set_by_members({ranks, ranks + count}).id();
  });
}

int hvd_remove_process_set(int32_t process_set) {
  return guard([&] {
    hvd::remove_process_set(hvd::ProcessSet(process_set));
    return HVD_OK;
  });
}

int hvd_process_set_size(int32_t process_set) {
  return guard([&] { return hvd::ProcessSet(process_set).size(); });
}
int hvd_process_set_included(int32_t process_set) {
  return guard([&] { return hvd::ProcessSet(process_set).included(); });
}
int hvd_process_set_rank(int32_t process_set) {
  return guard([&] { return hvd::ProcessSet(process_set).rank(); });
}

int hvd_process_set_ranks(int32_t process_set, int32_t* ranks, size_t capacity) {
  return guard([&] {
    return write_numbers(hvd::ProcessSet(process_set).ranks(), ranks, capacity,
                         "hvd_process_set_ranks");
  });
}

int hvd_process_sets(int32_t* numbers, size_t capacity) {
  return guard([&] {
    std::vector<int> found;
    for (const auto& set : hvd::process_sets()) found.push_back(set.id());
    return write_numbers(found, numbers, capacity, "hvd_process_sets");
  });
}
