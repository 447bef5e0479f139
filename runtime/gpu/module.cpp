#include "runtime/gpu/module.h"

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <mutex>

#include "base/build_id.h"
#include "base/text.h"

namespace hvd::runtime::gpu {
namespace {

// Of the library or program that this function is in; empty: not known.
std::filesystem::path own_directory() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(&own_directory), &info) == 0 || info.dli_fname == nullptr) {
    return {};
  }
  std::error_code error;
  const auto whole = std::filesystem::canonical(info.dli_fname, error);
  return error ? std::filesystem::path() : whole.parent_path();
}

Result<const Module*> check(void* library, const std::string& path) {
  const auto entry = reinterpret_cast<ModuleEntry>(::dlsym(library, kModuleEntry));
  if (entry == nullptr) {
    return Status(Code::failed_precondition, cat(path, " is not a module of hvd"));
  }
  const Module* const found = entry();
  if (found->interface != kModuleInterface) {
    return Status(Code::failed_precondition,
                  cat(path, " is of another version of hvd (interface ", found->interface, ", not ",
                      kModuleInterface, ")"));
  }
  if (found->build_id() != build_id()) {
    return Status(Code::failed_precondition, cat(path, " is of another build of hvd, ",
                                                 found->build_id(), ", not ", build_id()));
  }
  return found;
}

}  // namespace

std::vector<std::string> module_paths() {
  if (const char* const chosen = std::getenv(std::string(kModuleVariable).c_str());
      chosen != nullptr && *chosen != '\0') {
    return {chosen};
  }
  std::vector<std::string> paths;
  if (const auto directory = own_directory(); !directory.empty()) {
    paths.push_back((directory / kModuleName).string());
    paths.push_back((directory.parent_path() / "lib" / kModuleName).string());
  }
  paths.emplace_back(kModuleName);
  return paths;
}

Result<const Module*> load_module(const std::vector<std::string>& paths) {
  std::vector<std::string> absent;
  for (const auto& path : paths) {
    std::error_code error;
    const bool for_the_loader = path.find('/') == std::string::npos;
    if (!for_the_loader && !std::filesystem::exists(path, error)) {
      absent.push_back(path);
      continue;
    }
    // All symbols at once: one that an older NCCL lacks is better missed here than in a call.
    if (void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); library != nullptr) {
      return check(library, path);
    }
    const char* const why = ::dlerror();
    // The loader does not find it either, which adds nothing to the first error.
    if (for_the_loader && paths.size() > 1) break;
    return Status(Code::failed_precondition,
                  cat(path, " cannot be loaded: ", why != nullptr ? why : "no reason is given"));
  }
  return Status(Code::failed_precondition,
                cat("tensors of a GPU need hvd's module for NCCL, ", kModuleName,
                    ", and it is not there: neither as ", join(absent, " nor as "),
                    paths.size() > 1 ? ", nor where the system's loader looks" : "",
                    ". Build hvd where CUDA and NCCL are (scripts/setup --cuda), or say where it "
                    "is with ",
                    kModuleVariable, "."));
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
