#include "tests/driver/job/elastic_rules.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace hvd::driver {
namespace {

constexpr std::size_t kMaxWords = 1'500;
constexpr std::chrono::milliseconds kLate{1'000};  // more than the driver is ever held up

}  // namespace

void ElasticRules::before(const Event& event, TimePoint now) {
  if (finish_) wrong("an event after the end");
  if (std::holds_alternative<event::TakenOver>(event)) {
    hold_ups_.took_over(now);
    begin_search();
  } else {
    hold_ups_.look(now);
  }
  answers_a_tick_ = std::holds_alternative<event::Tick>(event);
  before_ = job_.state();
  if (const auto* const heard = std::get_if<event::Heard>(&event)) {
    sought_.erase(heard->host);
    return;
  }
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
  workers_[event.incarnation].warm = workers_[event.incarnation].is_ready = true;
}

// Messages of a host that was given up do not count, nor those of a worker that is told to end.
// They only show that the program uses hvd, unless all begin again as if none had.
void ElasticRules::note(const event::Initialised& event) {
  const bool is_member = std::any_of(
      in_force_.members.begin(), in_force_.members.end(),
      [&](const WorldMember& member) { return member.incarnation == event.incarnation; });
  if (!group_stops_) anybody_joined_ = true;
  if (workers_[event.incarnation].told_to_stop) return;
  if (is_member && !sessions_[event.host].told_to_go) a_member_joined_ = true;
}

void ElasticRules::note(const event::Done& event) {
  workers_[event.incarnation].done = true;
  somebody_is_done_ = true;
}

void ElasticRules::note(const event::Committed& event) {
  const auto published = published_.find(event.generation);
  if (published == published_.end()) return;
  committed_ = published->second;
  // All members of the world that ended with this commit.
  if (committed_.state != WorldState::proposed || committed_.generation <= in_force_.generation) {
    return;
  }
  for (const auto& member : in_force_.members) workers_[member.incarnation].has_state = true;
}

void ElasticRules::note(const event::WorldEntered& event) {
  if (event.generation != in_force_.generation) return;
  const bool is_whole =
      std::all_of(in_force_.members.begin(), in_force_.members.end(), [&](const auto& member) {
        const Worker& one = workers_[member.incarnation];
        return one.done || !(one.ended || one.told_to_stop);
      });
  if (!is_whole) return;
  for (auto& [incarnation, worker] : workers_) worker.recovered_from = worker.ended;
}

// Only a world with a member that has called hvd::init comes to a commit.
void ElasticRules::note(const event::SuspendRequested& /*event*/) {
  const bool can_commit =
      a_member_joined_ && (before_ == JobState::running || before_ == JobState::waiting);
  suspension_.must_stop = suspension_.is_asked_for || !(can_commit || suspension_.is_wanted);
  suspension_.may_be_stopped = suspension_.may_be_stopped || suspension_.must_stop;
  suspension_.is_wanted = suspension_.is_asked_for = true;
}

void ElasticRules::note(const event::DrainRequested& event) {
  requests_.open = event;
  requests_.may_be_granted =
      event.undo ? requests_.drained.contains(event.host_name)
                 : found_.contains(event.host_name) ||
                       std::any_of(sessions_.begin(), sessions_.end(), [&](const auto& session) {
                         return !session.second.over &&
                                job_.hosts()[session.first].name == event.host_name;
                       });
}

void ElasticRules::note(const event::ScaleRequested& event) {
  const Limits& limits = options_.elastic.limits;
  requests_.open = event;
  requests_.may_be_granted =
      event.size >= limits.least && (limits.most == 0 || event.size <= limits.most);
}

void ElasticRules::begin_search() {
  for (const auto& [host, session] : sessions_) {
    if (session.ready && !session.over && !session.dropped) sought_.insert(host);
  }
  sought_since_ = std::min(sought_since_, hold_ups_.own());
}

void ElasticRules::end_session(HostIndex host) {
  sought_.erase(host);
  sessions_[host].over = true;
  for (auto& [incarnation, worker] : workers_) {
    if (worker.host == host) worker.ended = true;
  }
}

void ElasticRules::note(const event::Exited& event) {
  if (event.exit_code == 0 && event.signal_number == 0) {
    end_worker(event.incarnation);
  } else {
    fail_worker(event.incarnation);
  }
}

bool ElasticRules::may_be_set_aside(const std::string& place) const {
  const BudgetOptions& budget = options_.elastic.budget;
  const auto failures = failures_.find(place);
  if (failures == failures_.end()) return false;
  if (scaled_to() != 0 && !failed_since_scaled_.contains(place)) return false;
  return budget.policy == FailurePolicy::host || failures->second > budget.restarts;
}

void ElasticRules::fail_worker(Incarnation incarnation) {
  const auto worker = workers_.find(incarnation);
  if (worker != workers_.end() && !worker->second.told_to_stop) {
    ++failures_[worker->second.place];
    failed_since_scaled_.insert(worker->second.place);
  }
  end_worker(incarnation);
}

void ElasticRules::end_worker(Incarnation incarnation) {
  if (const auto worker = workers_.find(incarnation); worker != workers_.end()) {
    worker->second.ended = true;
  }
}

// ---- what is decided ----

void ElasticRules::answered(const Action& action) {
  if (finish_) wrong("something follows after finish");
  if (answers_a_tick_ && hold_ups_.may_lie_unread() && !is_said_of_a_hold_up(action)) {
    wrong("judged by time before what was said during a hold-up was read");
  }
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
    // They are launched behind it, at the beginning and if all ended before a member had joined.
    if (generation_ == 1 || (!a_member_joined_ && known == workers_.end())) continue;
    const bool takes_force = world.state == WorldState::effective;
    if (takes_force && known != workers_.end() && known->second.is_ready) a_member_joined_ = true;
    if (known == workers_.end()) {
      wrong("a member that was never started");
    } else if (known->second.ended) {
      wrong(cat(member.worker(), " has ended and is in generation ", world.generation));
    } else if (!known->second.warm) {
      wrong(cat(member.worker(), " is in a world and was never ready"));
    }
  }
  check_requests(world);
  const int size = static_cast<int>(world.members.size());
  if (size == 0) wrong("a world of nobody");
  if (size < options_.elastic.limits.least && !somebody_is_done_ && !suspension_.is_wanted)
    wrong("a world below the least");
  const auto before = static_cast<int>(in_force_.members.size());
  if (options_.elastic.limits.most == 0 || size <= std::max(options_.elastic.limits.most, before))
    return;
  // One more may be there for a moment: to hand the state over.
  const bool hands_over =
      std::any_of(world.members.begin(), world.members.end(), [&](const WorldMember& member) {
        return job_.workers()[job_.index_of(member.incarnation)].is_to_leave();
      });
  if (!hands_over) wrong("a world above the most");
}

