// Each collective of the C API: arguments become submissions.
#include <cstring>

#include "worker/c_api/c_api_work.h"

using namespace hvd::c_api;  // NOLINT(google-build-using-namespace): the calls below are of C

namespace {

using hvd::Collective;
using hvd::adapter::Submission;

struct Call {
  const char* name;
  Collective collective;
  bool grouped = false;
};

// Where the result goes.
enum class Output { in_place_or_given, made_or_given, made };

std::vector<Submission> read_tensors(const Call& call, const hvd_tensor* inputs,
                                     const hvd_tensor* outputs, std::size_t count, Output output,
                                     const CallOptions& options) {
  if (count > 0) not_null(inputs, call.name, "the input");
  std::vector<Submission> works;
  for (std::size_t i = 0; i < count; ++i) {
    const auto input = tensor_of(inputs, i, call.name, "the input");
    hvd::TensorView to;
    if (outputs != nullptr) {
      to = tensor_of(outputs, i, call.name, "the output");
    } else if (output == Output::in_place_or_given) {
      to = input;
    }
    works.push_back(options.submission(call.collective, input, to, i));
  }
  return works;
}

std::shared_ptr<Work> start_call(const Call& call, const hvd_tensor* inputs,
                                 const hvd_tensor* outputs, std::size_t count, Output output,
                                 const CallOptions& options) {
  const bool with_output = outputs != nullptr || output == Output::in_place_or_given;
  return start(read_tensors(call, inputs, outputs, count, output, options), options,
               call.name + std::strlen("hvd_"), call.grouped, with_output);
}

// Options come first: they own events, which are released whatever else is wrong.
int start_async(const Call& call, const hvd_tensor* inputs, const hvd_tensor* outputs,
                std::size_t count, Output output, const hvd_options* given, hvd_handle* handle) {
  if (handle != nullptr) *handle = 0;
  return guard([&] {
    const CallOptions options(given, call.name, count);
    not_null(handle, call.name, "handle");
    return give(handle, start_call(call, inputs, outputs, count, output, options));
  });
}

int run(const Call& call, const hvd_tensor* inputs, const hvd_tensor* outputs, std::size_t count,
        Output output, const hvd_options* given) {
  return guard([&] {
    const CallOptions options(given, call.name, count);
    start_call(call, inputs, outputs, count, output, options)->handle().wait();
    return HVD_OK;
  });
}

// Those without tensors.
std::shared_ptr<Work> start_bare(const char* call, Collective collective,
                                 const CallOptions& options) {
  std::vector<Submission> works;
  works.push_back(options.submission(collective, {}, {}, 0));
  return start(std::move(works), options, call, false, true);
}

// One end of a send_recv.
struct Pair {
  const char* call;
  bool sends;
  std::int32_t other;  // the rank at the other end
};

std::shared_ptr<Work> start_pair(const Pair& pair, const hvd_tensor* tensor,
                                 const CallOptions& options) {
  not_null(tensor, pair.call, "the tensor");
  const auto view = tensor_of(tensor, 0, pair.call, "the tensor");
  std::vector<Submission> works;
  works.push_back(options.submission(Collective::send_recv, view, view, 0));
  works.back().ranks =
      pair.sends ? hvd::worker::ranks_of_send(pair.other) : hvd::worker::ranks_of_recv(pair.other);
  return start(std::move(works), options, pair.call + std::strlen("hvd_"), false, true);
}

int start_pair_async(const Pair& pair, const hvd_tensor* tensor, const hvd_options* given,
                     hvd_handle* handle) {
  if (handle != nullptr) *handle = 0;
  return guard([&] {
    const CallOptions options(given, pair.call, 1);
    not_null(handle, pair.call, "handle");
    return give(handle, start_pair(pair, tensor, options));
  });
}

int run_pair(const Pair& pair, const hvd_tensor* tensor, const hvd_options* given) {
  return guard([&] {
    const CallOptions options(given, pair.call, 1);
    start_pair(pair, tensor, options)->handle().wait();
    return HVD_OK;
  });
}

constexpr Call kAllreduce{"hvd_allreduce", Collective::allreduce};
constexpr Call kGroupedAllreduce{"hvd_grouped_allreduce", Collective::allreduce, true};
constexpr Call kBroadcast{"hvd_broadcast", Collective::broadcast};
constexpr Call kAllgather{"hvd_allgather", Collective::allgather};
constexpr Call kGroupedAllgather{"hvd_grouped_allgather", Collective::allgather, true};
constexpr Call kAlltoall{"hvd_alltoall", Collective::alltoall};
constexpr Call kReducescatter{"hvd_reducescatter", Collective::reducescatter};
constexpr Call kGroupedReducescatter{"hvd_grouped_reducescatter", Collective::reducescatter, true};

}  // namespace

int hvd_options_init(hvd_options* options, size_t size) {
  return write_defaults(options, size, HVD_OPTIONS_INIT, sizeof(hvd_options), "hvd_options_init");
}

int hvd_allreduce_async(const hvd_tensor* input, const hvd_tensor* output,
                        const hvd_options* options, hvd_handle* handle) {
  return start_async(kAllreduce, input, output, 1, Output::in_place_or_given, options, handle);
}

