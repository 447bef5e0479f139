// What the job decides is done here.
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/protocol/credentials.h"
#include "base/text.h"
#include "driver/run/job_runner.h"

namespace hvd::driver {
namespace {

// Whether this scope belongs to the bootstrap of an older world.
bool belongs_to_older(std::string_view scope, std::uint64_t generation) {
  const std::string_view prefix = kWorldScopePrefix;
  if (!scope.starts_with(prefix)) return false;
  scope.remove_prefix(prefix.size());
  const auto number = parse_number<std::uint64_t>(scope.substr(0, scope.find('.')));
  return number && *number < generation;
}

std::vector<Incarnation> incarnations_of(const WorldDocument& world) {
  std::vector<Incarnation> incarnations;
  incarnations.reserve(world.members.size());
  for (const auto& member : world.members) incarnations.push_back(member.incarnation);
  return incarnations;
}

}  // namespace

void JobRunner::perform(const action::PublishWorld& action) {
  const WorldDocument& world = action.world;
  const bool is_effective = world.state == WorldState::effective;
  const auto frames = keep_world(action);
  if (context_.spec.elastic) hosts_.send_world(*frames);
  if (!is_effective || !context_.spec.elastic || world.last) return;
  workers_.update_master(world);
  context_.observer.on_world(world, action.why);
}

WorldFrames JobRunner::frames_of(const WorldDocument& world) const {
  WorldFrames frames{world.generation, world.state == WorldState::effective};
  frames.world =
      share(agent_link::World{frames.generation, frames.effective, world.encode()}.encode());

  auto keys = sealed_keys(context_.job_key, world);
  std::map<std::string, agent_link::WorldKeys> by_host;
  for (std::size_t rank = 0; rank < keys.size(); ++rank) {
    const WorldMember& member = world.members[rank];
    by_host[member.host].keys.push_back({member.incarnation, std::move(keys[rank])});
  }
  for (auto& [host, message] : by_host) {
    message.generation = world.generation;
    frames.keys.emplace(host, share(message.encode()));
  }
  return frames;
}

std::shared_ptr<const WorldFrames> JobRunner::keep_world(const action::PublishWorld& action) {
  const WorldDocument& world = action.world;
  const bool is_effective = world.state == WorldState::effective;
  // For agents that are found later.
  if (takeover_) takeover_->publish(world);
  // Until they leave, the members of the world before the last one commit there.
  server_.set_members(world.generation, incarnations_of(world), is_effective && !world.last);
  server_.put(kWorldScope, is_effective ? kCurrentWorldKey : kProposedWorldKey, world.to_json());
  auto frames = std::make_shared<const WorldFrames>(frames_of(world));
  if (!is_effective) return frames;

  report_.new_world();
  workers_.take_up(frames);
  if (!context_.spec.elastic || world.last) return frames;  // nobody forms the last one
  server_.erase_scopes_if([generation = world.generation](std::string_view scope) {
    return belongs_to_older(scope, generation);
  });
  record_.add_world(world, action.why);
  return frames;
}

// An agent that comes again may have missed the newest ones.
void JobRunner::send_worlds(HostIndex host) {
  const WorldDocument& world = loop_.job().world();
  if (world.members.empty()) return;
  workers_.update_master(world);
  workers_.send_world(host);
  const auto& proposed = takeover_->proposed();
  if (!proposed || proposed->generation <= world.generation) return;
  hosts_.send_world(host, frames_of(*proposed));
}

void JobRunner::perform(const action::VoidCommits& action) {
  server_.put(kCommitScope, kHighWaterKey, cat(action.generation, ".0"));
}

void JobRunner::perform(const action::PlanStands& /*action*/) {
  const WorldDocument& world = loop_.job().world();
  if (context_.spec.legacy_clients) server_.expect(legacy_scope_sizes(world.members));
  context_.observer.on_plan(world);
}

void JobRunner::perform(const action::StopWorkers& action) {
  agent_link::Stop stop;
  stop.incarnation = action.incarnation;
  stop.grace_ms = static_cast<std::uint32_t>(action.grace.count());
  stop.reason = action.reason;
  hosts_.send(action.host, stop);
}

void JobRunner::perform(const action::KillWorkers& action) {
  hosts_.send(action.host, agent_link::Kill{action.incarnation});
  // The agent reports an exit after the worker's output, so a blocked terminal would delay it.
  report_.output().waive();
}

void JobRunner::perform(const action::DescribeWorker& action) {
  hosts_.send(action.host, agent_link::Describe{action.incarnation});
}

void JobRunner::perform(const action::ShutDownAgent& action) {
  // Somebody else waits for the end of an agent that joined by itself.
  const int code = context_.spec.join ? action.exit_code : 0;
  hosts_.send(action.host, agent_link::Shutdown{static_cast<std::uint8_t>(code)});
}

void JobRunner::perform(const action::DropAgent& action) {
  if (hosts_.at(action.host).session) {
    hosts_.at(action.host).session->drop();
  } else {
    agents_.give_up(action.host);
    const event::AgentGone gone{action.host, "was given up before it was connected"};
    if (const auto told = after_takeover(gone)) handle(*told);
  }
}

void JobRunner::perform(const action::Say& action) {
  switch (action.to) {
    case action::Say::To::warning:
      return context_.observer.on_warning(action.text);
    case action::Say::To::notice:
      return context_.observer.on_notice(action.text);
    case action::Say::To::verbose:
      return context_.observer.on_progress(action.text);
  }
}

// elastic::run() had returned on all workers, and no later run has committed anything.
bool JobRunner::work_is_done() const {
  const auto mark = split(server_.get(kCommitScope, kHighWaterKey), '.');
  return mark.size() == 3 && mark[1] == "0";
}

void JobRunner::perform(const action::Finish& action) {
  outcome_.exit_code = action.exit_code;
  outcome_.reason = action.reason;
  outcome_.suspended = action.suspended;
  outcome_.summary = record_.summary(loop_.job(), Clock::now());
  if (action.failure) {
    outcome_.failure = report_.failure(*action.failure);
    if (work_is_done()) {
      outcome_.failure->cause += "; before that, elastic::run() had returned on all workers";
    }
    outcome_.last_activities = report_.last_activities();
    if (!outcome_.last_activities.empty()) {
      outcome_.last_activities += record_.last_recovery_text();
    }
  }

  if (action.exit_code != 0) outcome_.lost_state = report_.lost_state();
  if (context_.state != nullptr) context_.state->forget();
  report_.end();
  answers_.end(action.exit_code, action.reason);
  agents_.close(action.exit_code, [this] { context_.io.stop(); });
}

}  // namespace hvd::driver