// A new member of a world gets the state from members of the one before.
void ElasticRules::check_state_goes_on(const WorldDocument& world) {
  if (world.generation == 1 || somebody_is_done_) return;
  const auto has_state = [&](const WorldMember& member) {
    const Worker& one = workers_[member.incarnation];
    return !one.ended && one.has_state && !one.told_to_stop;
  };
  // At a commit all members of the world that it ends have the state.
  const bool planned = world.state == WorldState::proposed;
  const WorldDocument& before = committed_.members.empty() ? in_force_ : committed_;
  const auto& members = world.members;
  if (planned) {
    const bool goes_on = std::any_of(members.begin(), members.end(), [&](const WorldMember& one) {
      return std::any_of(
          before.members.begin(), before.members.end(),
          [&](const WorldMember& other) { return other.incarnation == one.incarnation; });
    });
    if (!goes_on) wrong(cat("nobody hands the state over to generation ", world.generation));
    return;
  }
  const bool is_left = std::any_of(before.members.begin(), before.members.end(), has_state);
  if (is_left && !std::any_of(members.begin(), members.end(), has_state)) {
    wrong(cat("nobody in generation ", world.generation, " may have the state"));
  }
}

void ElasticRules::check(const action::StopWorkers& action) {
  if (action.incarnation != kEveryWorker) workers_[action.incarnation].told_to_stop = true;
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
  if (suspension_.is_last_in_force) wrong("a world follows the last one");
  if (world.last && !suspension_.is_wanted) wrong("a last world, and nobody has asked for it");
  suspension_.is_last_in_force = world.last && world.state == WorldState::effective;
  const auto known = published_.find(world.generation);
  if (known != published_.end() && known->second.state == WorldState::proposed) {
    check_took_force(world, known->second);
    return;
  }
  if (world.generation != ++generation_)
    wrong(cat("generation ", world.generation, " follows ", generation_ - 1));
  check_soundness(world);
  check_state_goes_on(world);
  published_[world.generation] = world;
  // Planned against the world in force, which this very step may have changed.
  if (generation_ > 1) {
    const std::string wrong_order = disorder(in_force_, world);
    if (!wrong_order.empty() &&
        (committed_.members.empty() || !disorder(committed_, world).empty())) {
      wrong(wrong_order);
    }
  }
  // What follows in this step is planned against it, and no longer against a commit before it.
  if (world.state == WorldState::effective) {
    in_force_ = world;
    committed_ = {};
  }
  if (world.state == WorldState::proposed && somebody_is_done_ && before_ == JobState::ending) {
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
  if (suspension_.is_wanted) wrong("an agent was started while the job is suspended");
  if (!sessions_.emplace(action.host, HostSession()).second) wrong("an agent was started twice");
  const std::string& name = job_.hosts()[action.host].name;
  if (found_.count(name) == 0) wrong(cat("host ", name, " has a session and was not found"));
  for (const auto& [host, session] : sessions_) {
    if (host != action.host && job_.hosts()[host].name == name && !session.over) {
      wrong(cat("host ", name, " has two sessions at once"));
    }
  }
}

void ElasticRules::check(const action::Launch& action) {
  const WorldMember& member = action.member;
  if (suspension_.is_wanted)
    wrong(cat(member.worker(), " was launched while the job is suspended"));
  const HostSession& session = sessions_[action.host];
  if (!session.ready || session.over || session.told_to_go || session.address.empty()) {
    wrong(cat(member.worker(), " was launched on a host that is not ready"));
  }
  if (session.address != member.address) wrong("a worker was launched with another address");
  if (found_.count(member.host) == 0) wrong("a worker was launched on a host that is not found");
  if (requests_.drained.contains(member.host)) {
    wrong(cat(member.worker(), " was launched on a drained host"));
  }
  if (before_ >= JobState::ending) wrong("a worker was launched while the job ends");
  for (const auto& [incarnation, other] : workers_) {
    if (!other.ended && other.place == member.worker()) {
      wrong(cat("two workers in ", member.worker(), " at once"));
    }
  }
  if (!anybody_joined_) check_it_begins_with_others(member);
  Worker worker{action.host, member.worker(), false, member.rank >= 0};
  worker.begun_with = generation_;
  worker.has_state = member.rank >= 0;  // it begins with what the first members make
  if (!workers_.emplace(member.incarnation, worker).second) wrong("an incarnation twice");
  if (generation_ == 0) wrong("a worker was launched before the first world was published");
}

// Programs without hvd: nobody can tell them of another world, and none of them can join one.
void ElasticRules::check_it_begins_with_others(const WorldMember& member) {
  if (member.rank < 0 && options_.elastic.limits.spares == 0) {
    wrong(cat(member.worker(), " was launched without a rank, and nobody has called hvd::init()"));
  }
  for (const auto& [incarnation, other] : workers_) {
    if (!other.ended && other.begun_with != generation_ && !sessions_[other.host].over) {
      wrong(cat(member.worker(), " was launched beside ", other.place, " of an older world"));
    }
  }
}

void ElasticRules::check(const action::KillWorkers& action) {
  if (action.incarnation != kEveryWorker) workers_[action.incarnation].told_to_stop = true;
}

void ElasticRules::check(const action::Say& action) {
  if (action.text.find("all workers are started again") != std::string::npos) group_stops_ = true;
  if (action.text.find("all workers were told to go") != std::string::npos) {
    suspension_.is_wanted = true;
  }
}

void ElasticRules::check(const action::ShutDownAgent& action) {
  sessions_[action.host].told_to_go = true;
  for (const auto& [incarnation, worker] : workers_) {
    if (worker.host == action.host && !worker.ended) {
      wrong("an agent was shut down before its workers had ended");
    }
  }
}

void ElasticRules::check(const action::DropAgent& action) {
  sessions_[action.host].told_to_go = sessions_[action.host].dropped = true;
  sought_.erase(action.host);
  for (auto& [incarnation, worker] : workers_) {
    if (worker.host == action.host) worker.ended = true;
  }
}

// ---- requests ----

void ElasticRules::check(const action::Answer& action) {
  if (!requests_.open) return wrong("an answer, and nobody has asked");
  const Event request = *std::exchange(requests_.open, std::nullopt);
  if (!action.accepted) return;
  const bool may_be_asked = before_ == JobState::running || before_ == JobState::waiting;
  if (!requests_.may_be_granted || !may_be_asked || suspension_.is_wanted) {
    wrong("a request was granted that cannot be");
  }
  if (const auto* const scale = std::get_if<event::ScaleRequested>(&request)) {
    requests_.size = scale->size;
    failed_since_scaled_.clear();
    return;
  }
  const auto& drain = std::get<event::DrainRequested>(request);
  if (drain.undo) {
    requests_.drained.erase(drain.host_name);
  } else {
    requests_.drained.insert(drain.host_name);
  }
}

// Of a world that is made now. After a loss it has all that are left, until the next commit.
void ElasticRules::check_requests(const WorldDocument& world) {
  int staying = 0;
  for (const auto& member : world.members) {
    const JobWorker& one = job_.workers()[job_.index_of(member.incarnation)];
    if (!one.is_to_leave()) ++staying;
    if (!requests_.drained.contains(member.host) || has_member(in_force_, member.incarnation) ||
        has_member(committed_, member.incarnation)) {
      continue;
    }
    const bool was_proposed = std::any_of(
        published_.begin(), published_.end(),
        [&](const auto& published) { return has_member(published.second, member.incarnation); });
    if (!was_proposed) wrong(cat(member.worker(), " becomes a member on a drained host"));
  }
  if (requests_.size == 0 || world.last || somebody_is_done_) return;
  if (world.state == WorldState::proposed && staying > requests_.size) {
    wrong(cat("a world for ", staying, " workers, and the job was scaled to ", requests_.size));
  }
}

void ElasticRules::check_request_was_answered() {
  if (std::exchange(requests_.open, std::nullopt)) wrong("a request has no answer");
}

// ---- the end ----

void ElasticRules::check(const action::Finish& action) {
  finish_ = action;
  // The first of many that failed in the same way may have been replaced before the others failed.
  const bool is_common = action.reason.find("failed this way") != std::string::npos;
  if (action.failure && !is_common && workers_[action.failure->incarnation].recovered_from) {
    wrong(cat("a failure ends the job from which it had recovered: ", action.reason));
  }
  const bool is_suspended = action.exit_code == kSuspended;
  if (is_suspended && !suspension_.is_last_in_force)
    wrong("suspended, and no last world took force");
  if (suspension_.is_last_in_force && !is_suspended && !suspension_.may_be_stopped) {
    wrong(cat("a last world took force, and the job ends with ", action.exit_code));
  }
}

void ElasticRules::check_suspension(TimePoint clock, bool in_detail) {
  const TimePoint now = hold_ups_.own();
  const JobState state = job_.state();
  if (!suspension_.is_wanted) {
    if (sought_.empty()) sought_since_ = kNever;
    return;
  }
  if (std::exchange(suspension_.must_stop, false) && state < JobState::stopping) {
    wrong("it was asked to stop and does not");
  }
  if (!std::exchange(suspension_.began, true)) {
    suspension_.by = now + options_.elastic.leave_grace + options_.stop_margin;
  }
  // The commit may have been made, and those who can tell of it were not found yet.
  if (!sought_.empty()) return;
  if (sought_since_ != kNever) {
    suspension_.by += now - std::exchange(sought_since_, kNever) + options_.pace;
  }
  if (now >= suspension_.by) suspension_.may_be_stopped = true;
  if (state != JobState::running && state != JobState::waiting) return;

  // A suspension that is late by more than a moment was not stopped at its deadline.
  if (now > suspension_.by + kLate) wrong("it came to no commit in time, and is not stopped");
  const auto newest = published_.rbegin();
  const auto& members = job_.world().members;
  const bool is_any_left = std::any_of(
      members.begin(), members.end(),
      [this](const WorldMember& member) { return !workers_[member.incarnation].ended; });
  if (state == JobState::running && is_any_left &&
      (newest == published_.rend() || !newest->second.last)) {
    wrong("it is to be suspended, and no last world is proposed");
  }
  if (state == JobState::running && in_detail &&
      job_.waiting_for(clock).find("a commit, at which the job ends") == std::string::npos) {
    wrong("it does not say that it waits for its last commit");
  }
}

// ---- always ----

void ElasticRules::after(const Event& event, TimePoint now, bool in_detail) {
  const JobState state = job_.state();
  check_suspension(now, in_detail);
  check_request_was_answered();
  if (finished() != (state == JobState::finished)) wrong("finished and not finished");
  if (finished()) return;
  if (std::holds_alternative<event::Tick>(event) && job_.next_deadline() <= now) {
    wrong("a deadline is over and nothing was done");
  }
  if (!in_detail) return;
  const std::string waits = job_.waiting_for(now);
  if (waits.empty()) wrong(cat("waits for nothing while ", name_of(state)));
  if (waits.size() > kMaxWords) wrong("says too much of what it waits for");
  // Only a running program may take for ever.
  const bool may_wait = state == JobState::running || state == JobState::ending;
  if (job_.next_deadline() == kNever && !may_wait) {
    wrong(cat("no deadline while ", name_of(state)));
  }
}

}  // namespace hvd::driver
