#include "runtime/ops/ccl.h"

#include <mutex>

namespace hvd::runtime {
namespace ccl {
namespace {

constexpr ModuleKind kKind{"libhvd_oneccl.so",
                           kModuleVariable,
                           kModuleEntry,
                           kModuleInterface,
                           "HVD_CPU_OPERATIONS=ccl needs hvd's module for oneCCL",
                           "Build hvd where oneCCL is (scripts/setup --oneccl)"};

}  // namespace

bool is_built() { return lies_there(kKind); }

Result<const Module*> module() {
  static std::mutex mutex;
  static const Module* loaded = nullptr;
  const std::lock_guard lock(mutex);
  if (loaded != nullptr) return loaded;
  auto found = load_module(kKind, module_paths(kKind));
  HVD_RETURN_IF_ERROR(found.status());
  loaded = static_cast<const Module*>(*found);
  return loaded;
}

}  // namespace ccl

Result<std::unique_ptr<LibraryCommunicator>> CclLibrary::make(const Group& group) {
  return module_.make(group.rank, group.size(),
                      [&](std::string own) { return tell_(group, std::move(own)); });
}

}  // namespace hvd::runtime
