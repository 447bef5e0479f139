#include "runtime/ops/local_ops.h"

#include <cstring>

#include "runtime/arithmetic.h"

namespace hvd::runtime {

Status LocalOperation::execute(const Response& response, const Group& /*group*/,
                               std::span<Entry> entries, std::span<Outcome> outcomes) {
  for (std::size_t i = 0; i < entries.size(); ++i) {
    Entry& entry = entries[i];
    outcomes[i].output = entry.output;
    outcomes[i].shape = entry.request.shape;
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
