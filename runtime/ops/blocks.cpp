#include "runtime/ops/blocks.h"

#include <algorithm>

namespace hvd::runtime {

std::vector<Block> cut_into_blocks(const std::vector<Part>& parts, std::size_t element_size,
                                   int blocks) {
  std::size_t bytes = 0;
  for (const auto& part : parts) bytes += part.bytes;
  const std::size_t unit = kReduceGrain * element_size;
  const auto units = bytes / unit;
  const auto count = static_cast<std::size_t>(blocks);
  std::vector<Block> result(count);
  auto part = parts.begin();
  std::size_t used = 0;  // of *part
  std::size_t at = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t end =
        i + 1 == count ? bytes : (units / count * (i + 1) + units % count * (i + 1) / count) * unit;
    while (at < end) {
      if (used == part->bytes) {
        ++part;
        used = 0;
        continue;
      }
      const std::size_t take = std::min(end - at, part->bytes - used);
      result[i].push_back(
          {part->input == nullptr ? nullptr : part->input + used, part->result + used, take});
      used += take;
      at += take;
    }
  }
  return result;
}

}  // namespace hvd::runtime
