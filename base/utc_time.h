// Moments of the calendar, for files that people and other programs read. Safe from any thread.
#pragma once

#include <chrono>
#include <string>

namespace hvd {

// In UTC, as ISO 8601 has it: "2026-11-25T12:00:00.250Z"
std::string utc_text(std::chrono::system_clock::time_point time);

}  // namespace hvd
