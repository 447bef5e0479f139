// The calls that are built of collectives: objects, lists of parameters, sparse tensors.
#include <string_view>

#include <hvd/objects.h>
#include <hvd/sparse.h>

#include "worker/c_api/c_api_work.h"

using namespace hvd::c_api;  // NOLINT(google-build-using-namespace): the calls below are of C

namespace {

std::string_view bytes_of(const void* bytes, size_t size, const char* call) {
  if (size > 0 && bytes == nullptr) refuse(call, "(): bytes is null");
  return {static_cast<const char*>(bytes), size};
}

std::shared_ptr<Work> done_with(std::vector<std::string> objects) {
  const auto kept = std::make_shared<const std::vector<std::string>>(std::move(objects));
  return std::make_shared<Work>(hvd::Handle(), [kept] {
    Results results;
    results.memory = kept;
    for (const auto& object : *kept) {
      results.tensors.push_back({object.data(), {static_cast<std::int64_t>(object.size())}});
    }
    return results;
  });
}

}  // namespace

int hvd_broadcast_object(const void* bytes, size_t size, const hvd_options* given,
                         hvd_handle* handle) {
  if (handle != nullptr) *handle = 0;
  return guard([&] {
    constexpr const char* kCall = "hvd_broadcast_object";
    const CallOptions options(given, kCall, 1);
    options.need_no_memory();
    not_null(handle, kCall, "handle");
    return give(handle, done_with({hvd::broadcast_object(bytes_of(bytes, size, kCall),
                                                         {.name = options.name(),
                                                          .root = options.c().root,
                                                          .process_set = options.process_set()})}));
  });
}

int hvd_allgather_object(const void* bytes, size_t size, const hvd_options* given,
                         hvd_handle* handle) {
  if (handle != nullptr) *handle = 0;
  return guard([&] {
    constexpr const char* kCall = "hvd_allgather_object";
    const CallOptions options(given, kCall, 1);
    options.need_no_memory();
    not_null(handle, kCall, "handle");
    return give(handle, done_with(hvd::allgather_object(
                            bytes_of(bytes, size, kCall),
                            {.name = options.name(), .process_set = options.process_set()})));
  });
}

int hvd_broadcast_parameters(const char* const* names, const hvd_tensor* tensors, size_t count,
                             const hvd_options* given) {
  return guard([&] {
    constexpr const char* kCall = "hvd_broadcast_parameters";
    const CallOptions options(given, kCall, count);
    options.need_no_memory();
    if (count > 0) {
      not_null(names, kCall, "names");
      not_null(tensors, kCall, "tensors");
    }
    std::vector<hvd::NamedTensor> list;
    for (size_t i = 0; i < count; ++i) {
      list.push_back(
          {&not_null(names[i], kCall, "a name"), tensor_of(tensors, i, kCall, "a tensor")});
    }
    hvd::broadcast_parameters(list,
                              {.root = options.c().root, .process_set = options.process_set()});
    return HVD_OK;
  });
}

int hvd_sparse_allreduce_async(const hvd_tensor* indices, const hvd_tensor* values,
                               const hvd_options* given, hvd_handle* handle) {
  if (handle != nullptr) *handle = 0;
  return guard([&] {
    constexpr const char* kCall = "hvd_sparse_allreduce";
    const CallOptions options(given, kCall, 1);
    options.need_no_memory();
    not_null(handle, kCall, "handle");
    const auto future =
        std::make_shared<hvd::Future<hvd::SparseTensor>>(hvd::sparse_allreduce_async(
            tensor_of(indices, kCall, "the indices"), tensor_of(values, kCall, "the values"),
            {.name = options.name(),
             .op = op_of(options.c().op, kCall),
             .process_set = options.process_set()}));
    return give(handle, std::make_shared<Work>(*future, [future] {
                  const auto sum = std::make_shared<hvd::SparseTensor>(future->get());
                  Results results;
                  results.memory = sum;
                  for (const auto* const tensor : {&sum->indices, &sum->values}) {
                    results.tensors.push_back({tensor->data(), tensor->shape(), tensor->type()});
                  }
                  return results;
                }));
  });
}

int hvd_sparse_allreduce(const hvd_tensor* indices, const hvd_tensor* values,
                         const hvd_options* options, hvd_handle* handle) {
  return finish(hvd_sparse_allreduce_async(indices, values, options, handle), handle);
}
