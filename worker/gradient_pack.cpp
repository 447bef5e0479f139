#include "worker/gradient_pack.h"

#include <algorithm>
#include <cstring>

namespace hvd::worker {

GradientPack::Mark GradientPack::mark(std::optional<std::uint64_t> digest) {
  Mark mark;
  mark.fill(0xff);  // no complements
  if (!digest) return mark;
  constexpr std::size_t kHalf = mark.size() / 2;
  for (std::size_t i = 0; i < kHalf; ++i) {
    mark[i] = static_cast<std::uint8_t>(*digest >> (8 * i));
    mark[kHalf + i] = static_cast<std::uint8_t>(~mark[i]);
  }
  return mark;
}

bool GradientPack::is_agreed(std::span<const std::uint8_t> largest) {
  const std::size_t half = largest.size() / 2;
  for (std::size_t i = 0; i < half; ++i) {
    if (largest[i] + largest[half + i] != 0xff) return false;
  }
  return true;
}

GradientPack::Part& GradientPack::part_for(DataType type) {
  const auto found = std::find_if(parts_.begin(), parts_.end(),
                                  [&](const auto& part) { return part->memory.type() == type; });
  if (found != parts_.end()) return **found;
  parts_.push_back(std::make_shared<Part>(Part{Tensor({0}, type), {}}));
  return *parts_.back();
}

void GradientPack::fill(GradientList& list) {
  for (const auto& part : parts_) part->members.clear();
  for (std::size_t i = 0; i < list.all().size(); ++i) {
    const auto& gradient = list.all()[i];
    if (!gradient.packable || gradient.left_out) continue;
    part_for(gradient.tensor.type).members.push_back(i);
  }
  // Ranks number them alike: no type is there that only an earlier step had.
  std::erase_if(parts_, [](const auto& part) { return part->members.empty(); });

  for (const auto& part : parts_) {
    std::int64_t elements = 0;
    for (const auto index : part->members) elements += list.all()[index].tensor.elements();
    if (part->memory.elements() != elements) part->memory = Tensor({elements}, part->memory.type());

    auto* to = static_cast<std::byte*>(part->memory.data());
    for (const auto index : part->members) {
      auto& gradient = list.all()[index];
      for (const auto& event : gradient.events) event->wait();
      const std::size_t bytes = gradient.tensor.bytes();
      if (bytes == 0) continue;
      if (gradient.passes == 0) {
        std::memset(to, 0, bytes);
      } else {
        std::memcpy(to, gradient.tensor.data, bytes);
      }
      to += bytes;
    }
  }
}

void GradientPack::unpack(GradientList& list) const {
  for (const auto& part : parts_) {
    const auto* from = static_cast<const std::byte*>(part->memory.data());
    for (const auto index : part->members) {
      const auto& tensor = list.all()[index].tensor;
      const std::size_t bytes = tensor.bytes();
      if (bytes != 0) std::memcpy(tensor.data, from, bytes);
      from += bytes;
    }
  }
}

}  // namespace hvd::worker
