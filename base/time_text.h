// Times in words for people. Pure, and safe from any thread.
#pragma once

#include <string>

#include "base/clock.h"

namespace hvd {

// "5 s", "0.3 s". Rounded up to tenths, as is right for limits.
std::string seconds_text(Duration limit);
// The same of a time that was measured: rounded to the nearest tenth, and never negative.
std::string measured_text(Duration time);

}  // namespace hvd
