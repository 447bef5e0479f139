#include "base/protocol/work_reading.h"

#include <set>

#include "base/text.h"

namespace hvd {

std::uint64_t WorkReading::operations() const {
  std::uint64_t sum = 0;
  for (const auto& work : collectives) sum += work.operations;
  return sum;
}

std::uint64_t WorkReading::bytes() const {
  std::uint64_t sum = 0;
  for (const auto& work : collectives) sum += work.bytes;
  return sum;
}

Status WorkReading::check() const {
  std::set<Collective> seen;
  for (const auto& work : collectives) {
    if (seen.insert(work.kind).second) continue;
    return {Code::data_loss, cat("the work of ", kind_name(work.kind), " is there twice")};
  }
  return {};
}

}  // namespace hvd
