#include "base/versions.h"

namespace hvd {

WireVersions wire_versions() { return {.worker_link = 6, .members = 8}; }

}  // namespace hvd