int hvd_allreduce(const hvd_tensor* input, const hvd_tensor* output, const hvd_options* options) {
  return run(kAllreduce, input, output, 1, Output::in_place_or_given, options);
}

int hvd_grouped_allreduce_async(const hvd_tensor* inputs, const hvd_tensor* outputs, size_t count,
                                const hvd_options* options, hvd_handle* handle) {
  return start_async(kGroupedAllreduce, inputs, outputs, count, Output::in_place_or_given, options,
                     handle);
}

int hvd_grouped_allreduce(const hvd_tensor* inputs, const hvd_tensor* outputs, size_t count,
                          const hvd_options* options) {
  return run(kGroupedAllreduce, inputs, outputs, count, Output::in_place_or_given, options);
}

int hvd_broadcast_async(const hvd_tensor* input, const hvd_tensor* output,
                        const hvd_options* options, hvd_handle* handle) {
  return start_async(kBroadcast, input, output, 1, Output::in_place_or_given, options, handle);
}

int hvd_broadcast(const hvd_tensor* input, const hvd_tensor* output, const hvd_options* options) {
  return run(kBroadcast, input, output, 1, Output::in_place_or_given, options);
}

int hvd_barrier_async(const hvd_options* given, hvd_handle* handle) {
  if (handle != nullptr) *handle = 0;
  return guard([&] {
    const CallOptions options(given, "hvd_barrier", 1);
    not_null(handle, "hvd_barrier", "handle");
    return give(handle, start_bare("barrier", Collective::barrier, options));
  });
}

int hvd_barrier(const hvd_options* given) {
  return guard([&] {
    const CallOptions options(given, "hvd_barrier", 1);
    start_bare("barrier", Collective::barrier, options)->handle().wait();
    return HVD_OK;
  });
}

int hvd_allgather_async(const hvd_tensor* input, const hvd_options* options, hvd_handle* handle) {
  return start_async(kAllgather, input, nullptr, 1, Output::made, options, handle);
}

int hvd_allgather(const hvd_tensor* input, const hvd_options* options, hvd_handle* handle) {
  return finish(hvd_allgather_async(input, options, handle), handle);
}

int hvd_grouped_allgather_async(const hvd_tensor* inputs, size_t count, const hvd_options* options,
                                hvd_handle* handle) {
  return start_async(kGroupedAllgather, inputs, nullptr, count, Output::made, options, handle);
}

int hvd_grouped_allgather(const hvd_tensor* inputs, size_t count, const hvd_options* options,
                          hvd_handle* handle) {
  return finish(hvd_grouped_allgather_async(inputs, count, options, handle), handle);
}

int hvd_alltoall_async(const hvd_tensor* input, const hvd_options* options, hvd_handle* handle) {
  return start_async(kAlltoall, input, nullptr, 1, Output::made, options, handle);
}

int hvd_alltoall(const hvd_tensor* input, const hvd_options* options, hvd_handle* handle) {
  return finish(hvd_alltoall_async(input, options, handle), handle);
}

int hvd_reducescatter_async(const hvd_tensor* input, const hvd_tensor* output,
                            const hvd_options* options, hvd_handle* handle) {
  return start_async(kReducescatter, input, output, 1, Output::made_or_given, options, handle);
}

int hvd_reducescatter(const hvd_tensor* input, const hvd_tensor* output, const hvd_options* options,
                      hvd_handle* handle) {
  return finish(hvd_reducescatter_async(input, output, options, handle), handle);
}

int hvd_grouped_reducescatter_async(const hvd_tensor* inputs, size_t count,
                                    const hvd_options* options, hvd_handle* handle) {
  return start_async(kGroupedReducescatter, inputs, nullptr, count, Output::made, options, handle);
}

int hvd_grouped_reducescatter(const hvd_tensor* inputs, size_t count, const hvd_options* options,
                              hvd_handle* handle) {
  return finish(hvd_grouped_reducescatter_async(inputs, count, options, handle), handle);
}

int hvd_send_async(const hvd_tensor* tensor, int32_t to, const hvd_options* options,
                   hvd_handle* handle) {
  return start_pair_async({"hvd_send", true, to}, tensor, options, handle);
}

int hvd_send(const hvd_tensor* tensor, int32_t to, const hvd_options* options) {
  return run_pair({"hvd_send", true, to}, tensor, options);
}

int hvd_recv_async(const hvd_tensor* tensor, int32_t from, const hvd_options* options,
                   hvd_handle* handle) {
  return start_pair_async({"hvd_recv", false, from}, tensor, options, handle);
}

int hvd_recv(const hvd_tensor* tensor, int32_t from, const hvd_options* options) {
  return run_pair({"hvd_recv", false, from}, tensor, options);
}

int hvd_join_async(hvd_handle* handle) {
  if (handle != nullptr) *handle = 0;
  return guard([&] {
    not_null(handle, "hvd_join_async", "handle");
    const CallOptions options(nullptr, "hvd_join", 1);
    return give(handle, start_bare("join", Collective::join, options));
  });
}

int hvd_join(void) {
  return guard([] {
    const CallOptions options(nullptr, "hvd_join", 1);
    const auto work = start_bare("join", Collective::join, options);
    return work->results().last_joined;
  });
}
