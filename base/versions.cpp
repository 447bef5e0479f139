#include "base/versions.h"

namespace hvd {

WireVersions wire_versions() { return {.worker_link = 8, .members = 13}; }

}  // namespace hvd
