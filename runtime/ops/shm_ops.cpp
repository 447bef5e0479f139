#include "runtime/ops/shm_ops.h"

#include <algorithm>
#include <exception>
#include <new>

#include "base/text.h"
#include "runtime/core/arithmetic.h"
#include "runtime/ops/shm_operation.h"

namespace hvd::runtime {

bool ShmOperation::enabled(const Response& response, const Group& group) const {
  if (response.kind != kind_ || !is_on_host(response)) return false;
  const bool reduces = kind_ == Kind::allreduce || kind_ == Kind::reducescatter;
  if (reduces && response.tensors.front()->request.op == ReduceOp::adasum) return false;
  return host_->serves(group.id, group.ranks);
}

Status ShmOperation::execute(const Response& response, const Group& group, const Entries& entries,
                             std::span<Outcome> outcomes) {
  const Active active = active_of(response, group);
  if (!active.takes_part() || active.size() == 1) host_->skip(group.id);
  if (!active.takes_part()) return {};
  try {
    if (active.size() == 1) {
      run_alone(response, group, entries, outcomes);
      return {};
    }
    await_inputs(entries);
    ShmCollective collective(*host_, group.id, active.ranks, active.rank);
    HVD_RETURN_IF_ERROR(
        run({response, group, active, entries, outcomes}, collective).with_context(name_));
    collective.end();
    return {};
  } catch (const std::bad_alloc&) {
    return {Code::resource_exhausted, cat(name_, ": no memory left")};
  } catch (const std::exception& error) {
    return {Code::internal, cat(name_, ": ", error.what())};
  }
}

std::size_t whole_grains(std::size_t count) {
  return (count + kReduceGrain - 1) / kReduceGrain * kReduceGrain;
}

Share share_of(const ShmCollective& collective, int rank, std::size_t count) {
  const auto ranks = static_cast<std::size_t>(collective.size());
  const std::size_t each = whole_grains((count + ranks - 1) / ranks);
  const auto index = static_cast<std::size_t>(rank);
  return {std::min(count, index * each), std::min(count, (index + 1) * each)};
}

std::vector<std::unique_ptr<Operation>> make_shm_operations(const std::shared_ptr<ShmGroup>& host,
                                                            const ShmOperationOptions& options) {
  std::vector<std::unique_ptr<Operation>> operations;
  operations.push_back(make_shm_allreduce(host, options));
  operations.push_back(make_shm_allgather(host));
  operations.push_back(make_shm_broadcast(host));
  operations.push_back(make_shm_alltoall(host));
  operations.push_back(make_shm_reducescatter(host));
  operations.push_back(make_shm_barrier(host));
  return operations;
}

}  // namespace hvd::runtime
