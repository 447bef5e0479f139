// GradientReducer and shards for C.
#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include <hvd/gradient_reducer.h>
#include <hvd/shards.h>

#include "worker/c_api/c_api.h"

using namespace hvd::c_api;  // NOLINT(google-build-using-namespace): the calls below are of C

namespace {

struct Reducer {
  explicit Reducer(hvd::GradientReducerOptions options) : gradients(std::move(options)) {}
  hvd::GradientReducer gradients;
  // The shapes that callers were given pointers to.
  std::mutex mutex;
  std::map<std::size_t, hvd::SparseGradient> shown;
};

Registry<Reducer>& reducers() {
  static auto& only = *new Registry<Reducer>("reducer");  // callers may use it at the very end
  return only;
}

std::string text(const char* given, const char* call, const char* what) {
  return &not_null(given, call, what);
}

std::vector<std::vector<std::string>> read_groups(const hvd_reducer_options& options) {
  constexpr const char* kCall = "hvd_reducer_create";
  std::vector<std::vector<std::string>> groups;
  if (options.group_count == 0) return groups;
  not_null(options.groups, kCall, "options.groups");
  not_null(options.group_sizes, kCall, "options.group_sizes");
  for (std::size_t g = 0; g < options.group_count; ++g) {
    auto& group = groups.emplace_back();
    if (options.group_sizes[g] == 0) continue;
    not_null(options.groups[g], kCall, "one of options.groups");
    for (std::size_t i = 0; i < options.group_sizes[g]; ++i) {
      group.push_back(text(options.groups[g][i], kCall, "a name in options.groups"));
    }
  }
  return groups;
}

hvd::GradientReducerOptions read_reducer_options(const hvd_reducer_options* given) {
  constexpr const char* kCall = "hvd_reducer_create";
  const auto read = read_options<hvd_reducer_options>(given, HVD_REDUCER_OPTIONS_INIT,
                                                      sizeof(hvd_reducer_options), kCall);
  hvd::GradientReducerOptions options;
  if (read.name != nullptr) options.name = read.name;
  options.op = op_of(read.op, kCall);
  options.compression = compression_of(read.compression, kCall);
  options.gradient_predivide_factor = read.gradient_predivide_factor;
  options.process_set = hvd::ProcessSet(read.process_set);
  options.backward_passes_per_step = read.backward_passes_per_step;
  options.average_over_passes = read.average_over_passes != 0;
  options.sparse_as_dense = read.sparse_as_dense != 0;
  options.number_of_groups = read.number_of_groups;
  options.shards = read.shards;
  options.groups = read_groups(read);
  if (read.fill_zeros != nullptr) {
    options.fill_zeros = [fill = read.fill_zeros,
                          data = read.fill_zeros_data](const hvd::TensorView& gradient) {
      const auto tensor =
          c_tensor_of(gradient.data, gradient.shape, gradient.type, gradient.device);
      fill(data, &tensor);
    };
  }
  return options;
}

// `call` with the reducer of this number; HVD_OK if it returns.
template <typename Call>
int with(hvd_reducer reducer, Call call) {
  return guard([&] {
    call(*reducers().find(reducer));
    return HVD_OK;
  });
}

template <typename Call>
int64_t number_of(hvd_reducer reducer, Call call) {
  return guard<int64_t>(
      [&] { return static_cast<int64_t>(call(reducers().find(reducer)->gradients)); });
}

Registry<hvd::ShardReducer>& shard_reducers() {
  static auto& only = *new Registry<hvd::ShardReducer>("shard reducer");  // as above
  return only;
}

hvd::ShardReducerOptions read_shard_options(const hvd_shard_reducer_options* given) {
  constexpr const char* kCall = "hvd_shard_reducer_create";
  const auto read = read_options<hvd_shard_reducer_options>(
      given, HVD_SHARD_REDUCER_OPTIONS_INIT, sizeof(hvd_shard_reducer_options), kCall);
  hvd::ShardReducerOptions options;
  options.shards = read.shards;
  if (read.name != nullptr) options.name = read.name;
  options.op = op_of(read.op, kCall);
  options.process_set = hvd::ProcessSet(read.process_set);
  return options;
}

template <typename Call>
int with_shards(hvd_shard_reducer reducer, Call call) {
  return guard([&] {
    call(*shard_reducers().find(reducer));
    return HVD_OK;
  });
}

void write_range(const hvd::ShardRange& range, std::int32_t* first, std::int32_t* last,
                 const char* call) {
  not_null(first, call, "first") = range.first;
  not_null(last, call, "last") = range.last;
}

}  // namespace

