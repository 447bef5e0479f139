#include "tests/driver/elastic_rules.h"

#include <algorithm>

#include "base/text.h"

namespace hvd::driver {
namespace {

constexpr std::size_t kMaxWords = 1'500;

}  // namespace

void ElasticRules::before(const Event& event) {
  if (finish_) wrong("an event after the end");
  before_ = job_.state();
  if (std::holds_alternative<event::Heard>(event)) return;
  in_force_ = job_.world();
  committed_ = {};
  std::visit([this](const auto& value) { note(value); }, event);
}

// ---- what happens ----

void ElasticRules::note(const event::HostsFound& event) {
  found_.clear();
  for (const auto& found : event.hosts) found_.insert(found.host.name);
}

void ElasticRules::note(const event::WorkerReady& event) {
  workers_[event.incarnation].warm = true;
}

void ElasticRules::note(const event::Done& event) {
  workers_[event.incarnation].done = true;
  somebody_is_done_ = true;
}

void ElasticRules::note(const event::Committed& event) {
  const auto published = published_.find(event.generation);
  if (published != published_.end()) committed_ = published->second;
}

void ElasticRules::end_visit(HostIndex host) {
  visits_[host].over = true;
  for (auto& [incarnation, worker] : workers_) {
    if (worker.host == host) worker.ended = true;
  }
}

void ElasticRules::end_worker(Incarnation incarnation) {
  if (const auto worker = workers_.find(incarnation); worker != workers_.end()) {
    worker->second.ended = true;
  }
}

// ---- what is decided ----

void ElasticRules::answered(const Action& action) {
  if (finish_) wrong("something follows after finish");
  std::visit([this](const auto& value) { check(value); }, action);
}

void ElasticRules::check_soundness(const WorldDocument& world) {
  std::string host;
  std::set<std::string> hosts;
  std::set<std::string> places;
  std::set<Incarnation> incarnations;
  for (std::size_t rank = 0; rank < world.members.size(); ++rank) {
    const auto& member = world.members[rank];
    if (member.rank != static_cast<int>(rank)) wrong("ranks are not dense");
    if (!places.insert(member.worker()).second) wrong("two workers in one slot");
    if (!incarnations.insert(member.incarnation).second) wrong("one worker twice in a world");
    if (member.host != host && !hosts.insert(member.host).second) {
      wrong("ranks are not host by host");
    }
    if (member.address.empty()) wrong("a member without an address");
    host = member.host;
    const auto known = workers_.find(member.incarnation);
    if (generation_ == 1) continue;  // they are launched behind it
    if (known == workers_.end()) {
      wrong("a member that was never started");
    } else if (known->second.ended) {
      wrong(cat(member.worker(), " has ended and is in generation ", world.generation));
    } else if (!known->second.warm) {
      wrong(cat(member.worker(), " is in a world and was never ready"));
    }
  }
  const int size = static_cast<int>(world.members.size());
  if (size == 0) wrong("a world of nobody");
  if (size < options_.limits.least && !somebody_is_done_) wrong("a world below the least");
  if (options_.limits.most != 0 && size > options_.limits.most) wrong("a world above the most");
}

std::string ElasticRules::disorder(const WorldDocument& before, const WorldDocument& after) {
  const auto shared = [](const WorldDocument& of, const WorldDocument& with) {
    std::set<Incarnation> others;
    for (const auto& member : with.members) others.insert(member.incarnation);
    std::vector<Incarnation> result;
    for (const auto& member : of.members) {
      if (others.count(member.incarnation) != 0) result.push_back(member.incarnation);
    }
    return result;
  };
  const auto survivors = shared(before, after);
  if (survivors != shared(after, before)) return "survivors changed their order";
  if (!survivors.empty() && after.members.front().incarnation != survivors.front()) {
    return "rank 0 is no survivor";
  }
  return "";
}

void ElasticRules::check(const action::PublishWorld& action) {
  const WorldDocument& world = action.world;
  const auto known = published_.find(world.generation);
  if (known != published_.end() && known->second.state == WorldState::proposed) {
    check_took_force(world, known->second);
    return;
  }
  if (world.generation != ++generation_)
    wrong(cat("generation ", world.generation, " follows ", generation_ - 1));
  check_soundness(world);
  published_[world.generation] = world;
  // Planned against the world in force, which this very step may have changed.
  if (generation_ > 1) {
    const std::string wrong_order = disorder(in_force_, world);
    if (!wrong_order.empty() &&
        (committed_.members.empty() || !disorder(committed_, world).empty())) {
      wrong(wrong_order);
    }
  }
  if (world.state == WorldState::proposed && somebody_is_done_ && before_ == ElasticState::ending) {
    wrong("a world is proposed while the job ends");
  }
}

// A commit took it into force: as it was proposed, and once.
void ElasticRules::check_took_force(const WorldDocument& world, WorldDocument& proposed) {
  if (committed_.generation != world.generation) wrong("nobody has committed what takes force");
  if (world.state != WorldState::effective) wrong("a world was proposed twice");
  proposed.state = WorldState::effective;
  if (!(world == proposed)) wrong("another world takes force than was proposed");
  if (world.generation <= in_force_.generation) wrong("an older world takes force");
}

void ElasticRules::check(const action::StartAgent& action) {
  if (!visits_.emplace(action.host, Visit()).second) wrong("an agent was started twice");
  const std::string& name = job_.hosts()[action.host].name;
  if (found_.count(name) == 0) wrong(cat("host ", name, " was visited and is not found"));
  for (const auto& [host, visit] : visits_) {
    if (host != action.host && job_.hosts()[host].name == name && !visit.over) {
      wrong(cat("host ", name, " is visited twice at once"));
    }
  }
}

void ElasticRules::check(const action::Launch& action) {
  const WorldMember& member = action.member;
  const Visit& visit = visits_[action.host];
  if (!visit.ready || visit.over || visit.told_to_go || visit.address.empty()) {
    wrong(cat(member.worker(), " was launched on a host that is not ready"));
  }
  if (visit.address != member.address) wrong("a worker was launched with another address");
  if (found_.count(member.host) == 0) wrong("a worker was launched on a host that is not found");
  if (before_ >= ElasticState::ending) wrong("a worker was launched while the job ends");
  for (const auto& [incarnation, other] : workers_) {
    if (!other.ended && other.place == member.worker()) {
      wrong(cat("two workers in ", member.worker(), " at once"));
    }
  }
  Worker worker{action.host, member.worker(), false, member.rank >= 0, false};
  if (!workers_.emplace(member.incarnation, worker).second) wrong("an incarnation twice");
  if (generation_ == 0) wrong("a worker was launched before the first world was published");
}

void ElasticRules::check(const action::ShutDownAgent& action) {
  visits_[action.host].told_to_go = true;
  for (const auto& [incarnation, worker] : workers_) {
    if (worker.host == action.host && !worker.ended) {
      wrong("an agent was shut down before its workers had ended");
    }
  }
}

void ElasticRules::check(const action::DropAgent& action) {
  visits_[action.host].told_to_go = true;
  for (auto& [incarnation, worker] : workers_) {
    if (worker.host == action.host) worker.ended = true;
  }
}

// ---- always ----

void ElasticRules::after(const Event& event, TimePoint now, bool in_detail) {
  const ElasticState state = job_.state();
  if (finished() != (state == ElasticState::finished)) wrong("finished and not finished");
  if (finished()) return;
  if (std::holds_alternative<event::Tick>(event) && job_.next_deadline() <= now) {
    wrong("a deadline is over and nothing was done");
  }
  if (!in_detail) return;
  const std::string waits = job_.waiting_for(now);
  if (waits.empty()) wrong(cat("waits for nothing while ", name_of(state)));
  if (waits.size() > kMaxWords) wrong("says too much of what it waits for");
  // Only a running program may take for ever.
  const bool may_wait = state == ElasticState::training || state == ElasticState::ending;
  if (job_.next_deadline() == kNever && !may_wait) {
    wrong(cat("no deadline while ", name_of(state)));
  }
}

}  // namespace hvd::driver
