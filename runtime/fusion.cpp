#include "runtime/fusion.h"

namespace hvd::runtime {
namespace {

bool may_be_fused(const Ready& tensor) {
  return tensor.error.ok() && tensor.request.kind == Kind::allreduce;
}

bool may_share(const Request& a, const Request& b) {
  return a.type == b.type && a.op == b.op && a.prescale == b.prescale && a.postscale == b.postscale;
}

}  // namespace

std::vector<Ready> take_batch(std::deque<Ready>& ready, std::size_t threshold) {
  std::vector<Ready> batch;
  batch.push_back(std::move(ready.front()));
  ready.pop_front();
  std::size_t seen = batch.front().request.bytes();
  if (!may_be_fused(batch.front()) || seen >= threshold) return batch;

  std::size_t taken = seen;
  std::deque<Ready> skipped;
  while (!ready.empty()) {
    Ready& candidate = ready.front();
    const std::size_t bytes = candidate.request.bytes();
    seen += bytes;
    if (seen > threshold) break;
    if (may_be_fused(candidate) && may_share(candidate.request, batch.front().request) &&
        taken + bytes <= threshold) {
      taken += bytes;
      batch.push_back(std::move(candidate));
    } else {
      skipped.push_back(std::move(candidate));
    }
    ready.pop_front();
  }
  while (!skipped.empty()) {
    ready.push_front(std::move(skipped.back()));
    skipped.pop_back();
  }
  return batch;
}

}  // namespace hvd::runtime
