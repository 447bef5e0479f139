#include "base/utc_time.h"

#include <array>
#include <cstdio>
#include <ctime>

namespace hvd {

std::string utc_text(std::chrono::system_clock::time_point time) {
  const auto since =
      std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
  const auto seconds = static_cast<std::time_t>(since / 1000);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  const auto length = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  std::array<char, 8> fraction{};
  std::snprintf(fraction.data(), fraction.size(), ".%03dZ", static_cast<int>(since % 1000));
  return std::string(text.data(), length) + fraction.data();
}

}  // namespace hvd
