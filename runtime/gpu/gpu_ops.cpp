#include "runtime/gpu/gpu_ops.h"

#include <algorithm>
#include <exception>
#include <functional>

#include <hvd/cuda_event.h>

#include "base/text.h"
#include "runtime/gpu/gpu_operation.h"
#include "runtime/ops/algorithms.h"
#include "runtime/ops/gloo_operation.h"

namespace hvd::runtime {
namespace {

class GpuOperation final : public Operation {
 public:
  using Run = Status (*)(GpuWork& work);

  GpuOperation(Kind kind, std::string_view name, Run run, std::shared_ptr<gpu::GpuWorld> world,
               const GpuOperationOptions& options)
      : kind_(kind), name_(name), run_(run), world_(std::move(world)), options_(options) {}

  std::string_view name() const override { return name_; }
  bool enabled(const Response& response, const Group& /*group*/) const override {
    return response.kind == kind_ &&
           std::none_of(response.tensors.begin(), response.tensors.end(),
                        [](const auto& tensor) { return tensor->request.on_host; });
  }
  Status execute(const Response& /*response*/, const Group& /*group*/, const Entries& /*entries*/,
                 std::span<Outcome> /*outcomes*/) override {
    return {Code::internal, cat(name_, " goes on")};
  }
  bool goes_on() const override { return true; }
  Status begin(const Response& response, const Group& group, const Entries& entries,
               std::span<Outcome> outcomes, Completion over) override {
    const Active active = active_of(response, group);
    if (!active.takes_part()) {
      over({});
      return {};
    }
    try {
      return begin_active(response, group, active, entries, outcomes, over);
    } catch (...) {
      return status_of_current_exception(name_);
    }
  }
  void forget(int process_set) override { world_->forget(process_set); }
  void abort() override { world_->abort(); }

 private:
  Status begin_active(const Response& response, const Group& group, const Active& active,
                      const Entries& entries, std::span<Outcome> outcomes, const Completion& over) {
    auto link =
        world_->link(group, active, world_->lane_of(response.number), entries.front().device.cuda);
    HVD_RETURN_IF_ERROR(link.status().with_context(name_));
    if (const Status& refused = (*link)->refused; !refused.ok()) {
      // Whatever the reason is, the call cannot be carried out.
      for (std::size_t i = 0; i < entries.size(); ++i) {
        outcomes[i].failure =
            Status(Code::invalid_argument, cat(kind_name(response.kind), " \"",
                                               entries[i].request.name, "\": ", refused.message()));
      }
      over({});
      return {};
    }
    GpuWork work{response, group, active, entries, outcomes, options_, *world_, **link, {}};
    HVD_RETURN_IF_ERROR(await(work).with_context(name_));
    HVD_RETURN_IF_ERROR(run_(work).with_context(name_));
    std::vector<cuda::Stream> streams;
    for (const auto& entry : entries) {
      const auto* const event = dynamic_cast<const CudaReadyEvent*>(entry.ready.get());
      const cuda::Stream stream = event != nullptr ? event->waiting_stream() : nullptr;
      if (stream != nullptr) streams.push_back(stream);
    }
    // An operation that no stream waits for must be seen to end.
    if (streams.size() < entries.size()) streams.clear();
    std::sort(streams.begin(), streams.end());
    streams.erase(std::unique(streams.begin(), streams.end()), streams.end());
    return world_->take_off(*link, work.temporary, streams, over).with_context(name_);
  }

  static Status await(const GpuWork& work) {
    const ReadyEvent* last = nullptr;
    for (const auto& entry : work.entries) {
      if (!entry.ready || entry.ready.get() == last) continue;
      last = entry.ready.get();
      HVD_RETURN_IF_ERROR(work.gpu().wait_for(work.lane(), *entry.ready));
    }
    return {};
  }

  Kind kind_;
  std::string_view name_;
  Run run_;
  std::shared_ptr<gpu::GpuWorld> world_;
  GpuOperationOptions options_;
};

}  // namespace

Result<std::byte*> GpuWork::output_of(std::size_t entry, const std::vector<std::int64_t>& shape) {
  const auto rows_wanted = shape.empty() ? 1 : shape.front();
  std::byte* const output = prepare_output(entries[entry], shape, outcomes[entry]);
  if (outcomes[entry].ok()) return output;
  const std::size_t bytes =
      row_bytes(entries[entry].request) * static_cast<std::size_t>(rows_wanted);
  auto memory = gpu().allocate(lane(), bytes);
  HVD_RETURN_IF_ERROR(memory.status());
  temporary.push_back(*memory);
  return static_cast<std::byte*>(*memory);
}

Status GpuWork::copy(const gpu::ElementCast& cast, std::span<const gpu::CopyExtent> extents) const {
  return extents.empty() ? Status() : gpu().copy(lane(), cast, extents);
}

Status GpuWork::copy_bytes(const void* from, void* to, std::size_t bytes) const {
  if (bytes == 0 || from == to) return {};
  const gpu::CopyExtent all{from, to, bytes};
  return copy({}, {&all, 1});
}

std::vector<std::string> tell_over(Mesh& mesh, std::chrono::milliseconds timeout,
                                   const Group& group, const Active& active, std::string own) {
  std::vector<std::string> all(static_cast<std::size_t>(active.size()),
                               std::string(own.size(), '\0'));
  std::vector<Extent> receives;
  for (auto& text : all) {
    receives.push_back({reinterpret_cast<std::byte*>(text.data()), text.size()});
  }
  const Peers peers(mesh.transport(), active.ranks, active.rank, group.id, timeout);
  gather_all(peers, {reinterpret_cast<std::byte*>(own.data()), own.size()}, receives);
  return all;
}

std::vector<std::unique_ptr<Operation>> make_gpu_operations(
    const std::shared_ptr<gpu::GpuWorld>& world, const GpuOperationOptions& options) {
  std::vector<std::unique_ptr<Operation>> operations;
  const auto add = [&](Kind kind, std::string_view name, GpuOperation::Run run) {
    operations.push_back(std::make_unique<GpuOperation>(kind, name, run, world, options));
  };
  add(Kind::allreduce, "nccl allreduce", &gpu_allreduce);
  add(Kind::allgather, "nccl allgather", &gpu_allgather);
  add(Kind::broadcast, "nccl broadcast", &gpu_broadcast);
  add(Kind::alltoall, "nccl alltoall", &gpu_alltoall);
  add(Kind::reducescatter, "nccl reducescatter", &gpu_reducescatter);
  add(Kind::barrier, "nccl barrier", &gpu_barrier);
  return operations;
}

}  // namespace hvd::runtime
