#include "base/versions.h"

namespace hvd {

WireVersions wire_versions() { return {.worker_link = 3, .members = 5}; }

}  // namespace hvd
