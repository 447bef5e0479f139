#include "base/versions.h"

namespace hvd {

WireVersions wire_versions() { return {.worker_link = 7, .members = 11}; }

}  // namespace hvd