int hvd_reducer_options_init(hvd_reducer_options* options, size_t size) {
  return write_defaults<hvd_reducer_options>(options, size, HVD_REDUCER_OPTIONS_INIT,
                                             sizeof(hvd_reducer_options),
                                             "hvd_reducer_options_init");
}

int hvd_reducer_create(const hvd_reducer_options* options, hvd_reducer* reducer) {
  if (reducer != nullptr) *reducer = 0;
  return guard([&] {
    not_null(reducer, "hvd_reducer_create", "reducer");
    *reducer = reducers().add(std::make_shared<Reducer>(read_reducer_options(options)));
    return HVD_OK;
  });
}

int hvd_reducer_release(hvd_reducer reducer) {
  if (reducer == 0) return HVD_OK;
  return guard([&] {
    reducers().remove(reducer);
    return HVD_OK;
  });
}

int64_t hvd_reducer_add(hvd_reducer reducer, const char* name, const hvd_tensor* gradient) {
  return number_of(reducer, [&](auto& gradients) {
    return gradients.add(text(name, "hvd_reducer_add", "name"),
                         tensor_of(gradient, "hvd_reducer_add", "the gradient"));
  });
}

int64_t hvd_reducer_add_sparse(hvd_reducer reducer, const char* name, const hvd_tensor* gradient) {
  return number_of(reducer, [&](auto& gradients) {
    return gradients.add_sparse(text(name, "hvd_reducer_add_sparse", "name"),
                                tensor_of(gradient, "hvd_reducer_add_sparse", "the gradient"));
  });
}

int64_t hvd_reducer_index_of(hvd_reducer reducer, const char* name) {
  return number_of(reducer, [&](auto& gradients) {
    return gradients.index_of(text(name, "hvd_reducer_index_of", "name"));
  });
}

int64_t hvd_reducer_size(hvd_reducer reducer) {
  return number_of(reducer, [](auto& gradients) { return gradients.size(); });
}

int hvd_reducer_ready(hvd_reducer reducer, size_t index, const hvd_ready_event* ready) {
  return guard([&] {
    const auto events = events_of(ready, ready == nullptr ? 0 : 1, "hvd_reducer_ready");
    reducers().find(reducer)->gradients.ready(index, events.empty() ? nullptr : events.front());
    return HVD_OK;
  });
}

int hvd_reducer_ready_sparse(hvd_reducer reducer, size_t index, const hvd_tensor* indices,
                             const hvd_tensor* values) {
  return with(reducer, [&](Reducer& held) {
    constexpr const char* kCall = "hvd_reducer_ready_sparse";
    held.gradients.ready(index, hvd::SparseGradient{tensor_of(indices, kCall, "the indices"),
                                                    tensor_of(values, kCall, "the values")});
  });
}

int hvd_reducer_ready_at(hvd_reducer reducer, size_t index, const hvd_tensor* gradient,
                         const hvd_ready_event* ready) {
  return guard([&] {
    constexpr const char* kCall = "hvd_reducer_ready_at";
    const auto events = events_of(ready, ready == nullptr ? 0 : 1, kCall);
    reducers().find(reducer)->gradients.ready(index, tensor_of(gradient, kCall, "the gradient"),
                                              events.empty() ? nullptr : events.front());
    return HVD_OK;
  });
}

