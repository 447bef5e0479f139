#include "base/build_id.h"

namespace hvd {

std::string_view version() { return HVD_VERSION; }
std::string_view build_id() { return HVD_VERSION "-" HVD_SOURCE_DIGEST; }

}  // namespace hvd
