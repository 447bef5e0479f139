// Times in words for people. Pure, and safe from any thread.
#pragma once

#include <string>

#include "base/clock.h"

namespace hvd {

// "5 s", "0.3 s". Rounded up to tenths, as is right for limits; a time that was measured is rounded
// by the caller.
std::string seconds_text(Duration time);

}  // namespace hvd
