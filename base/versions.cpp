#include "base/versions.h"

#include <hvd/version.h>

namespace hvd {

WireVersions wire_versions() { return {.worker_link = 11, .members = 18}; }

std::string_view build_id() { return HVD_VERSION_STRING "-" HVD_SOURCE_DIGEST; }

}  // namespace hvd
