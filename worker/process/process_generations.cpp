// The part of ProcessWorld that an elastic job needs: one world after the other.
#include <utility>

#include <hvd/error.h>

#include "base/log.h"
#include "base/text.h"
#include "worker/launch/rendezvous_exchange.h"
#include "worker/process/attempt_watch.h"
#include "worker/process/errors.h"
#include "worker/process/lost_launch.h"
#include "worker/process/process_world.h"

namespace hvd::worker {
namespace {

// A world may fail though all its members live, since a connection broke. The driver does not know
// of it, so that after this time without a newer world the members form the same one again. They
// also try that while the driver waits for the replacement of a lost one, which they do not know.
constexpr std::chrono::milliseconds kRetryDelay{1'000};
// Attempts to form one generation that fail though no newer one has come meanwhile.
constexpr int kAttempts = 5;
// The same, if other processes may be the ones that are late. There are more of these attempts, so
// that the process at fault gives up first.
constexpr int kAttemptsWithOthers = 3 * kAttempts;

// Counts the attempts, so that a process does not try for ever, and reports what happened.
class FailedAttempts {
 public:
  // True: that was the last.
  bool count(const Status& why, std::uint64_t generation) {
    if (std::exchange(generation_, generation) != generation) of_others_ = 0;
    const bool is_own = why.code() != Code::deadline_exceeded && why.code() != Code::aborted &&
                        why.code() != Code::unavailable;
    ++(is_own ? own_ : of_others_);
    return own_ >= kAttempts || of_others_ >= kAttemptsWithOthers;
  }
  std::string text() const {
    return cat("attempt ", own_ + of_others_, " to form generation ", generation_, " has failed");
  }

 private:
  std::uint64_t generation_ = 0;
  int own_ = 0;  // in all generations: what this process lacks, it lacks in each of them
  int of_others_ = 0;
};

// A newer world or the end of this process has ended the attempt, not a rank that gave it up.
bool is_replaced(const Membership::Entry& entry) {
  return entry.interrupt->raised() && entry.interrupt->why().status.code() == Code::aborted;
}

}  // namespace

Membership* ProcessWorld::membership() const {
  const std::lock_guard lock(mutex_);
  return membership_;
}

Membership* ProcessWorld::followed() const {
  const std::lock_guard lock(mutex_);
  return follows_ ? membership_ : nullptr;
}

Status ProcessWorld::follow() {
  const std::lock_guard lock(lifecycle_mutex_);
  if (followed() != nullptr) return {};
  if (is_initialized() || membership_ != nullptr) {
    return {Code::failed_precondition, "hvd_init() was called before it"};
  }
  const auto descriptor = process_environment()(worker_link::kDescriptorVariable);
  if (agent_ == nullptr && !descriptor) {
    HVD_RETURN_IF_ERROR(check_environment_was_kept(process_environment()));
    return {Code::failed_precondition, "hvdrun has not started this process: there is no world"};
  }
  HVD_RETURN_IF_ERROR(apply_log_settings(process_environment(), "hvd"));
  HVD_RETURN_IF_ERROR(open_agent(descriptor.value_or("")));
  auto membership = Membership::begin(*agent_);
  HVD_RETURN_IF_ERROR(membership.status());
  const std::lock_guard inner(mutex_);
  membership_ = *membership;
  follows_ = true;
  return {};
}

std::exception_ptr ProcessWorld::exception_of(const runtime::Failure& failure,
                                              runtime::Kind kind) const {
  if (failure.world_failed) {
    const auto* const elastic = membership();
    if (elastic != nullptr && elastic->ended_by_plan()) {
      return std::make_exception_ptr(HostsUpdated(failure.status.message()));
    }
  } else if (breaks_for_departure(failure)) {
    const auto& message = failure.status.message();
    return std::make_exception_ptr(CollectiveError(message, failure.rank, failure.host, message));
  }
  return worker::exception_of(failure, kind);
}

// A rank has called shutdown(), or ended with exit code 0, while the others are in elastic::run.
bool ProcessWorld::breaks_for_departure(const runtime::Failure& failure) const {
  if (failure.status.code() != Code::failed_precondition) return false;
  const auto current = world();
  {
    const std::lock_guard lock(mutex_);
    if (membership_ == nullptr || runs_ == 0 || !current || current_.world() != current) {
      return false;
    }
    current_.note_departure(current.get());
  }
  current->abort(Status(Code::aborted, failure.status.message()));
  return true;
}

void ProcessWorld::begin_run() {
  const std::lock_guard lock(mutex_);
  departure_.finished = false;
  if (++runs_ == 1 && membership_ != nullptr) membership_->set_running(true);
}

void ProcessWorld::end_run() {
  const std::lock_guard lock(mutex_);
  if (--runs_ == 0 && membership_ != nullptr) membership_->set_running(false);
}

void ProcessWorld::expect_first_step() {
  meter_->expect_first_step();
  catches_up_ = false;
}

int ProcessWorld::local_rank() {
  {
    const std::lock_guard lock(mutex_);
    if (current_.phase() == CurrentWorld::Phase::joining) {
      const auto& worker = agent_->welcome().worker;
      const auto slot = parse_number<int>(worker.substr(worker.rfind('#') + 1));
      if (slot) return *slot;
    }
  }
  return place_for("local_rank").local_rank;
}

Status ProcessWorld::init_elastic() {
  if (membership_ == nullptr) {
    auto membership = Membership::begin(*agent_);
    HVD_RETURN_IF_ERROR(membership.status());
    const std::lock_guard lock(mutex_);
    membership_ = *membership;
    membership_->end_if_late(settings_.config.stall_shutdown);
    if (!membership_->has_next()) {
      current_.wait_for_first();
      catches_up_ = true;
      return {};
    }
  }
  {
    const std::lock_guard lock(mutex_);
    sets_ = {};
  }
  return enter(Clock::now());
}

Status ProcessWorld::enter(TimePoint again_at) {
  FailedAttempts failed;
  for (;;) {
    auto entry = membership_->next(again_at);
    if (!entry.ok()) {
      // SIGTERM comes next. A program with no handler for it shall end by the signal, not by the
      // exception that we throw.
      if (agent_->stop_reason()) std::this_thread::sleep_for(kSignalGrace);
      return entry.status();
    }

    {
      const std::lock_guard lock(mutex_);
      generation_.begin(entry->document.generation, entry->client, agent_);
    }

    const bool was_gone = agent_->driver_is_gone();
    if (entry->round > 1) {
      tell_of_another_attempt(*entry);
    } else {
      ended_because_.clear();  // a newer world has followed it
    }
    Status formed =
        form(entry->document, entry->key, *entry->client, entry->round, entry->interrupt);
    const bool is_final =
        formed.code() == Code::invalid_argument || formed.code() == Code::permission_denied;
    if (formed.ok() || is_final) return formed;

    if (was_gone || agent_->driver_is_gone()) {
      HVD_LOG(info, "there is no hvdrun to form generation " << entry->document.generation
                                                             << " with: " << formed.message());
    } else if (!is_replaced(*entry)) {
      const bool is_last = failed.count(formed, entry->document.generation);
      HVD_LOG(warning, failed.text()
                           << ": " << formed.message()
                           << (is_last ? "" : "; waiting for a newer world, or trying again"));
      if (is_last) return give_up(formed.with_context(failed.text()));
    }
    again_at = Clock::now() + kRetryDelay;
  }
}

// Ranks that still wait in the last attempt join this one.
void ProcessWorld::tell_of_another_attempt(const Membership::Entry& entry) {
  const WorldMember* const self = entry.document.find(agent_->welcome().incarnation);
  if (self == nullptr) return;
  if (const auto why = std::exchange(ended_because_, {}); self->rank == 0 && !why.empty()) {
    HVD_LOG(warning, "generation "
                         << entry.document.generation
                         << " has failed, and hvdrun has announced no other world yet; its members "
                            "try to form it again: "
                         << why);
  }
  const auto last = scope_of_attempt(entry.document.generation, entry.round - 1);
  const auto tell = [&] {
    HVD_RETURN_IF_ERROR(mark_given_up(*entry.client, last, self->ranked()));
    // They may not have come further than to wait for this rank.
    return RendezvousExchange::withdraw(*entry.client, last, self->rank);
  };
  Status told = tell();
  // Somebody on the way may alter this as well.
  for (int tried = 1; tried < kAttempts && told.code() == Code::unauthenticated; ++tried) {
    told = tell();
  }
  if (!told.ok()) {
    HVD_LOG(info, "tell the others that an attempt has failed: " << told.message());
  }
}

// hvdrun is told why, and gives the other workers a world without this process.
Status ProcessWorld::give_up(const Status& why) {
  if (const Status told = agent_->send_left(why.message()); !told.ok()) {
    HVD_LOG(warning, told.to_string());
  }
  return why;
}

Status ProcessWorld::enter_first() {
  const std::lock_guard lock(lifecycle_mutex_);
  if (world()) return {};
  return enter(kNever);
}

bool ProcessWorld::stands() const {
  const auto current = world();
  if (!current || !current->failure().ok()) return false;
  {
    const std::lock_guard lock(mutex_);
    if (current_.lost_a_rank(current.get())) return false;
  }
  const auto* const elastic = membership();
  return elastic == nullptr || (!elastic->has_next() && !elastic->is_out());
}

bool ProcessWorld::is_joining() const {
  const std::lock_guard lock(mutex_);
  return current_.phase() == CurrentWorld::Phase::joining;
}

bool ProcessWorld::needs_next() const {
  {
    const std::lock_guard lock(mutex_);
    if (membership_ == nullptr || current_.phase() == CurrentWorld::Phase::joining) return false;
  }
  return !stands();
}

Status ProcessWorld::enter_next() {
  const std::lock_guard lock(lifecycle_mutex_);
  leave_ended_world();
  entry_timer_.left_world(Clock::now());
  return enter(Clock::now() + kRetryDelay);
}

void ProcessWorld::leave_ended_world() {
  auto leaving = world();
  if (!leaving) return;
  entry_timer_.world_ended(Clock::now());
  leaving->wait_idle(Clock::now() + kInFlightTimeout);

  auto why = leaving->failure();
  if (why.ok()) why = Status(Code::aborted, "this world was left for a newer one");
  why.world_failed = true;
  ended_because_ = why.status.message();
  {
    const std::lock_guard lock(mutex_);
    current_.end(std::move(why));
  }
  teardown_.retire(std::move(leaving));
}

void ProcessWorld::check_set(std::string_view call, int id) const {
  const std::lock_guard lock(mutex_);
  if (membership_ == nullptr) return;
  if (const auto lost = sets_.lost(id)) {
    throw ProcessSetError(ProcessSetErrorCode::lost_member,
                          cat(call, ": process set ", id, " has lost ", *lost,
                              ". Remove it and add another one. A process set that is added as "
                              "one that shrinks goes on without its lost members."));
  }
}

std::optional<int> ProcessWorld::take_up_set(const std::vector<int>& ranks, bool by_members) {
  const std::lock_guard lock(mutex_);
  return membership_ == nullptr ? std::nullopt : sets_.take_up(ranks, by_members);
}

void ProcessWorld::let_set_shrink(int id) {
  const std::lock_guard lock(mutex_);
  sets_.let_shrink(id);
}

bool ProcessWorld::forget_lost_set(int id) {
  const std::lock_guard lock(mutex_);
  if (membership_ == nullptr || !sets_.lost(id)) return false;
  sets_.removed(id);
  return true;
}

void ProcessWorld::note_set(std::uint64_t generation, int id, const std::vector<int>* ranks,
                            bool by_members) {
  const std::lock_guard lock(mutex_);
  // A world that is over may still come to this.
  if (generation != generation_.number) return;
  if (ranks == nullptr) current_.forget_names(id);
  if (membership_ == nullptr) return;
  if (ranks != nullptr) {
    sets_.added(id, *ranks, by_members);
  } else {
    sets_.removed(id);
  }
}

ProcessWorld::Generation ProcessWorld::generation_for(std::string_view call) {
  auto current = world_for(call);
  const std::lock_guard lock(mutex_);
  return {generation_.number, std::move(current), generation_.high_water, finished_runs_};
}

std::uint64_t ProcessWorld::newest_generation() const {
  const std::lock_guard lock(mutex_);
  return generation_.number;
}

std::uint64_t ProcessWorld::finished_runs() const {
  const std::lock_guard lock(mutex_);
  return finished_runs_;
}

UniqueFd ProcessWorld::take_state_memory() {
  const std::lock_guard lock(mutex_);
  return std::move(state_memory_);
}

void ProcessWorld::return_state_memory(UniqueFd memory) {
  const std::lock_guard lock(mutex_);
  state_memory_ = std::move(memory);
}

void ProcessWorld::finish_run() {
  const std::lock_guard lock(mutex_);
  departure_.finished = true;
  ++finished_runs_;
}

void ProcessWorld::skip_run() {
  const std::lock_guard lock(mutex_);
  ++finished_runs_;
}

void ProcessWorld::leave_finished_run() {
  auto* const elastic = membership();
  if (elastic == nullptr) return;
  const Status told = elastic->agent().send_left(
      "elastic::run() had returned on all ranks before this worker came, and none of them is left "
      "that has the state");
  if (!told.ok()) HVD_LOG(warning, told.to_string());
  const std::lock_guard lock(mutex_);
  departure_.is_told = true;
}

bool ProcessWorld::others_have_finished() {
  CommitId end;
  {
    const std::lock_guard lock(mutex_);
    end = {generation_.number, 0, finished_runs_ + 1};
  }
  // That of the generation is cancelled with it.
  RendezvousHighWater high_water(std::make_shared<rendezvous::Client>(agent_->rendezvous_options(),
                                                                      agent_->welcome().credential),
                                 *agent_);
  const auto mark = high_water.read();
  return mark.ok() && mark->generation == end.generation && *mark >= end;
}

}  // namespace hvd::worker
