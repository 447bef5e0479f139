#include "base/versions.h"

namespace hvd {

WireVersions wire_versions() { return {.worker_link = 4, .members = 5}; }

}  // namespace hvd