int hvd_reducer_missing_for(hvd_reducer reducer, int64_t timeout_ms, size_t* indices,
                            size_t capacity, size_t* count) {
  return guard([&] {
    constexpr const char* kCall = "hvd_reducer_missing_for";
    not_null(count, kCall, "count");
    if (capacity != 0) not_null(indices, kCall, "indices");
    std::vector<std::size_t> missing;
    auto& gradients = reducers().find(reducer)->gradients;
    if (!gradients.missing_for(std::chrono::milliseconds(timeout_ms), missing)) {
      return note(HVD_ERROR_NOT_READY,
                  "hvd_reducer_missing_for(): not all ranks are at the end of their step");
    }
    *count = missing.size();
    std::copy_n(missing.begin(), std::min(capacity, missing.size()), indices);
    return static_cast<int>(HVD_OK);
  });
}

int hvd_reducer_synchronize_for(hvd_reducer reducer, int64_t timeout_ms) {
  return guard([&] {
    const auto timeout = std::chrono::milliseconds(timeout_ms);
    if (reducers().find(reducer)->gradients.synchronize_for(timeout))
      return static_cast<int>(HVD_OK);
    return note(HVD_ERROR_NOT_READY, "hvd_reducer_synchronize_for(): gradients are in flight");
  });
}

int hvd_reducer_present(hvd_reducer reducer, size_t index) {
  return static_cast<int>(
      number_of(reducer, [&](auto& gradients) { return gradients.present(index); }));
}

int hvd_reducer_in_flight(hvd_reducer reducer) {
  return static_cast<int>(
      number_of(reducer, [](auto& gradients) { return gradients.in_flight(); }));
}

int hvd_reducer_synchronize(hvd_reducer reducer) {
  return with(reducer, [](Reducer& held) { held.gradients.synchronize(); });
}

int hvd_reducer_synchronized(hvd_reducer reducer) {
  return static_cast<int>(
      number_of(reducer, [](auto& gradients) { return gradients.synchronized(); }));
}

int hvd_reducer_reduced(hvd_reducer reducer, size_t index, hvd_tensor* indices,
                        hvd_tensor* values) {
  return with(reducer, [&](Reducer& held) {
    constexpr const char* kCall = "hvd_reducer_reduced";
    auto rows = held.gradients.reduced(index);
    const std::lock_guard lock(held.mutex);
    auto& shown = held.shown[index];
    // Those of the same step stay where they are. Memory of a later step may have the addresses of
    // an earlier one, in part.
    const auto same = [](const hvd::ConstTensorView& one, const hvd::ConstTensorView& another) {
      return one.data == another.data && one.shape == another.shape;
    };
    if (!same(shown.indices, rows.indices) || !same(shown.values, rows.values)) {
      shown = std::move(rows);
    }
    write_tensor(indices, c_tensor_of(shown.indices.data, shown.indices.shape, shown.indices.type),
                 kCall, "indices");
    write_tensor(values, c_tensor_of(shown.values.data, shown.values.shape, shown.values.type),
                 kCall, "values");
  });
}

int hvd_reducer_next_step(hvd_reducer reducer) {
  return with(reducer, [](Reducer& held) { held.gradients.next_step(); });
}

int hvd_reducer_zero_gradients(hvd_reducer reducer) {
  return with(reducer, [](Reducer& held) { held.gradients.zero_gradients(); });
}

int hvd_reducer_rebind(hvd_reducer reducer, size_t index, void* data) {
  return with(reducer, [&](Reducer& held) { held.gradients.rebind(index, data); });
}

int hvd_reducer_set_backward_passes_per_step(hvd_reducer reducer, int32_t passes) {
  return with(reducer, [&](Reducer& held) { held.gradients.set_backward_passes_per_step(passes); });
}

int hvd_reducer_reset(hvd_reducer reducer) {
  return with(reducer, [](Reducer& held) { held.gradients.reset(); });
}

int hvd_shards_of(int32_t shards, int32_t rank, int32_t size, int32_t* first, int32_t* last) {
  return guard([&] {
    write_range(hvd::shards_of(shards, rank, size), first, last, "hvd_shards_of");
    return HVD_OK;
  });
}

