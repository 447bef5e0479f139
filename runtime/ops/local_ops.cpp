#include "runtime/ops/local_ops.h"

#include <cstring>

#include "runtime/arithmetic.h"

namespace hvd::runtime {

Status LocalOperation::execute(const Response& response, std::span<Entry> entries) {
  for (auto& entry : entries) {
    const Request& request = entry.request;
    const auto bytes = request.bytes();
    if (entry.output != entry.input && bytes > 0) std::memcpy(entry.output, entry.input, bytes);
    if (response.kind != Kind::allreduce) continue;
    const auto count = static_cast<std::size_t>(request.elements());
    scale(request.type, entry.output, count, request.prescale);
    scale(request.type, entry.output, count, request.postscale);
  }
  return {};
}

}  // namespace hvd::runtime
