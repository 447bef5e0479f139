// Stands in the place of base/versions.cpp: a program that is linked with this file and then with
// libhvd is one of another build.
#include <hvd/version.h>

#include "base/versions.h"

namespace hvd {

std::string_view build_id() { return HVD_OTHER_BUILD; }

WireVersions wire_versions() { return {HVD_OTHER_WORKER_LINK, HVD_OTHER_MEMBERS}; }

}  // namespace hvd
