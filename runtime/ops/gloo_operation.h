// The parts that the operations over Gloo have in common; for gloo_*_ops.cpp.
#pragma once

#include <memory>
#include <string_view>

#include "runtime/ops/gloo_ops.h"
#include "runtime/ops/hierarchy.h"
#include "runtime/ops/layout.h"
#include "runtime/ops/local_ops.h"
#include "runtime/ops/peers.h"

namespace hvd::runtime {

// The exception that is being handled, as a value; `what` was tried.
Status status_of_current_exception(std::string_view what);

class GlooOperation : public Operation {
 public:
  GlooOperation(Kind kind, std::string_view name, std::shared_ptr<Mesh> mesh,
                const GlooOperationOptions& options);

  std::string_view name() const final { return name_; }
  bool enabled(const Response& response, const Group& group) const final;
  Status execute(const Response& response, const Group& group, const Entries& entries,
                 std::span<Outcome> outcomes) final;
  void abort() final;

 protected:
  struct Work {
    const Response& response;
    const Group& group;
    const Active& active;  // at least two ranks, of which this is one
    const Entries& entries;
    std::span<Outcome> outcomes;
    const HostPlan* plan;       // how to go by hosts, if that is of use here
    int hosts;                  // all of the world, by the plan or with one rank each; else 0
    ShmCollective* collective;  // of those of this host, if they share memory for that
  };
  // May throw; an error that concerns one tensor goes into its outcome, and no further.
  virtual void run(const Work& work, const Peers& peers) = 0;

  const GlooOperationOptions& options() const { return options_; }
  // The peers of this host; there is a plan.
  static std::unique_ptr<NodePeers> mates_of(const Work& work, const Peers& peers,
                                             FusionBuffer& scratch);
  // Whether what is gathered or scattered, and so many bytes in all, goes directly between hosts;
  // the timeline is told.
  static bool choose_directly(const Work& work, std::size_t bytes);
  std::byte* output_of(Entry& entry, const std::vector<std::int64_t>& shape, Outcome& outcome) {
    return outputs_.prepare(entry, shape, outcome);
  }

 private:
  bool goes_by_hosts(const Response& response) const;
  // Whether every such operation of the set is counted in the memory of this host.
  bool counts(const Response& response, const Group& group) const;
  // Null if there are no hosts to plan for, or no need.
  const HostPlan* plan_of(const Response& response, const Active& active);

  Kind kind_;
  std::string_view name_;
  std::shared_ptr<Mesh> mesh_;
  GlooOperationOptions options_;
  std::size_t world_hosts_;  // 0 without options_.hosts
  OutputMemory outputs_;
  std::vector<int> planned_for_;  // ranks of the last plan
  HostPlan plan_;
};

std::unique_ptr<Operation> make_gloo_allreduce(const std::shared_ptr<Mesh>& mesh,
                                               const GlooOperationOptions& options);
std::unique_ptr<Operation> make_gloo_reducescatter(const std::shared_ptr<Mesh>& mesh,
                                                   const GlooOperationOptions& options);
std::unique_ptr<Operation> make_gloo_allgather(const std::shared_ptr<Mesh>& mesh,
                                               const GlooOperationOptions& options);
std::unique_ptr<Operation> make_gloo_alltoall(const std::shared_ptr<Mesh>& mesh,
                                              const GlooOperationOptions& options);
std::unique_ptr<Operation> make_gloo_broadcast(const std::shared_ptr<Mesh>& mesh,
                                               const GlooOperationOptions& options);
std::unique_ptr<Operation> make_gloo_barrier(const std::shared_ptr<Mesh>& mesh,
                                             const GlooOperationOptions& options);
std::unique_ptr<Operation> make_gloo_send_recv(const std::shared_ptr<Mesh>& mesh,
                                               const GlooOperationOptions& options);

}  // namespace hvd::runtime
