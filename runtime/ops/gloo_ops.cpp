#include "runtime/ops/gloo_ops.h"

#include <cstring>
#include <exception>
#include <gloo/common/error.h>
#include <new>
#include <optional>
#include <set>
#include <utility>

#include "base/text.h"
#include "base/threads.h"
#include "runtime/ops/algorithm_choice.h"
#include "runtime/ops/gloo_operation.h"
#include "runtime/ops/shm_node_peers.h"
#include "runtime/transport/gloo_context.h"

namespace hvd::runtime {

// A function of its own, so that tests/tsan.supp can name it: exceptions come from Gloo's own
// thread, through locks that ThreadSanitizer does not see.
[[gnu::noinline]] Status status_of_current_exception(std::string_view what) {
  try {
    throw;
  } catch (const TransportError& error) {
    return error.status.with_context(what);
  } catch (const gloo::IoException& error) {
    const bool late = std::strstr(error.what(), "imed out") != nullptr;
    return {late ? Code::deadline_exceeded : Code::unavailable, cat(what, ": ", error.what())};
  } catch (const std::bad_alloc&) {
    return {Code::resource_exhausted, cat(what, ": no memory left")};
  } catch (const std::exception& error) {
    return {Code::internal, cat(what, ": ", error.what())};
  } catch (...) {
    if (thread_is_ending()) throw;
    return {Code::internal, cat(what, ": something other than a std::exception was thrown")};
  }
}

GlooOperation::GlooOperation(Kind kind, std::string_view name, std::shared_ptr<Mesh> mesh,
                             const GlooOperationOptions& options)
    : kind_(kind),
      name_(name),
      mesh_(std::move(mesh)),
      options_(options),
      world_hosts_(std::set<int>(options.hosts.begin(), options.hosts.end()).size()) {}

bool GlooOperation::enabled(const Response& response, const Group& /*group*/) const {
  return response.kind == kind_ && is_on_host(response);
}

Status GlooOperation::execute(const Response& response, const Group& group, const Entries& entries,
                              std::span<Outcome> outcomes) {
  const Active active = active_of(response, group);
  try {
    const HostPlan* const all = plan_of(response, active);
    const HostPlan* const plan =
        all != nullptr && goes_by_hosts(response) && all->useful() ? all : nullptr;
    // The links of all hosts were measured, and not those of some.
    const bool spans_hosts =
        all != nullptr && all->hosts.size() == world_hosts_ &&
        (plan != nullptr || all->hosts.size() == static_cast<std::size_t>(active.size()));
    const int hosts = spans_hosts ? static_cast<int>(world_hosts_) : 0;
    std::optional<ShmCollective> collective;
    if (counts(response, group)) {
      if (plan != nullptr && plan->node_peers().size() > 1) {
        std::vector<int> node_peers;
        for (const int position : plan->node_peers()) {
          node_peers.push_back(active.ranks[static_cast<std::size_t>(position)]);
        }
        collective.emplace(*options_.host, group.id, node_peers, plan->local);
      } else {
        options_.host->skip(group.id);
      }
    }
    if (!active.takes_part()) return {};
    if (active.size() == 1) {
      run_alone(response, group, entries, outcomes);
      return {};
    }
    if (mesh_->aborted()) return {Code::aborted, cat(name_, ": the data connections were shut")};
    await_inputs(entries);
    const Peers peers(mesh_->transport(), active.ranks, active.rank, group.id, options_.timeout);
    run({response, group, active, entries, outcomes, plan, hosts,
         collective ? &*collective : nullptr},
        peers);
    if (collective) collective->end();
    outputs_.clear();
    return {};
  } catch (...) {
    return status_of_current_exception(name_);
  }
}

void GlooOperation::abort() {
  mesh_->abort({Code::aborted, "the operation was aborted"});
  if (options_.host) options_.host->abort();
}

bool GlooOperation::goes_by_hosts(const Response& response) const {
  return response.hierarchical && !options_.hosts.empty();
}

bool GlooOperation::counts(const Response& response, const Group& group) const {
  return goes_by_hosts(response) && options_.host &&
         options_.host->serves_part(group.id, group.ranks);
}

const HostPlan* GlooOperation::plan_of(const Response& response, const Active& active) {
  const bool may_choose =
      kind_ == Kind::allreduce || kind_ == Kind::allgather || kind_ == Kind::reducescatter;
  const bool is_needed = may_choose || goes_by_hosts(response);
  if (!is_needed || options_.hosts.empty() || !active.takes_part()) return nullptr;
  if (planned_for_ != active.ranks) {
    plan_ = host_plan(active.ranks, active.rank, options_.hosts);
    planned_for_ = active.ranks;
  }
  return &plan_;
}

std::unique_ptr<NodePeers> GlooOperation::mates_of(const Work& work, const Peers& peers,
                                                   FusionBuffer& scratch) {
  if (work.collective != nullptr) return std::make_unique<ShmNodePeers>(*work.collective);
  return std::make_unique<MessagingNodePeers>(peers.part(work.plan->node_peers()), scratch);
}

bool GlooOperation::choose_directly(const Work& work, std::size_t bytes) {
  const bool direct = work.hosts > 0 && goes_directly(work.hosts, bytes, work.response.link_speed);
  trace::mark_choice(direct ? trace::Activity::direct : trace::Activity::ring);
  return direct;
}

std::vector<std::unique_ptr<Operation>> make_gloo_operations(const std::shared_ptr<Mesh>& mesh,
                                                             const GlooOperationOptions& options) {
  std::vector<std::unique_ptr<Operation>> operations;
  operations.push_back(make_gloo_allreduce(mesh, options));
  operations.push_back(make_gloo_allgather(mesh, options));
  operations.push_back(make_gloo_broadcast(mesh, options));
  operations.push_back(make_gloo_alltoall(mesh, options));
  operations.push_back(make_gloo_reducescatter(mesh, options));
  operations.push_back(make_gloo_barrier(mesh, options));
  operations.push_back(make_gloo_send_recv(mesh, options));
  return operations;
}

}  // namespace hvd::runtime
