#include "runtime/core/loadable.h"

#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>

#include "base/text.h"
#include "base/versions.h"

namespace hvd::runtime {
namespace {

// The directory of the library or program that this function is in; empty: not known.
std::filesystem::path own_directory() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(&own_directory), &info) == 0 || info.dli_fname == nullptr) {
    return {};
  }
  std::error_code error;
  const auto whole = std::filesystem::canonical(info.dli_fname, error);
  return error ? std::filesystem::path() : whole.parent_path();
}

Result<const void*> check(const ModuleKind& kind, void* library, const std::string& path) {
  using Entry = const void* (*)();
  const auto entry = reinterpret_cast<Entry>(::dlsym(library, kind.entry));
  if (entry == nullptr) {
    return Status(Code::failed_precondition, cat(path, " is not a module of hvd"));
  }
  const void* const found = entry();
  const auto& head = *static_cast<const ModuleHead*>(found);
  if (head.interface != kind.interface) {
    return Status(Code::failed_precondition, cat(path, " is of another version of hvd (interface ",
                                                 head.interface, ", not ", kind.interface, ")"));
  }
  if (head.build_id() != build_id()) {
    return Status(Code::failed_precondition, cat(path, " is of another build of hvd, ",
                                                 head.build_id(), ", not ", build_id()));
  }
  return found;
}

}  // namespace

std::vector<std::string> module_paths(const ModuleKind& kind) {
  if (const char* const chosen = std::getenv(std::string(kind.variable).c_str());
      chosen != nullptr && *chosen != '\0') {
    return {chosen};
  }
  std::vector<std::string> paths;
  if (const auto directory = own_directory(); !directory.empty()) {
    paths.push_back((directory / kind.file).string());
    paths.push_back((directory.parent_path() / "lib" / kind.file).string());
  }
  paths.emplace_back(kind.file);
  return paths;
}

bool lies_there(const ModuleKind& kind) {
  const auto paths = module_paths(kind);
  return std::any_of(paths.begin(), paths.end(), [](const std::string& path) {
    std::error_code error;
    return path.find('/') != std::string::npos && std::filesystem::exists(path, error);
  });
}

Result<const void*> load_module(const ModuleKind& kind, const std::vector<std::string>& paths) {
  std::vector<std::string> absent;
  for (const auto& path : paths) {
    std::error_code error;
    const bool for_the_loader = path.find('/') == std::string::npos;
    if (!for_the_loader && !std::filesystem::exists(path, error)) {
      absent.push_back(path);
      continue;
    }
    // All symbols at once: one that an older library lacks is better missed here than in a call.
    if (void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); library != nullptr) {
      return check(kind, library, path);
    }
    const char* const why = ::dlerror();
    // The loader does not find it either, which adds nothing to the first error.
    if (for_the_loader && paths.size() > 1) break;
    return Status(Code::failed_precondition,
                  cat(path, " cannot be loaded: ", why != nullptr ? why : "no reason is given"));
  }
  return Status(
      Code::failed_precondition,
      cat(kind.need, ", ", kind.file, ", and it is not there: neither as ",
          join(absent, " nor as "), paths.size() > 1 ? ", nor where the system's loader looks" : "",
          ". ", kind.remedy, ", or say where it is with ", kind.variable, "."));
}

}  // namespace hvd::runtime
