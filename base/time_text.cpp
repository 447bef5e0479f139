#include "base/time_text.h"

#include <algorithm>

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

}  // namespace hvd
