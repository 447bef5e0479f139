// Which build this is. hvdrun and its agents must be of the same one: their wire is private to it.
#pragma once

#include <string_view>

namespace hvd {

std::string_view version();   // "0.1.0"
std::string_view build_id();  // the same, with a digest of the sources it was built from

}  // namespace hvd
