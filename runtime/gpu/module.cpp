#include "runtime/gpu/module.h"

#include <mutex>

#include "runtime/core/loadable.h"

namespace hvd::runtime::gpu {
namespace {

constexpr ModuleKind kKind{kModuleName,
                           kModuleVariable,
                           kModuleEntry,
                           kModuleInterface,
                           "tensors of a GPU need hvd's module for NCCL",
                           "Build hvd where CUDA and NCCL are (scripts/setup --cuda)"};

}  // namespace

std::vector<std::string> module_paths() { return runtime::module_paths(kKind); }

Result<const Module*> load_module(const std::vector<std::string>& paths) {
  auto found = runtime::load_module(kKind, paths);
  HVD_RETURN_IF_ERROR(found.status());
  return static_cast<const Module*>(*found);
}

Result<const Module*> module() {
  static std::mutex mutex;
  static const Module* loaded = nullptr;
  const std::lock_guard lock(mutex);
  if (loaded != nullptr) return loaded;
  auto found = load_module(module_paths());
  if (found.ok()) loaded = *found;
  return found;
}

}  // namespace hvd::runtime::gpu
