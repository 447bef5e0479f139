// Which build this is. hvdrun and its agents must be of the same one: their wire is private to it.
#pragma once

#include <string_view>

namespace hvd {

// The version (hvd/version.h), with a digest of the sources that it was built from.
std::string_view build_id();

}  // namespace hvd
