// The one symbol of libhvd_oneccl.so: how oneCCL begins.
#include <cstdlib>
#include <string_view>

#include <oneapi/ccl.hpp>

#include "base/text.h"
#include "base/versions.h"
#include "runtime/oneccl/communicator.h"

namespace hvd::runtime::ccl {
namespace {

void set_default(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 0); }

// oneCCL knows its settings from the environment only. By itself it would look for MPI.
void set_environment(const Self& self) {
  set_default("CCL_ATL_TRANSPORT", "ofi");
  if (std::string_view(std::getenv("CCL_ATL_TRANSPORT")) != "ofi") return;
  set_default("CCL_PROCESS_LAUNCHER", "none");
  set_default("CCL_LOCAL_RANK", cat(self.local_rank));
  set_default("CCL_LOCAL_SIZE", cat(self.local_size));
  if (self.interface.empty()) return;
  set_default("CCL_KVS_IFACE", self.interface);
  set_default("FI_TCP_IFACE", self.interface);
}

Status begin(const Self& self) {
  static bool begun = false;
  if (begun) return {};
  set_environment(self);
  HVD_RETURN_IF_ERROR(guard("init", [] { ::ccl::init(); }));
  begun = true;
  return {};
}

}  // namespace
}  // namespace hvd::runtime::ccl

extern "C" __attribute__((visibility("default"))) const hvd::runtime::ccl::Module*
hvd_ccl_module() {
  using namespace hvd::runtime::ccl;  // NOLINT(google-build-using-namespace)
  static const Module only{
      {kModuleInterface, &hvd::build_id}, &begin, &reduces, &make_communicator};
  return &only;
}
