#include "tests/worker/elastic/simulated_workers.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace hvd {

using driver::HostIndex;
using std::chrono::microseconds;
using std::chrono::milliseconds;
namespace event = driver::event;

namespace {

constexpr microseconds kWire{1'500};
constexpr microseconds kSlowWire{40'000};
constexpr milliseconds kStart{60};
constexpr milliseconds kSlowStart{1'500};
constexpr milliseconds kRendezvousTimeout{100};

}  // namespace

// ---- processes ----

void SimulatedWorkers::start(Incarnation incarnation, HostIndex host, bool is_member) {
  while (processes_.size() < incarnation) processes_.push_back(std::make_unique<Process>());
  Process& process = of(incarnation);
  process.incarnation = incarnation;
  process.host = host;
  process.member = is_member;
  process.runs = true;
  process.driver_is_gone = !surroundings_.has_driver(host);
  process.stays = dice_.one_in(climate_.stays);
  const auto lacks = static_cast<Incarnation>(climate_.lacks_frozen);
  process.has_frozen = lacks == 0 || incarnation % lacks != 0;
  if (climate_.plain) {
    run_plain(process);
    return;
  }
  process.follower.emplace(incarnation);
  take_from_agent(process);
  if (proposed_) hear(process, *proposed_);
  if (effective_) hear(process, *effective_);
  const milliseconds start = dice_.one_in(climate_.slow_start) ? kSlowStart : kStart;
  then(process, dice_.up_to(static_cast<int>(start.count())), &SimulatedWorkers::begin);
}

void SimulatedWorkers::run_plain(Process& process) {
  process.begun_with = effective_ ? effective_->generation : 0;
  if (plain_ends_) end_plain(process);
}

void SimulatedWorkers::end_plain(Process& process) {
  deliver(process.incarnation, std::chrono::milliseconds(dice_.below(100)),
          [this](Process& one) { die(one.incarnation, 0, 0, true); });
}

void SimulatedWorkers::begin(Process& process) {
  process.joined = true;
  surroundings_.tell(process.host, event::Initialised{process.host, process.incarnation});
  if (!process.member) {
    surroundings_.tell(process.host, event::WorkerReady{process.host, process.incarnation});
  }
  if (!process.runs) return;
  process.phase = Phase::between;
  go_on(process);
}

void SimulatedWorkers::die(Incarnation incarnation, int exit_code, int signal, bool in_peace) {
  Process& process = of(incarnation);
  if (!std::exchange(process.runs, false)) return;
  process.fell = !in_peace;
  tell(process, signal != 0 ? "dies" : "exits");
  process.ended = true;
  ++process.turn;
  process.pending.clear();
  const bool leaves_state = leaves_with_agent(process, signal == 0 && exit_code == 0);
  const bool in_order = process.phase == Phase::done;
  for (auto& [generation, group] : groups_) close(generation, incarnation, in_order);
  if (climate_.plain && !in_peace) fail_the_others_of(process);
  surroundings_.tell(
      process.host,
      event::Exited{process.host, incarnation, signal == 0 ? exit_code : 0, signal, false, false, 0,
                    leaves_state ? to_text(process.states.newest()) : std::string()});
}

bool SimulatedWorkers::leaves_with_agent(const Process& process, bool in_peace) {
  if (!climate_.agents_keep_state || !climate_.copies || climate_.plain) return false;
  if (in_peace || process.states.newest().none()) return false;
  agent_memory_[process.host].push_back(
      {process.states.newest(), whole_state(process), process.sizes});
  return true;
}

std::string SimulatedWorkers::kept_by_agent(HostIndex host) const {
  CommitId newest;
  if (const auto found = agent_memory_.find(host); found != agent_memory_.end()) {
    for (const Kept& kept : found->second) newest = std::max(newest, kept.id);
  }
  return newest.none() ? std::string() : to_text(newest);
}

void SimulatedWorkers::take_from_agent(Process& process) {
  auto& memory = agent_memory_[process.host];
  if (memory.empty()) return;
  const auto newest = std::max_element(memory.begin(), memory.end(),
                                       [](const auto& a, const auto& b) { return a.id < b.id; });
  const Kept kept = *newest;
  memory.erase(newest);
  process.kept[process.states.begin_to_keep()] = kept.state;
  process.states.kept(kept.id);
  process.sizes = kept.sizes;
  process.ever_whole = kept.id;
}

// The workers of a plain program notice the loss of one of them, and cannot go on.
void SimulatedWorkers::fail_the_others_of(const Process& lost) {
  for (const auto& other : processes_) {
    if (!other->runs || other->begun_with != lost.begun_with || dice_.one_in(4)) continue;
    deliver(other->incarnation, std::chrono::milliseconds(1 + dice_.below(40)),
            [this](Process& one) { die(one.incarnation, 1, 0, true); });
  }
}

// A worker that died with the newest state would have been an heir.
void SimulatedWorkers::check_heirs(Incarnation incarnation) {
  if (incarnation > processes_.size()) return;
  const Process& process = of(incarnation);
  const auto newest = history_.newest();
  if (newest.none() || process.ever_whole < newest || surroundings_.given_up(incarnation)) return;
  const bool has_heirs = std::any_of(processes_.begin(), processes_.end(), [&](const auto& other) {
    const Process& one = *other;
    if (one.incarnation == incarnation || one.incarnation == 0) return false;
    const bool goes_on = one.runs && !one.leaving && !one.follower->is_out();
    const bool trains = one.group >= process.group && one.phase > Phase::receiving;
    return one.finished != 0 || ((goes_on || one.fell) && (one.ever_whole >= newest || trains));
  });
  if (has_heirs) return;
  history_.wrong(
      cat("the last worker with the committed state was asked to go: ", text(incarnation)));
}

bool SimulatedWorkers::leave_early(Incarnation incarnation) {
  Process& process = of(incarnation);
  const bool is_over = process.phase >= Phase::finishing;
  if (!process.runs || !process.joined || process.leaving || process.stopped || is_over)
    return false;
  tell(process, "leaves early");
  ++process.turn;
  process.pending.clear();
  process.stopped = true;
  for (auto& [generation, group] : groups_) close(generation, incarnation, false);
  surroundings_.tell(process.host, event::WorkerLeft{process.host, incarnation, ""});
  return true;
}

void SimulatedWorkers::thawed(HostIndex host) {
  for (auto& process : processes_) {
    if (process->host != host || !process->runs || process->stopped) continue;
    for (auto& work : std::exchange(process->pending, {})) {
      if (process->runs) work();
    }
  }
}

void SimulatedWorkers::hear(const WorldDocument& world) {
  (world.state == WorldState::effective ? effective_ : proposed_) = world;
  if (climate_.plain) return;
  const auto told = std::make_shared<const WorldDocument>(world);
  for (const auto& process : processes_) {
    // An agent without a driver hears the newest worlds when it has found it.
    if (!process->runs || !surroundings_.has_driver(process->host)) continue;
    const Duration reached = surroundings_.reaches_driver(process->host) - time_.now();
    const bool is_cut = reached.count() > 0;
    deliver(process->incarnation, reached + wire_time(),
            [this, told, is_cut, driver = surroundings_.driver()](Process& one) {
              if (!is_cut || driver == surroundings_.driver()) hear(one, *told);
            });
  }
}

// ---- one driver after the other ----

void SimulatedWorkers::lost_driver(HostIndex host) {
  for (const auto& process : processes_) {
    if (!process->runs || process->host != host) continue;
    deliver(process->incarnation, wire_time(), [this](Process& one) {
      if (!surroundings_.has_driver(one.host)) say_driver_is_gone(one, true);
      // Else it hears both, that one is gone and that another has come.
      if (!one.known_mark.none()) send_mark(one, one.known_mark);
    });
  }
}

void SimulatedWorkers::driver_came(CommitId mark, const WorldDocument& effective) {
  mark_ = mark;
  ++mark_version_;
  effective_ = effective;
}

void SimulatedWorkers::found_driver(HostIndex host, const WorldDocument& effective,
                                    const std::optional<WorldDocument>& proposed) {
  if (const auto kept = agent_marks_.find(host); kept != agent_marks_.end()) {
    raise_mark(kept->second);
  }
  if (climate_.plain) return;
  for (const auto& process : processes_) {
    if (!process->runs || process->host != host) continue;
    deliver(process->incarnation, wire_time(),
            [this, effective, proposed, driver = surroundings_.driver()](Process& one) {
              if (surroundings_.has_driver(one.host)) say_driver_is_gone(one, false);
              if (!effective.members.empty()) hear(one, effective);
              if (one.runs && proposed) hear(one, *proposed);
            });
  }
}

void SimulatedWorkers::say_driver_is_gone(Process& process, bool gone) {
  process.driver_is_gone = gone;
}

void SimulatedWorkers::keep_mark(Process& process, CommitId id) {
  process.known_mark = std::max(process.known_mark, id);
  if (process.driver_is_gone) send_mark(process, id);
}

void SimulatedWorkers::send_mark(const Process& process, CommitId id) {
  if (surroundings_.has_driver(process.host)) return raise_mark(id);
  CommitId& kept = agent_marks_[process.host];
  kept = std::max(kept, id);
}

void SimulatedWorkers::raise_mark(CommitId id) {
  if (!(mark_ < id)) return;
  mark_ = id;
  ++mark_version_;
}

CommitId SimulatedWorkers::mark_anywhere() const {
  CommitId mark = mark_;
  for (const auto& [host, kept] : agent_marks_) mark = std::max(mark, kept);
  for (const auto& process : processes_) {
    if (process->runs) mark = std::max(mark, process->known_mark);
  }
  return mark;
}

void SimulatedWorkers::void_commits(std::uint64_t generation) {
  mark_ = {generation, 0};
  ++mark_version_;
  history_.void_commits();
}

void SimulatedWorkers::hear(Process& process, const WorldDocument& world) {
  const bool ends = process.follower->hear(world);
  switch (process.phase) {
    case Phase::between:
      go_on(process);
      break;
    case Phase::starting:
    case Phase::evaluating:
    case Phase::done:
      break;
    case Phase::finishing:
    case Phase::marking_end:
    case Phase::shutting_down:
      if (ends) lost_a_peer(process);
      break;
    case Phase::mutating:
      if (!ends) break;
      if (dice_.one_in(climate_.mutate_is_interrupted)) {
        leave_group(process);
        go_on(process);
        break;
      }
      [[fallthrough]];
    case Phase::computing:
    case Phase::copying:
    case Phase::saving:
      process.broken = process.broken || ends;  // the next call of ours tells
      break;
    case Phase::suspending:
      if (ends) leave_at_last_commit(process);
      break;
    default:
      if (!ends) break;
      leave_group(process);
      go_on(process);
  }
}

void SimulatedWorkers::calm() {
  climate_.dies_at_message = 0;
  climate_.answer_of_mark_is_lost = 0;
  climate_.mutate_is_interrupted = 0;
  climate_.slow_start = 0;
  climate_.save_fails = 0;
}

void SimulatedWorkers::finish() {
  if (climate_.plain) {
    plain_ends_ = true;
    for (const auto& process : processes_) {
      if (process->runs) end_plain(*process);
    }
    return;
  }
  if (climate_.steps != 0) return;  // it will end by itself
  int furthest = 0;
  for (const auto& process : processes_) {
    if (process->runs && process->live != TrainingHistory::kNothing) {
      furthest = std::max(furthest, history_.steps(process->live));
    }
  }
  climate_.steps = furthest + 3;
}

bool SimulatedWorkers::runs(Incarnation incarnation) const {
  return incarnation <= processes_.size() && of(incarnation).runs;
}

bool SimulatedWorkers::trains_in(Incarnation incarnation, std::uint64_t generation) const {
  return runs(incarnation) && of(incarnation).group == generation &&
         of(incarnation).phase > Phase::receiving;
}

std::vector<SimulatedWorkers::Incarnation> SimulatedWorkers::running() const {
  std::vector<Incarnation> running;
  for (const auto& process : processes_) {
    if (process->runs) running.push_back(process->incarnation);
  }
  return running;
}

std::string SimulatedWorkers::text(Incarnation incarnation) const {
  if (incarnation > processes_.size()) return cat("worker ", incarnation, " was never started");
  const Process& one = of(incarnation);
  return cat("worker ", incarnation, one.runs ? "" : " does not run", " in phase ",
             static_cast<int>(one.phase), " of generation ", one.group, " at op ", one.op,
             ", holds ", to_text(one.states.newest()), one.broken ? ", broken" : "");
}

void SimulatedWorkers::tell(const Process& process, const char* what) const {
  if (!history_.tells()) return;
  history_.tell(cat(time_.passed().count(), " ms: ", text(process.incarnation), ": ", what));
}

// ---- wires ----

Duration SimulatedWorkers::wire_time() {
  return some(static_cast<int>((dice_.one_in(climate_.slow_message) ? kSlowWire : kWire).count()));
}

void SimulatedWorkers::deliver(Incarnation to, Duration after, std::function<void(Process&)> work) {
  time_.after(after, [this, to, work = std::move(work)] {
    Process& process = of(to);
    if (!process.runs) return;
    if (process.stopped || surroundings_.frozen(process.host)) {
      process.pending.push_back([this, to, work] { work(of(to)); });
    } else {
      work(process);
    }
  });
}

void SimulatedWorkers::then(Process& process, Duration after, Work work) {
  deliver(process.incarnation, after, [this, turn = process.turn, work](Process& one) {
    if (one.turn == turn) (this->*work)(one);
  });
}

bool SimulatedWorkers::message(Process& process) {
  ++messages_;
  const bool now =
      messages_ == climate_.dies_at ||
      (climate_.dies_again_after != 0 && messages_ == climate_.dies_at + climate_.dies_again_after);
  if (now || dice_.one_in(climate_.dies_at_message)) die(process.incarnation, 0, 9);
  return process.runs;
}

void SimulatedWorkers::say_in_collective(Process& process, Phase phase, Said said) {
  process.phase = phase;
  if (process.broken) {
    lost_a_peer(process);
    return;
  }
  if (!message(process)) return;
  const std::uint64_t generation = process.group;
  Group& group = groups_[generation];
  while (group.first_op + group.ops.size() <= process.op) {
    group.ops.emplace_back();
    group.ops.back().said.resize(group.members.size());
  }
  Op& op = group.ops[process.op - group.first_op];
  said.said = true;
  op.said[static_cast<std::size_t>(process.rank)] = said;
  if (++op.count == group.members.size()) {
    TimePoint heard = time_.now();
    for (const Incarnation member : group.members) {
      heard = std::max(heard, surroundings_.reaches_others(of(member).host));
    }
    for (const Incarnation member : group.members) {
      deliver(member, heard - time_.now() + wire_time(),
              [this, generation, number = process.op](Process& one) {
                complete(one.incarnation, generation, number);
              });
    }
  }
  message(process);
}

void SimulatedWorkers::complete(Incarnation incarnation, std::uint64_t generation,
                                std::size_t number) {
  Process& process = of(incarnation);
  if (process.group != generation || process.op != number) return;
  ++process.op;
  Group& group = groups_[generation];
  // All have said it, and no worker is further than one behind.
  while (group.first_op + 2 < number) {
    group.ops.pop_front();
    ++group.first_op;
  }
  const Op op = group.ops[number - group.first_op];
  if (message(process)) completed(process, op);
}

void SimulatedWorkers::leave_group(Process& process) {
  tell(process, "leaves its world");
  const std::uint64_t generation = std::exchange(process.group, 0);
  ++process.turn;
  process.phase = Phase::between;
  process.broken = false;
  process.chunks = 0;
  process.answer.reset();
  process.last.reset();
  process.is_saved.reset();
  process.mark.reset();
  process.mark_version.reset();
  if (generation != 0) close(generation, process.incarnation, false);
}

// Its peers in this world see their sockets to it close, after what it had sent.
void SimulatedWorkers::close(std::uint64_t generation, Incarnation incarnation, bool in_order) {
  Group& group = groups_[generation];
  const auto place = std::find(group.members.begin(), group.members.end(), incarnation);
  if (place == group.members.end()) return;
  const auto rank = static_cast<std::size_t>(place - group.members.begin());
  if (group.gone[rank]) return;
  group.gone[rank] = true;
  if (in_order) return;
  const TimePoint here = surroundings_.reaches_others(of(incarnation).host);
  for (const Incarnation member : group.members) {
    if (member == incarnation || !of(member).runs) continue;
    const TimePoint seen = std::max(here, surroundings_.reaches_others(of(member).host));
    deliver(member, seen - time_.now() + kWire + wire_time(), [this, generation](Process& one) {
      if (one.group == generation) lost_a_peer(one);
    });
  }
}

void SimulatedWorkers::lost_a_peer(Process& process) {
  switch (process.phase) {
    case Phase::computing:
    case Phase::mutating:
    case Phase::copying:
    case Phase::saving:
      process.broken = true;
      break;
    case Phase::starting:
    case Phase::between:
    case Phase::evaluating:
    case Phase::done:
      break;
    case Phase::suspending:
      leave_at_last_commit(process);
      break;
    case Phase::finishing:
    case Phase::marking_end:
    case Phase::shutting_down:
      if (has_finished(process.group)) {
        end_well(process);
        break;
      }
      [[fallthrough]];
    default:
      leave_group(process);
      go_on(process);
  }
}

// A request is done or not if the process or the driver dies meanwhile, and its answer may be lost.
void SimulatedWorkers::ask_mark(Process& process, std::function<void(Process&)> back,
                                std::function<void(Process&)> lost,
                                std::function<void()> at_server) {
  if (!message(process)) return;
  const Incarnation incarnation = process.incarnation;
  const std::uint64_t turn = process.turn;
  const TimePoint there = surroundings_.reaches_driver(process.host) + wire_time();
  const bool is_lost = dice_.one_in(climate_.answer_of_mark_is_lost);
  const bool arrives = !is_lost || dice_.one_in(2);
  time_.at(
      there, [this, incarnation, turn, is_lost, arrives, driver = surroundings_.driver(),
              back = std::move(back), lost = std::move(lost), at_server = std::move(at_server)] {
        const bool is_there = driver == surroundings_.driver() && surroundings_.has_any_driver();
        if (arrives && is_there) at_server();
        const Duration way = surroundings_.reaches_driver(of(incarnation).host) - time_.now();
        const bool fails = is_lost || !is_there;
        deliver(incarnation, way + (fails ? Duration(kRendezvousTimeout) : wire_time()),
                [this, turn, fails, driver, back, lost](Process& one) {
                  if (one.turn != turn || !message(one)) return;
                  // The answer of a driver that dies then comes or not.
                  const bool died = driver != surroundings_.driver() && dice_.one_in(2);
                  (fails || died ? lost : back)(one);
                });
      });
  message(process);
}

}  // namespace hvd
