#include "base/clock.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>

#include "base/text.h"

namespace hvd {
namespace {

using Tenths = std::chrono::duration<std::chrono::milliseconds::rep, std::deci>;

std::string text_of(Tenths time) {
  const auto tenths = time.count();
  return tenths % 10 == 0 ? cat(tenths / 10, " s") : cat(tenths / 10, ".", tenths % 10, " s");
}

}  // namespace

std::string seconds_text(Duration limit) { return text_of(std::chrono::ceil<Tenths>(limit)); }

std::string measured_text(Duration time) {
  return text_of(std::chrono::round<Tenths>(std::max(time, Duration::zero())));
}

std::string duration_text(double seconds) {
  constexpr double kMost = 1e15;
  const auto all = static_cast<long>(std::min(kMost, std::max(0.0, std::floor(seconds))));
  const auto [hours, minutes, rest] = std::array{all / 3600, all / 60 % 60, all % 60};
  if (hours > 0) return cat(hours, " h ", minutes, " min");
  return minutes > 0 ? cat(minutes, " min ", rest, " s") : cat(rest, " s");
}

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
