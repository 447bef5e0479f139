#include <atomic>
#include <dlfcn.h>
#include <mutex>

#include "base/text.h"
#include "runtime/ops/mpi.h"

namespace hvd::runtime::mpi {
namespace {

ModuleKind kind_named(std::string_view file) {
  return {file,
          kModuleVariable,
          kModuleEntry,
          kModuleInterface,
          "HVD_CPU_OPERATIONS=mpi needs hvd's module for this MPI",
          "Build hvd where this MPI is (scripts/setup --mpi)"};
}

std::string file_for(std::string_view mpi) { return cat("libhvd_", mpi, ".so"); }

bool is_loaded(const char* library) {
  void* const handle = ::dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  if (handle != nullptr) ::dlclose(handle);
  return handle != nullptr;
}

std::atomic<const Module*> loaded = nullptr;

}  // namespace

std::string_view kind_of_mpi(const EnvironmentLookup& lookup) {
  if (is_loaded("libmpi.so.40")) return "openmpi";
  if (is_loaded("libmpich.so.12") || is_loaded("libmpi.so.12")) return "mpich";
  return lookup("OMPI_COMM_WORLD_SIZE") || lookup("PMIX_NAMESPACE") ? "openmpi" : "mpich";
}

bool is_built() {
  return lies_there(kind_named("libhvd_openmpi.so")) || lies_there(kind_named("libhvd_mpich.so"));
}

Result<const Module*> module() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (loaded != nullptr) return loaded.load();
  const std::string file = file_for(kind_of_mpi(process_environment()));
  const ModuleKind kind = kind_named(file);
  auto found = load_module(kind, module_paths(kind));
  HVD_RETURN_IF_ERROR(found.status());
  loaded = static_cast<const Module*>(*found);
  return loaded.load();
}

const Module* loaded_module() { return loaded; }

}  // namespace hvd::runtime::mpi
