#include "runtime/negotiation/fusion.h"

namespace hvd::runtime {
namespace {

bool may_be_fused(const ReadyTensor& ready) {
  if (!ready.error.ok()) return false;
  switch (ready.request().kind) {
    case Kind::allreduce:
    case Kind::reducescatter:
    case Kind::allgather:
      return true;
    default:
      return false;
  }
}

bool may_share(const ReadyTensor& one, const ReadyTensor& another) {
  const Request& a = one.request();
  const Request& b = another.request();
  if (a.kind != b.kind || a.process_set != b.process_set || a.type != b.type ||
      a.on_host != b.on_host || one.joined != another.joined) {
    return false;
  }
  if (a.kind == Kind::allgather) return true;
  return a.op == b.op && a.prescale == b.prescale && a.postscale == b.postscale &&
         a.compression == b.compression && a.tree == b.tree;
}

bool same_group(const ReadyTensor& one, const ReadyTensor& another) {
  const Request& a = one.request();
  const Request& b = another.request();
  return !a.group.empty() && a.group == b.group && a.process_set == b.process_set;
}

}  // namespace

std::vector<ReadyTensor> take_batch(std::deque<ReadyTensor>& ready, std::size_t threshold,
                                    Fusion fusion) {
  std::vector<ReadyTensor> batch;
  batch.push_back(std::move(ready.front()));
  ready.pop_front();
  std::size_t seen = bytes_of(*batch.front().tensor);
  if (!may_be_fused(batch.front()) || seen >= threshold) return batch;

  std::size_t taken = seen;
  std::deque<ReadyTensor> skipped;
  while (!ready.empty()) {
    ReadyTensor& candidate = ready.front();
    if (fusion == Fusion::groups_only && !same_group(candidate, batch.front())) break;
    const std::size_t bytes = bytes_of(*candidate.tensor);
    seen += bytes;
    if (seen > threshold) break;
    if (may_be_fused(candidate) && may_share(candidate, batch.front()) &&
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
