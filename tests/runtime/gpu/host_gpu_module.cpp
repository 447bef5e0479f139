// A module like libhvd_nccl.so, of GPUs in the memory of the host: what HVD_NCCL_MODULE names where
// real processes are tested. Each process has HVD_HOST_GPUS devices (8) of 1 GB each, in whose
// memory it cannot read, and one stream, the legacy one. host_gpu_program.h is for the programs.
#include <cstdlib>

#include "base/text.h"
#include "base/versions.h"
#include "runtime/gpu/module.h"
#include "tests/runtime/gpu/hidden_memory.h"
#include "tests/runtime/gpu/host_copier.h"
#include "tests/runtime/gpu/host_gpu.h"
#include "tests/runtime/gpu/host_lane.h"

namespace hvd::test {
namespace {

using runtime::gpu::Gpu;

// None of these ends before the process does: threads may still use them.
HiddenMemory& memory() {
  static auto& only = *new HiddenMemory(std::size_t{1} << 30);
  return only;
}
Network& network() {
  static auto& only = *new SocketNetwork();
  return only;
}
HostLane& legacy_stream() {
  static auto& only = *new HostLane();
  return only;
}

std::string libraries() { return "the memory of the host"; }

Result<int> device_count() {
  const char* const count = std::getenv("HVD_HOST_GPUS");
  const int devices = count == nullptr ? 8 : parse_number<int>(count).value_or(0);
  if (devices == 0) return Status(Code::not_found, "HVD_HOST_GPUS says that there are none");
  return devices;
}

Result<std::unique_ptr<Gpu>> open(int device, int lanes) {
  HostGpuOptions options;
  options.uuid = cat("GPU-", ::getpid(), "-", device);
  options.memory = &memory();
  return make_host_gpu(network(), device, lanes, options);
}

Result<void*> allocate(int device, std::size_t bytes) {
  const auto devices = device_count();
  HVD_RETURN_IF_ERROR(devices.status());
  if (device >= *devices) return Status(Code::invalid_argument, cat("there is no device ", device));
  void* const allocated = memory().allocate(bytes);
  if (allocated == nullptr) {
    return Status(Code::resource_exhausted, cat("a GPU has no ", bytes, " bytes more"));
  }
  return allocated;
}

void release(int /*device*/, void* allocated) {
  legacy_stream().put([allocated] { memory().release(allocated); });
}

Result<std::shared_ptr<ReadyEvent>> record(int /*device*/, cuda::Stream stream,
                                           cuda::Stream waiting_stream) {
  if (stream != nullptr || waiting_stream != nullptr) {
    return Status(Code::invalid_argument, "there is no stream but the legacy one");
  }
  auto event = std::make_shared<HostEvent>();
  legacy_stream().put([state = event->state()] { state->set(); });
  return std::shared_ptr<ReadyEvent>(std::move(event));
}

Result<std::unique_ptr<runtime::gpu::Copier>> open_copier(int /*device*/) {
  return make_host_copier({&memory(), &legacy_stream(), [] { return memory().free_bytes(); }});
}

}  // namespace
}  // namespace hvd::test

#define HVD_EXPORT extern "C" __attribute__((visibility("default")))

HVD_EXPORT const hvd::runtime::gpu::Module* hvd_nccl_module() {
  using namespace hvd::test;  // NOLINT(google-build-using-namespace)
  static const hvd::runtime::gpu::Module only{{hvd::runtime::gpu::kModuleInterface, &hvd::build_id},
                                              &libraries,
                                              &device_count,
                                              &open,
                                              &allocate,
                                              &release,
                                              &record,
                                              &open_copier};
  return &only;
}

// A kernel of the program's, in the legacy stream.
HVD_EXPORT void hvd_host_gpu_launch(void (*kernel)(void*), void* argument) {
  hvd::test::legacy_stream().put([kernel, argument] { kernel(argument); });
}
HVD_EXPORT void* hvd_host_gpu_reach(const void* address) {
  return hvd::test::memory().reach(address);
}
HVD_EXPORT std::size_t hvd_host_gpu_free() { return hvd::test::memory().free_bytes(); }
