#include "base/time_text.h"

#include "base/text.h"

namespace hvd {

std::string seconds_text(Duration time) {
  using Tenths = std::chrono::duration<std::chrono::milliseconds::rep, std::deci>;
  const auto tenths = std::chrono::ceil<Tenths>(time).count();
  return tenths % 10 == 0 ? cat(tenths / 10, " s") : cat(tenths / 10, ".", tenths % 10, " s");
}

}  // namespace hvd