int hvd_shard_random(uint64_t seed, int32_t shard, uint64_t step, uint64_t first, uint32_t* numbers,
                     size_t count) {
  return guard([&] {
    if (count > 0) not_null(numbers, "hvd_shard_random", "numbers");
    hvd::ShardRandom random(seed, shard, step);
    random.discard(first);
    std::generate_n(numbers, count, std::ref(random));
    return HVD_OK;
  });
}

int hvd_shard_reducer_options_init(hvd_shard_reducer_options* options, size_t size) {
  return write_defaults<hvd_shard_reducer_options>(options, size, HVD_SHARD_REDUCER_OPTIONS_INIT,
                                                   sizeof(hvd_shard_reducer_options),
                                                   "hvd_shard_reducer_options_init");
}

int hvd_shard_reducer_create(const hvd_shard_reducer_options* options, hvd_shard_reducer* reducer) {
  if (reducer != nullptr) *reducer = 0;
  return guard([&] {
    not_null(reducer, "hvd_shard_reducer_create", "reducer");
    *reducer =
        shard_reducers().add(std::make_shared<hvd::ShardReducer>(read_shard_options(options)));
    return HVD_OK;
  });
}

int hvd_shard_reducer_release(hvd_shard_reducer reducer) {
  if (reducer == 0) return HVD_OK;
  return guard([&] {
    shard_reducers().remove(reducer);
    return HVD_OK;
  });
}

int hvd_shard_reducer_add(hvd_shard_reducer reducer, const char* name, const hvd_tensor* gradient) {
  return with_shards(reducer, [&](auto& shards) {
    shards.add(text(name, "hvd_shard_reducer_add", "name"),
               tensor_of(gradient, "hvd_shard_reducer_add", "the gradient"));
  });
}

int hvd_shard_reducer_rebind(hvd_shard_reducer reducer, size_t index, void* data) {
  return with_shards(reducer, [&](auto& shards) { shards.rebind(index, data); });
}

int hvd_shard_reducer_own(hvd_shard_reducer reducer, int32_t* first, int32_t* last) {
  return with_shards(reducer, [&](auto& shards) {
    write_range(shards.own(), first, last, "hvd_shard_reducer_own");
  });
}

int hvd_shard_reducer_begin(hvd_shard_reducer reducer, uint64_t step, int32_t* shards,
                            size_t capacity, size_t* count) {
  return with_shards(reducer, [&](auto& held) {
    constexpr const char* kCall = "hvd_shard_reducer_begin";
    not_null(count, kCall, "count");
    if (capacity != 0) not_null(shards, kCall, "shards");
    const auto& missing = held.begin(step);
    *count = missing.size();
    std::copy_n(missing.begin(), std::min(capacity, missing.size()), shards);
  });
}

int hvd_shard_reducer_ready(hvd_shard_reducer reducer, int32_t shard) {
  return hvd_shard_reducer_ready_of(reducer, shard, nullptr, 0);
}

int hvd_shard_reducer_ready_of(hvd_shard_reducer reducer, int32_t shard, const int64_t* samples,
                               size_t count) {
  return with_shards(reducer, [&](auto& shards) {
    if (count > 0) not_null(samples, "hvd_shard_reducer_ready_of", "samples");
    shards.ready(shard, {samples, count});
  });
}

int hvd_shard_reducer_synchronize(hvd_shard_reducer reducer) {
  return with_shards(reducer, [](auto& shards) { shards.synchronize(); });
}

int hvd_shard_reducer_synchronize_for(hvd_shard_reducer reducer, int64_t timeout_ms) {
  return guard([&] {
    const auto timeout = std::chrono::milliseconds(timeout_ms);
    if (shard_reducers().find(reducer)->synchronize_for(timeout)) return static_cast<int>(HVD_OK);
    return note(HVD_ERROR_NOT_READY,
                "hvd_shard_reducer_synchronize_for(): gradients are in flight");
  });
}

int hvd_shard_reducer_in_flight(hvd_shard_reducer reducer) {
  return guard([&] { return shard_reducers().find(reducer)->in_flight() ? 1 : 0; });
}

int hvd_shard_reducer_reset(hvd_shard_reducer reducer) {
  return with_shards(reducer, [](auto& shards) { shards.reset(); });
}
