// The program of a simulated worker, in a world, and from one world to the next.
#include <algorithm>
#include <utility>

#include "base/text.h"
#include "tests/worker/elastic/simulated_workers.h"

namespace hvd {

using worker::MarkWriter;
using worker::Resume;
namespace event = driver::event;

namespace {

constexpr int kStepTime = 12'000;  // of computing, in microseconds; others are of this order
constexpr int kMutateTime = 2'000;
constexpr int kCopyTime = 2'000;
constexpr int kChunkTime = 4'000;
constexpr std::chrono::milliseconds kLooksForDriver{10};

}  // namespace

// ---- from world to world ----

void SimulatedWorkers::go_on(Process& process) {
  if (process.follower->is_out()) {
    leave(process);
  } else if (const WorldDocument* const next = process.follower->next()) {
    enter(process, WorldDocument(*next));
  }
}

void SimulatedWorkers::enter(Process& process, const WorldDocument& world) {
  const std::uint64_t generation = world.generation;
  process.follower->entered(generation);
  process.states.entered(generation, 0);
  process.group = generation;
  process.op = 0;
  ++process.turn;
  Group& group = groups_[generation];
  if (group.members.empty()) {
    for (const auto& member : world.members) {
      group.members.push_back(member.incarnation);
      while (processes_.size() < member.incarnation) {
        processes_.push_back(std::make_unique<Process>());
      }
      group.gone.push_back(of(member.incarnation).ended);
    }
  }
  for (std::size_t rank = 0; rank < group.members.size(); ++rank) {
    if (group.members[rank] == process.incarnation) process.rank = static_cast<int>(rank);
  }
  if (std::find(group.gone.begin(), group.gone.end(), true) != group.gone.end()) {
    then(process, wire_time(), &SimulatedWorkers::lost_a_peer);
  }
  tell(process, "enters");
  say_in_collective(process, Phase::connecting, {});
}

// It is in no world any more, and ends with 0.
void SimulatedWorkers::leave(Process& process) {
  if (std::exchange(process.leaving, true)) return;
  // The state in the file is as good as a worker that has it.
  if (!history_.is_saved()) check_heirs(process.incarnation);
  process.phase = Phase::done;
  ++process.turn;
  if (process.stays) return;
  exit_well(process);
}

void SimulatedWorkers::completed(Process& process, const Op& op) {
  switch (process.phase) {
    case Phase::connecting:
      vote(process);
      break;
    case Phase::voting:
      voted(process, op);
      break;
    case Phase::comparing:
      compared(process, op);
      break;
    case Phase::reducing:
      for (const auto& said : op.said) {
        if (said.state != op.said.front().state) history_.wrong("ranks train on different states");
      }
      process.phase = Phase::mutating;
      mutate(process);
      break;
    case Phase::preparing:
      prepared(process, op);
      break;
    case Phase::suspending:
      leave_at_last_commit(process);
      break;
    case Phase::finishing:
      mark_end(process);
      break;
    case Phase::shutting_down:
      end_well(process);
      break;
    default:
      history_.wrong(cat(text(process.incarnation), " takes part in no collective"));
  }
}

// ---- the vote ----

void SimulatedWorkers::vote(Process& process) {
  // Only the next driver has heard of all marks.
  if (process.rank == 0 && process.driver_is_gone) {
    process.phase = Phase::voting;
    return then(process, kLooksForDriver, &SimulatedWorkers::vote);
  }
  Said said;
  said.vote = {process.states.newest(), 1, climate_.can_load, process.sizes};
  if (process.rank != 0) {
    say_in_collective(process, Phase::voting, said);
    return;
  }
  process.phase = Phase::voting;
  const auto mark = std::make_shared<CommitId>();
  ask_mark(
      process,
      [this, mark, said](Process& one) {
        if (mark->generation > one.group) {
          lost_a_peer(one);
          return;
        }
        keep_mark(one, *mark);
        Said with_mark = said;
        with_mark.mark = *mark;
        say_in_collective(one, Phase::voting, with_mark);
      },
      [this](Process& one) { vote(one); }, [this, mark] { *mark = mark_; });
}

void SimulatedWorkers::voted(Process& process, const Op& op) {
  std::vector<worker::Vote> votes;
  for (const auto& said : op.said) votes.push_back(said.vote);
  if (flaw_ == Flaw::resumes_from_the_lowest) {
    const auto lowest = [](const auto& a, const auto& b) { return a.holds < b.holds; };
    const CommitId id = std::min_element(votes.begin(), votes.end(), lowest)->holds;
    for (auto& one : votes) one.holds = one.holds == id ? id : CommitId();
  }
  const CommitId mark = flaw_ == Flaw::ignores_the_mark ? CommitId() : op.said.front().mark;
  if (worker::run_status(votes, mark, process.rank) == worker::RunStatus::is_over) {
    come_too_late(process);
    return;
  }
  auto resume = worker::decide_resume(votes, mark, process.group);
  if (!resume.ok()) {
    check_loss(process);
    die(process.incarnation, 1, 0);
    return;
  }
  if (flaw_ == Flaw::sends_from_all_holders) resume->senders = resume->holders;
  process.resume = *resume;
  const auto& holders = process.resume.holders;
  const bool holds = std::find(holders.begin(), holders.end(), process.rank) != holders.end();
  if (holds && process.resume.from != Resume::From::state) {
    check_loss(process);
    if (process.resume.from == Resume::From::beginning) {
      // Known limit: a mark that only those had who are lost, and a driver that has died.
      if (surroundings_.driver() > 1 && !is_newest_held()) history_.void_commits();
      history_.begun();
    }
    // A checkpoint is as new as the newest commit, if the program is lucky.
    process.live = process.resume.from == Resume::From::loader && dice_.one_in(2)
                       ? history_.committed()
                       : history_.beginning();
    const std::size_t buffer = process.states.begin_to_keep();
    process.kept[buffer] = process.live;
    process.states.kept(process.resume.id);
    process.ever_whole = process.resume.id;
    process.sizes = 0;
    if (process.resume.from == Resume::From::loader) {
      history_.loaded(process.group, process.live);
    }
  }
  if (process.resume.receivers.empty()) {
    restore(process);
    return;
  }
  Said said;
  said.has_frozen = process.has_frozen;
  say_in_collective(process, Phase::comparing, said);
}

// Weights that no step changes travel if any receiver lacks them; the rest of the state always
// does.
void SimulatedWorkers::compared(Process& process, const Op& op) {
  const auto& receivers = process.resume.receivers;
  if (std::find(receivers.begin(), receivers.end(), process.rank) == receivers.end()) {
    send_state(process);
    if (process.runs) restore(process);
    return;
  }
  const auto has_them = [&op](int rank) {
    return op.said[static_cast<std::size_t>(rank)].has_frozen;
  };
  bool all_have_them = std::all_of(receivers.begin(), receivers.end(), has_them);
  if (flaw_ == Flaw::sends_what_the_first_receiver_lacks) all_have_them = has_them(receivers[0]);
  if (all_have_them && !process.has_frozen) {
    history_.wrong(
        cat(text(process.incarnation), " lacks a part of the state that did not travel"));
  }
  process.has_frozen = true;
  process.phase = Phase::receiving;
  if (flaw_ == Flaw::receives_over_the_only_copy) {
    process.states = worker::KeptStates();
    process.states.entered(process.group, 0);
  }
  process.states.begin_to_keep();
  take_state(process);
}

void SimulatedWorkers::send_state(Process& process) {
  const auto& senders = process.resume.senders;
  if (std::find(senders.begin(), senders.end(), process.rank) == senders.end()) return;
  const int state = whole_state(process);
  for (const int receiver : process.resume.receivers) {
    if (!message(process)) return;
    const Incarnation to = groups_[process.group].members[static_cast<std::size_t>(receiver)];
    const TimePoint there = std::max(surroundings_.reaches_others(process.host),
                                     surroundings_.reaches_others(of(to).host));
    deliver(to, there - time_.now() + some(kChunkTime) + wire_time(),
            [this, generation = process.group, state, sizes = process.sizes](Process& one) {
              if (one.group != generation || !message(one)) return;
              take_part(one, state, sizes);
            });
  }
}

void SimulatedWorkers::take_part(Process& process, int state, std::uint64_t sizes) {
  if (process.chunks++ > 0 && process.received_sizes != sizes) {
    history_.wrong(cat(text(process.incarnation), " receives parts of states of other sizes"));
  }
  process.received = state;
  process.received_sizes = sizes;
  if (process.phase == Phase::receiving) take_state(process);
}

// Each sender sends its part; it is whole when all have.
void SimulatedWorkers::take_state(Process& process) {
  const auto parts = static_cast<int>(process.resume.senders.size());
  const bool half = flaw_ == Flaw::takes_half_a_transfer && parts > 1 && process.chunks == 1;
  if (process.chunks < parts && !half) return;
  const std::size_t buffer = process.states.begin_to_keep();
  process.kept[buffer] = half ? TrainingHistory::kNothing : process.received;
  process.states.kept(process.resume.id);
  process.ever_whole = process.resume.id;
  process.sizes = process.received_sizes;
  if (!climate_.copies) process.live = process.kept[buffer];
  restore(process);
}

void SimulatedWorkers::restore(Process& process) {
  const int state = whole_state(process);
  if (state == TrainingHistory::kNothing) {
    history_.wrong(cat(text(process.incarnation), " resumes from a state that is not whole"));
    return;
  }
  process.live = state;
  tell(process, "resumes");
  history_.resumed(process.group, process.resume.id, state);
  train(process);
}

int SimulatedWorkers::whole_state(const Process& process) const {
  if (!climate_.copies) return process.live;
  const auto buffer = process.states.buffer();
  return buffer ? process.kept[*buffer] : TrainingHistory::kNothing;
}

// A committed state may count as lost, or as never committed, only if no worker has it any more.
void SimulatedWorkers::check_loss(const Process& process) {
  if (history_.newest().none()) return;
  // Frozen since it decided, and thawed when others had formed a later world: nobody hears it.
  if (history_.newest().generation > process.group) return;
  for (const auto& [host, memory] : agent_memory_) {
    for (const Kept& kept : memory) {
      const bool has_it = kept.id >= history_.newest() && kept.state != TrainingHistory::kNothing;
      if (!has_it || !surroundings_.is_usable(host)) continue;
      history_.wrong(
          cat("committed state lost, and the agent of host ", host, " has ", to_text(kept.id)));
    }
  }
  for (const Incarnation member : groups_[process.group].members) {
    if (of(member).runs && of(member).ever_whole >= history_.newest()) {
      history_.wrong(cat("committed state lost, and ", text(member), " once had ",
                         to_text(of(member).ever_whole)));
    }
  }
}

bool SimulatedWorkers::is_newest_held() const {
  return std::any_of(processes_.begin(), processes_.end(), [this](const auto& one) {
    return one->runs && !surroundings_.given_up(one->incarnation) && !history_.newest().none() &&
           one->ever_whole >= history_.newest();
  });
}

// ---- a step ----

void SimulatedWorkers::train(Process& process) {
  if (climate_.steps != 0 && history_.steps(process.live) >= climate_.steps) {
    finish(process);
    return;
  }
  process.phase = Phase::computing;
  then(process, some(kStepTime), &SimulatedWorkers::reduce);
}

void SimulatedWorkers::reduce(Process& process) {
  const auto size = static_cast<int>(groups_[process.group].members.size());
  Said said;
  said.state = process.next_state = history_.train(process.live, process.rank, size);
  say_in_collective(process, Phase::reducing, said);
}

void SimulatedWorkers::mutate(Process& process) {
  if (!climate_.copies) {
    process.states.mutate_begins();
    process.ever_whole = {};
    process.live = TrainingHistory::kNothing;
  }
  then(process, some(kMutateTime), &SimulatedWorkers::mutated);
}

// When the last member of a world has taken its first step there, its agent's word of it completes
// what the driver knows.
void SimulatedWorkers::step_ended(const Process& process) {
  Group& group = groups_[process.group];
  const bool is_first = group.at_work.insert(process.incarnation).second;
  if (!is_first || group.at_work.size() != group.members.size()) return;
  event::WorldEntered entered;
  entered.generation = process.group;
  entered.slowest = process.incarnation;
  surroundings_.tell(process.host, entered);
}

void SimulatedWorkers::mutated(Process& process) {
  process.live = process.next_state;
  step_ended(process);
  if (!process.runs) return;
  const int steps = history_.steps(process.live);
  const bool commits =
      steps % climate_.commit_every == 0 || (climate_.steps != 0 && steps >= climate_.steps);
  if (!climate_.copies) {
    process.states.mutate_ends();
    process.ever_whole = process.states.newest();
    process.sizes = sizes_at_commit(process);
    commits ? prepare(process) : train(process);
  } else if (commits) {
    process.phase = Phase::copying;
    process.kept[process.states.begin_to_keep()] = TrainingHistory::kNothing;
    then(process, some(kCopyTime), &SimulatedWorkers::copied);
  } else {
    train(process);
  }
}

void SimulatedWorkers::copied(Process& process) {
  const CommitId id = process.states.next();
  process.states.kept(id);
  process.kept[*process.states.buffer()] = process.live;
  process.ever_whole = id;
  process.sizes = sizes_at_commit(process);
  prepare(process);
}

// A rank may have put something into the state that the others lack.
std::uint64_t SimulatedWorkers::sizes_at_commit(const Process& process) const {
  if (climate_.sizes_differ == 0) return 0;
  const std::uint64_t turn = process.states.newest().sequence + process.incarnation;
  return turn % static_cast<std::uint64_t>(climate_.sizes_differ) == 0 ? process.incarnation : 0;
}

// ---- a commit ----

void SimulatedWorkers::prepare(Process& process) {
  Said said;
  said.prepared = {process.states.newest(), static_cast<std::uint64_t>(process.live)};
  if (flaw_ == Flaw::commits_without_agreement && process.rank == 0) {
    process.mark.emplace(said.prepared.id, process.mark_version);
    process.mark->wrote(0);
    history_.mark_written(mark_, said.prepared.id);
    mark_ = std::max(mark_, said.prepared.id);
    history_.decided(said.prepared.id, process.live, mark_);
  }
  say_in_collective(process, Phase::preparing, said);
}

void SimulatedWorkers::prepared(Process& process, const Op& op) {
  std::vector<worker::Prepared> prepared;
  for (const auto& said : op.said) prepared.push_back(said.prepared);
  const Status agreed = worker::agree(prepared);
  if (!agreed.ok()) {
    history_.wrong(agreed.message());
    return;
  }
  if (process.rank == 0) {
    process.phase = Phase::marking;
    process.mark.emplace(prepared.front().id, process.mark_version);
    write_mark(process);
    return;
  }
  process.phase = Phase::awaiting;
  if (process.answer) act_on_answer(process);
}

// There is no driver to write it down.
void SimulatedWorkers::mark_with_agent(Process& process) {
  MarkWriter& mark = *process.mark;
  process.mark_version.reset();
  keep_mark(process, mark.id());
  // A driver that has come meanwhile may have missed it.
  if (!process.driver_is_gone) {
    process.mark.emplace(mark.id());
    return write_mark(process);
  }
  tell(process, "marks it with its agent");
  if (mark.id().run != 0) history_.finished();
  if (process.phase == Phase::marking) {
    decide(process);
  } else {
    say_in_collective(process, Phase::shutting_down, {});
  }
}

void SimulatedWorkers::write_mark(Process& process) {
  MarkWriter& mark = *process.mark;
  const bool is_to_ask =
      mark.next() == MarkWriter::Next::read || mark.next() == MarkWriter::Next::write;
  if (process.driver_is_gone && is_to_ask) return mark_with_agent(process);
  const auto doubt = [this](Process& one) {
    one.mark->in_doubt();
    if (flaw_ == Flaw::takes_doubt_for_success) one.mark->wrote(0);
    write_mark(one);
  };
  if (flaw_ == Flaw::answers_before_the_mark && process.phase == Phase::marking &&
      mark.next() != MarkWriter::Next::written) {
    decide(process);
    return;
  }
  switch (mark.next()) {
    case MarkWriter::Next::read: {
      const auto found = std::make_shared<std::pair<CommitId, std::uint64_t>>();
      ask_mark(
          process,
          [this, found](Process& one) {
            one.mark->found(found->first, found->second);
            write_mark(one);
          },
          doubt,
          [this, found] {
            *found = {mark_, mark_version_};
          });
      break;
    }
    case MarkWriter::Next::write: {
      const auto done = std::make_shared<std::uint64_t>(0);
      ask_mark(
          process,
          [this, done](Process& one) {
            if (*done != 0) {
              one.mark->wrote(*done);
            } else {
              one.mark->refused();
            }
            write_mark(one);
          },
          doubt,
          [this, done, id = mark.id(), version = mark.version()] {
            if (version != mark_version_ && flaw_ != Flaw::writes_the_mark_blindly) return;
            history_.mark_written(mark_, id);
            mark_ = id;
            if (id.run != 0) history_.finished();
            if (id.run != 0 && flaw_ == Flaw::forgets_that_the_run_has_finished) mark_ = {};
            *done = ++mark_version_;
          });
      break;
    }
    case MarkWriter::Next::written:
      process.mark_version = mark.version();
      keep_mark(process, mark.id());
      if (process.phase == Phase::marking) {
        decide(process);
      } else {
        say_in_collective(process, Phase::shutting_down, {});
      }
      break;
    case MarkWriter::Next::superseded:
      lost_a_peer(process);
      break;
  }
}

void SimulatedWorkers::decide(Process& process) {
  Answer answer{process.mark->id(), {}};
  tell(process, "decides");
  history_.decided(answer.id, process.live, mark_anywhere());
  if (const WorldDocument* const next = process.follower->proposed()) answer.next = *next;
  process.answer = answer;
  process.phase = Phase::awaiting;
  const auto told = std::make_shared<const Answer>(std::move(answer));
  for (const Incarnation member : groups_[process.group].members) {
    if (member == process.incarnation) continue;
    if (!message(process)) return;
    const TimePoint there = std::max(surroundings_.reaches_others(process.host),
                                     surroundings_.reaches_others(of(member).host));
    // Before it can see that this rank is gone.
    const Duration time = std::min<Duration>(wire_time(), std::chrono::microseconds(1'500));
    deliver(member, there - time_.now() + time,
            [this, generation = process.group, told](Process& one) {
              if (one.group != generation || !message(one)) return;
              one.answer = *told;
              if (one.phase == Phase::awaiting) act_on_answer(one);
            });
  }
  if (message(process)) act_on_answer(process);
}

void SimulatedWorkers::act_on_answer(Process& process) {
  const Answer answer = std::move(*process.answer);
  process.answer.reset();
  if (answer.id != process.states.newest()) {
    history_.wrong(cat(text(process.incarnation), " is told of commit ", to_text(answer.id)));
  }
  tell(process, answer.next ? "is told of a commit and of a new world" : "is told of a commit");
  history_.answered(answer.id, process.live);
  if (!answer.next) {
    train(process);
    return;
  }
  if (answer.next->last) {
    process.last = answer.next;
    suspend(process);
    return;
  }
  process.follower->committed(*answer.next);
  surroundings_.tell(process.host,
                     event::Committed{process.host, process.incarnation, answer.next->generation});
  if (!process.runs) return;
  leave_group(process);
  go_on(process);
}

}  // namespace hvd
