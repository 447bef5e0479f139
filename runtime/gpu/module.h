// The module libhvd_nccl.so, in which all that knows CUDA and NCCL is: found, loaded and asked only
// when a program uses a GPU (runtime/core/loadable.h). Safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <hvd/cuda_event.h>
#include <hvd/types.h>

#include "base/status.h"
#include "runtime/core/loadable.h"
#include "runtime/gpu/copier.h"
#include "runtime/gpu/gpu.h"

namespace hvd::runtime::gpu {

inline constexpr std::string_view kModuleVariable = "HVD_NCCL_MODULE";
inline constexpr std::string_view kModuleName = "libhvd_nccl.so";
// Changes with everything that a module and its loader must agree about: this header, gpu.h,
// copier.h.
inline constexpr std::uint32_t kModuleInterface = 4;

// The value that the module's one symbol, hvd_nccl_module(), returns. Its functions take no lock of
// ours.
struct Module : ModuleHead {
  std::string (*libraries)() = nullptr;  // "NCCL 2.28.9 (built with 2.28.9), CUDA runtime 13.0"
  // How many devices this process can use; an error says why there are none.
  Result<int> (*device_count)() = nullptr;
  Result<std::unique_ptr<Gpu>> (*open)(int device, int lanes) = nullptr;
  // Memory for a result, and where it goes once it is not needed any more: after what the legacy
  // stream has by then.
  Result<void*> (*allocate)(int device, std::size_t bytes) = nullptr;
  void (*release)(int device, void* memory) = nullptr;
  // An event behind what the stream has by now (hvd/cuda_event.h); a stream that waits for the
  // result, or null.
  Result<std::shared_ptr<ReadyEvent>> (*record)(int device, cuda::Stream stream,
                                                cuda::Stream waiting_stream) = nullptr;
  Result<std::unique_ptr<Copier>> (*open_copier)(int device) = nullptr;
};
using ModuleEntry = const Module* (*)();
inline constexpr const char* kModuleEntry = "hvd_nccl_module";

// Where it is looked for, in this order; the last one is for the loader.
std::vector<std::string> module_paths();
// The module; loads it at the first call that succeeds. An error says where it was looked for.
Result<const Module*> module();
// One that lies here; for tests and hvdrun.
Result<const Module*> load_module(const std::vector<std::string>& paths);

}  // namespace hvd::runtime::gpu
