#include "base/build_id.h"

#include <hvd/version.h>

namespace hvd {

std::string_view build_id() { return HVD_VERSION_STRING "-" HVD_SOURCE_DIGEST; }

}  // namespace hvd
