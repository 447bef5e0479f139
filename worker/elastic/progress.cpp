#include "worker/elastic/progress.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <future>
#include <memory>
#include <span>
#include <string_view>

#include "base/log.h"
#include "base/text.h"
#include "base/threads.h"
#include "base/wire.h"
#include "worker/elastic/saved_state.h"

namespace hvd::worker {

using runtime::Failure;

namespace {

// Rank 0 writes the state and is not done.
constexpr std::string_view kStillWriting = "\x01";
// All ranks hear of it so often: a rank that says nothing for long seems to hang.
constexpr std::chrono::seconds kTellEvery{1};

// What rank 0 says, on all ranks.
Failure hear(StateChannel& channel, std::string& why) {
  constexpr std::size_t kLength = 1'000;  // the same on all ranks
  why.resize(kLength);
  auto told = channel.broadcast("rank 0 says", 0, std::as_writable_bytes(std::span(why)));
  why.resize(why.find_last_not_of('\0') + 1);
  return told;
}

// Rank 0's status, on all ranks. Its message continues "could not".
Failure agree(StateChannel& channel, const Status& own) {
  std::string why = own.message();
  do {
    if (auto told = hear(channel, why); !told.ok()) return told;
  } while (why == kStillWriting);
  if (why.empty()) return {};
  return Status(Code::invalid_argument, cat("elastic::State: rank 0 could not ", why));
}

StateSaver::Write writer_to(const std::string& file) {
  return [file](const StateToSave& state, const std::atomic<bool>& is_given_up) {
    SaveMeter meter;
    return save_copy(file, state, meter, is_given_up);
  };
}

// Bytes that this rank has need not come from rank 0. Its objects may not be ready before a state
// was loaded into them; then everything comes.
void save_own_objects(Store& store) {
  try {
    store.save_own();
  } catch (const std::exception& error) {
    HVD_LOG(debug, "the own objects cannot be compared with the state: " << error.what());
  }
}

}  // namespace

Progress::Progress(elastic::StateOptions options, DeviceOptions device, StateFile state_file,
                   Ledger* ledger)
    : options_(std::move(options)),
      store_(options_.mode, in_stream_of(options_, std::move(device))),
      state_file_(std::move(state_file.name)),
      state_lock_(state_file_, std::move(state_file.job)),
      saver_(state_file.every,
             state_file.write ? std::move(state_file.write) : writer_to(state_file_)),
      ledger_(ledger) {}

Status Progress::keep_in(StateMemory& memory, std::uint64_t run) {
  const auto found = store_.keep_in(memory, run);
  HVD_RETURN_IF_ERROR(found.status());
  if (!*found) return {};
  is_inherited_ = true;
  origin_ = (*found)->id;
  origin_step_ = (*found)->step;
  HVD_LOG(info, "the agent of this host has kept the state of commit " << to_text(origin_));
  return {};
}

UniqueFd Progress::leave_memory() {
  is_inherited_ = false;
  return store_.leave_memory();
}

Failure Progress::begin(CommitProtocol& protocol, bool rolls_back, EntryTimer* timer) {
  if (protocol.channel().rank() != 0) leave_state_file();
  Resume resume;
  if (timer != nullptr) timer->begin_vote(Clock::now());
  const auto numbers = ledger_ != nullptr ? ledger_numbers(protocol) : LedgerNumbers();
  auto voted =
      protocol.vote(store_, static_cast<bool>(options_.loader), run_status_, resume, numbers);
  lost_ = !voted.world_failed && voted.status.code() == Code::data_loss;
  if (!voted.ok()) return voted;
  if (run_status_ == RunStatus::goes_on) return resume_from(protocol, resume, rolls_back, timer);
  has_inherited_end_ = is_inherited_ && run_status_ == RunStatus::is_over;
  if (rolls_back || has_inherited_end_) store_.load();
  forget();
  return {};
}

Failure Progress::resume_from(CommitProtocol& protocol, const Resume& resume, bool rolls_back,
                              EntryTimer* timer) {
  const auto& receivers = resume.receivers;
  const bool receives =
      std::find(receivers.begin(), receivers.end(), protocol.channel().rank()) != receivers.end();
  if (timer != nullptr) timer->voted(receives ? resume.bytes : 0, Clock::now());

  const bool gives = resume.from != Resume::From::state && protocol.channel().rank() == 0;
  if (gives && resume.from == Resume::From::loader) {
    HVD_LOG(warning,
            "every worker that held the newest commit is gone: the program loads its "
            "checkpoint");
    options_.loader();
  }
  origin_ = resume.id;
  origin_step_ = resume.step;
  store_.set_step(origin_step_);
  // The leader of this commit may have died before it wrote it. The rank that writes it now has
  // taken part in it: the others receive the state after this.
  const bool is_first_holder = protocol.channel().rank() == resume.holders.front();
  if (ledger_ != nullptr && resume.from == Resume::From::state && is_first_holder) {
    write_step(resume.id);
  }
  if (std::exchange(samples_of_, resume.id) != resume.id) samples_.clear();

  // The same one may be entered again, and then goes on counting.
  if (generation_ != protocol.generation()) store_.entered(protocol.generation(), protocol.run());
  generation_ = protocol.generation();
  if (protocol.channel().rank() == 0 && resume.from == Resume::From::state) keep_lock();
  if (resume.from == Resume::From::beginning) {
    if (auto taken = take_beginning(protocol, resume.id); !taken.ok()) return taken;
  } else if (gives) {
    store_.keep(resume.id);
  }
  bool received = false;
  TransferWatch watch;
  if (timer != nullptr) {
    watch.on_found = [timer](std::uint64_t bytes) { timer->found(bytes); };
    watch.on_received = [timer](std::uint64_t bytes) { timer->received(bytes); };
  }
  auto moved = protocol.transfer(store_, resume, received, watch);
  if (!moved.ok()) return moved;
  if (!received && !gives && (rolls_back || is_inherited_)) store_.load();
  is_inherited_ = false;
  if (timer != nullptr) timer->has_state(Clock::now());
  return {};
}

Failure Progress::take_beginning(CommitProtocol& protocol, const CommitId& id) {
  const bool gives = protocol.channel().rank() == 0;
  if (!gives) save_own_objects(store_);
  if (state_file_.empty() && ledger_ == nullptr) {
    if (gives) store_.keep(id);
    return {};
  }

  const bool reads = gives && !state_file_.empty();
  const auto found = reads ? read_state() : Result<std::uint64_t>(Status(Code::not_found, ""));
  std::optional<std::uint64_t> taken_up;
  if (found.ok()) taken_up = *found;
  Status begun = found.status().code() == Code::not_found ? Status() : found.status();
  std::uint64_t step = 0;
  if (gives && begun.ok() && ledger_ != nullptr) {
    const auto goes_on_from = begin_ledger(protocol, taken_up);
    begun = goes_on_from.status();
    if (begun.ok()) step = *goes_on_from;
  }
  if (!begun.ok()) state_lock_.release();
  if (auto told = agree(protocol.channel(), begun); !told.ok()) return told;
  if (ledger_ != nullptr) {
    if (auto told = agree_on_step(protocol.channel(), step); !told.ok()) return told;
  }
  saver_.count_from(Clock::now());
  if (!gives) return {};
  if (taken_up) {
    HVD_LOG(info, "the state is that of the file " << state_file_);
    store_.take_over(id);
  } else {
    store_.keep(id);
  }
  return {};
}

Result<std::uint64_t> Progress::read_state() {
  HVD_RETURN_IF_ERROR(state_lock_.take());
  return read_saved_state(state_file_, store_);
}

// The job may have gone further than the state in its file, whose steps come again.
Result<std::uint64_t> Progress::begin_ledger(CommitProtocol& protocol,
                                             std::optional<std::uint64_t> taken_up) {
  const std::uint64_t step = taken_up.value_or(0);  // 0, too, if it was written without a ledger
  if (step == 0) {
    if (taken_up || protocol.run() > 0) return ledger_->last_step();
    HVD_RETURN_IF_ERROR(ledger_->begin());
    return step;
  }
  const auto last = ledger_->go_back_to(step);
  HVD_RETURN_IF_ERROR(last.status());
  if (*last < step) {
    HVD_LOG(warning, "the state in " << state_file_ << " is that of step " << step
                                     << ", and the ledger ends with step " << *last
                                     << ": it lacks those between");
  }
  return step;
}

Failure Progress::agree_on_step(StateChannel& channel, std::uint64_t step) {
  std::string bytes = WireWriter().u64(step).take();
  auto told = channel.broadcast("step in the ledger", 0, std::as_writable_bytes(std::span(bytes)));
  if (!told.ok()) return told;
  origin_step_ = WireReader(bytes).u64();
  store_.set_step(origin_step_);
  return {};
}

LedgerNumbers Progress::ledger_numbers(CommitProtocol& protocol) {
  // Without copies a state may be held that was not committed; its samples wait. Those of what is
  // not held do not count.
  auto waiting = ledger_->take_samples();
  const CommitId held = store_.holds();
  if (std::exchange(samples_of_, held) != held) samples_ = std::move(waiting);

  LedgerNumbers numbers;
  if (!held.none()) numbers.held = number_of(held);
  if (protocol.channel().rank() != 0) return numbers;
  // An error is told when the job begins, and else when it writes.
  if (const auto last = ledger_->last_step(); last.ok()) numbers.written = *last;
  return numbers;
}

// In a world all commits count; the world before ended with the origin.
std::uint64_t Progress::number_of(const CommitId& id) const {
  const bool is_same_world = id.generation == origin_.generation && id.run == origin_.run;
  return origin_step_ + id.sequence - (is_same_world ? origin_.sequence : 0);
}

std::uint64_t Progress::number_in_ledger(const CommitId& id) const {
  return ledger_ == nullptr ? 0 : number_of(id);
}

// Training does not end because a disk is full.
void Progress::write_step(const CommitId& id) {
  if (ledger_has_failed_) return;
  Status written;
  try {
    const std::uint64_t number = number_of(id);
    const auto last = ledger_->last_step();
    written = last.status();
    if (last.ok() && *last < number) {
      const bool has_samples = samples_of_ == id;
      written = ledger_->write({number, store_.digests(), has_samples ? samples_ : ShardSamples()});
    }
  } catch (const std::exception& error) {
    written = {Code::internal, cat("write the ledger: ", error.what())};
  }
  if (written.ok()) return;
  ledger_has_failed_ = true;
  HVD_LOG(warning, "the ledger ends here: cannot " << written.message());
}

void Progress::keep_lock() {
  const Status taken = state_lock_.take();
  if (taken.ok() || std::exchange(lock_is_lost_, true)) return;
  HVD_LOG(warning, "this job cannot " << taken.message());
}

void Progress::leave_state_file() {
  saver_.give_up();
  if (saver_.is_writing()) return;
  saver_.clear();
  state_lock_.release();
}

// An earlier rank 0 of this job may still write until this one has the lock. A state of a later
// run could not be taken up again.
void Progress::save_if_due(CommitProtocol& protocol, const CommitId& committed) {
  if (protocol.channel().rank() != 0 || protocol.run() != 0) return;
  const TimePoint now = Clock::now();
  if (!saver_.is_due(now) || !state_lock_.is_held()) return;
  saver_.begin(store_, number_in_ledger(committed), now);
}

void Progress::end_saving(bool gives_up) {
  if (gives_up) saver_.give_up();
  saver_.wait();
}

// What is written during training is older.
Status Progress::keep_state(SaveMeter& meter, const std::atomic<bool>& is_given_up) {
  end_saving(true);
  HVD_RETURN_IF_ERROR(state_lock_.take());
  const std::uint64_t step = number_in_ledger(store_.holds());
  return save_state(state_file_, store_, step, meter, is_given_up);
}

Failure Progress::keep_and_tell(StateChannel& channel, SaveMeter& meter, const SaveReport& report) {
  std::atomic<bool> is_given_up = false;
  const auto keep = std::make_shared<std::packaged_task<Status()>>(
      [&] { return keep_state(meter, is_given_up); });
  auto kept = keep->get_future();
  ThreadGroup threads;
  const Status started = threads.start([keep] { (*keep)(); });
  if (!started.ok()) {
    return agree(channel, started.with_context(cat("keep the state in ", state_file_)));
  }
  Failure told;
  while (told.ok() && kept.wait_for(kTellEvery) != std::future_status::ready) {
    report({});
    std::string still(kStillWriting);
    told = hear(channel, still);
  }
  is_given_up = true;
  threads.join();
  const Status saved = kept.get();
  report(saved);
  return told.ok() ? agree(channel, saved) : told;
}

Status Progress::remove_state() {
  if (state_file_.empty()) return {};
  HVD_RETURN_IF_ERROR(state_lock_.take());
  return remove_saved_state(state_file_);
}

Failure Progress::suspend(CommitProtocol& protocol, SaveMeter& meter, const SaveReport& report) {
  if (state_file_.empty()) return {};
  StateChannel& channel = protocol.channel();
  const bool keeps = channel.rank() == 0;
  auto told = keeps ? keep_and_tell(channel, meter, report) : agree(channel, {});
  if (!told.ok()) return told;
  // All ranks stay until all of them know.
  (void)channel.barrier("suspended");
  end_saving(true);
  state_lock_.release();
  return {};
}

Failure Progress::commit(CommitProtocol& protocol, const Proposal& proposal, std::string& next) {
  if (protocol.channel().rank() == 0) {
    keep_lock();
  } else {
    leave_state_file();
  }
  Prepared prepared;
  if (store_.mode() == elastic::CommitMode::copy) {
    prepared.id = store_.next();
    store_.set_step(number_of(prepared.id));
    store_.keep(prepared.id);
  } else {
    prepared.id = store_.holds();
    if (prepared.id.none()) {
      return Status(Code::invalid_argument,
                    "State::commit(): the state is broken, since what State::mutate() called has "
                    "thrown");
    }
  }
  if (ledger_ != nullptr) {
    samples_ = ledger_->take_samples();
    samples_of_ = prepared.id;
  }
  const auto every = static_cast<std::uint64_t>(std::max(0, options_.compare_every));
  if (every != 0 && prepared.id.sequence % every == 0) prepared.checksum = store_.checksum();
  auto committed = protocol.commit(prepared, proposal, next, [&] {
    if (ledger_ != nullptr) write_step(prepared.id);
  });
  if (committed.ok() && next.empty()) save_if_due(protocol, prepared.id);
  return committed;
}

Failure Progress::sync(CommitProtocol& protocol) {
  Resume resume;
  resume.from = Resume::From::beginning;
  resume.id = {protocol.generation(), 0, protocol.run()};
  resume.holders = resume.senders = {0};
  for (int rank = 1; rank < protocol.channel().size(); ++rank) resume.receivers.push_back(rank);
  // Beside what is kept, which counts until the next commit.
  Store now = store_.of_the_same_objects();
  const bool gives = protocol.channel().rank() == 0;
  if (gives) now.keep(resume.id);
  Failure moved;
  bool received = false;
  mutate([&] { moved = protocol.transfer(now, resume, received); });
  return moved;
}

Failure Progress::finish(CommitProtocol& protocol) {
  saver_.give_up();
  const auto remove_state_file = [this] {
    saver_.wait();
    if (const Status removed = remove_state(); !removed.ok()) {
      HVD_LOG(warning, "at the end: " << removed.message());
    }
  };
  if (auto finished = protocol.finish(remove_state_file); !finished.ok()) return finished;
  saver_.wait();
  state_lock_.release();
  forget();
  return {};
}

void Progress::forget() {
  store_.forget();
  is_inherited_ = false;
  generation_ = 0;
  samples_.clear();
  samples_of_ = {};
}

void Progress::mutate(const std::function<void()>& change) {
  if (generation_ == 0) return change();
  store_.mutate(change);
}

}  // namespace hvd::worker
