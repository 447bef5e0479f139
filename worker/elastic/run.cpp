#include "worker/elastic/run.h"

#include <chrono>
#include <cstdlib>
#include <optional>
#include <unistd.h>
#include <utility>

#include <hvd/elastic.h>
#include <hvd/error.h>

#include "base/log.h"
#include "base/text.h"
#include "worker/elastic/state_impl.h"
#include "worker/process/process_world.h"

namespace hvd::elastic {

std::uint64_t generation() {
  return worker::ProcessWorld::instance().generation_for("elastic::generation").number;
}

namespace detail {
namespace {

using worker::ProcessWorld;

// The wait for a newer world, before this rank asks again whether the others have finished.
constexpr std::chrono::milliseconds kNewerWorldTimeout{500};
// With no commit between them the same failure would come for ever.
constexpr int kTimesGivenUp = 5;
constexpr int kTimesAltered = 10;

// The job, without this worker.
bool goes_on_without_this() {
  auto& process = ProcessWorld::instance();
  const auto* const membership = process.membership();
  return process.is_leaving() || (membership != nullptr && membership->is_out());
}

enum class Entered { yes, left };

Entered enter_next() {
  auto& process = ProcessWorld::instance();
  const Status entered = process.enter_next();
  if (entered.ok()) return Entered::yes;
  if (goes_on_without_this()) return Entered::left;
  throw InitError(cat("elastic::run(): ", entered.message()));
}

// The world has failed after this rank's function had returned. Either the functions of all others
// had returned, too, which one of them knows, or the others are about to run again.
bool all_had_finished() {
  auto& process = ProcessWorld::instance();
  if (process.others_have_finished()) return true;
  if (process.is_leaving()) return false;
  const bool goes_on = process.membership()->wait_for_newer(Clock::now() + kNewerWorldTimeout);
  return !goes_on && process.others_have_finished();
}

}  // namespace

Run::Run(State& state) : impl_(StateImpl::of(state)) {
  auto& process = ProcessWorld::instance();
  if (impl_.running) throw InvalidArgumentError("elastic::run() runs already with this state");
  impl_.running = true;
  process.begin_run();
  if (auto* const membership = process.membership()) leave_watch_.emplace(membership->agent());
  impl_.keep_in_agent();
}

Run::~Run() {
  leave_watch_.reset();
  impl_.end_saving(goes_on_without_this());
  impl_.leave_agent();
  ProcessWorld::instance().end_run();
  impl_.running = false;
}

Turn Run::next(std::exception_ptr thrown) {
  auto& process = ProcessWorld::instance();
  bool finishing = called_ && !thrown;
  if (!called_ && process.is_joining()) impl_.make_room();

  for (;;) {
    if (!thrown) {
      try {
        if (!finishing) return begin_turn();
        impl_.finish();
        process.finish_run();
        return Turn::done;
      } catch (const std::exception&) {
        thrown = std::current_exception();
      }
    }

    if (const auto over = after_failure(thrown, finishing)) return *over;
    thrown = nullptr;
    finishing = false;
    again_ = true;
  }
}

Turn Run::begin_turn() {
  if ((again_ || ProcessWorld::instance().needs_next()) && enter_next() == Entered::left) {
    return Turn::left;
  }
  const auto status = impl_.begin(rolls_back_);
  if (status != worker::RunStatus::goes_on) return after_the_end(status);
  if (again_) impl_.call_back();
  called_ = true;
  return Turn::call;
}

// A newcomer has no part in what this run has made, unless its agent has kept that. Where the
// program goes on, a later run has a state for it; else there is nothing left that it could do.
Turn Run::after_the_end(worker::RunStatus status) {
  auto& process = ProcessWorld::instance();
  if (status == worker::RunStatus::is_finished) {
    HVD_LOG(info, "elastic::run(): the others have finished this run already");
    process.skip_run();
    return Turn::done;
  }
  if (called_ || impl_.has_inherited_end()) {
    process.finish_run();
    return Turn::done;
  }
  process.leave_finished_run();
  return Turn::left;
}

std::optional<Turn> Run::after_failure(const std::exception_ptr& thrown, bool finishing) {
  auto& process = ProcessWorld::instance();
  try {
    std::rethrow_exception(thrown);
  } catch (const HostsUpdated&) {
    rolls_back_ = !impl_.is_at_commit();
  } catch (const CollectiveError& error) {
    if (process.membership() == nullptr) throw;
    const bool is_over = process.is_leaving() || !process.stands();
    if (!(is_over ? may_form_again(error.what()) : ends_world(error.what()))) throw;
    HVD_LOG(info, "elastic::run(): " << error.what());
    rolls_back_ = true;
  } catch (const Error& error) {
    // The function, or another thread, has called shutdown(): nothing can be called any more.
    if (process.membership() == nullptr || !process.is_leaving()) throw;
    HVD_LOG(info, "elastic::run(): " << error.what());
  }

  if (process.is_leaving()) return Turn::left;
  if (finishing && all_had_finished()) {
    impl_.forget();
    process.finish_run();
    return Turn::done;
  }
  return std::nullopt;
}

bool Run::ends_world(const char* why) {
  const auto at = impl_.newest_commit();
  if (given_up_.count(at) == kTimesGivenUp) {
    HVD_LOG(error, "elastic::run(): the program has given up the world "
                       << kTimesGivenUp << " times since commit " << to_text(at));
    return false;
  }
  // Without a world another thread has called shutdown().
  if (const auto world = ProcessWorld::instance().world()) {
    worker::StateChannel(*world).give_up(
        Status(Code::aborted, cat("the program of rank ", world->rank(), " gives up: ", why)));
  }
  return true;
}

// Somebody on the way alters what the members send. They live, or the driver would have announced
// another generation. After other failures they go on trying: a network may heal, and members that
// gave up would take the committed state with them.
bool Run::may_form_again(const char* why) {
  auto& process = ProcessWorld::instance();
  const auto world = process.world();
  const bool was_altered = world && world->failure().status.code() == Code::data_loss;
  if (process.is_leaving() || !was_altered) return true;
  const std::pair at{process.newest_generation(), impl_.newest_commit()};
  if (altered_.count(at) < kTimesAltered) return true;
  HVD_LOG(error, "elastic::run(): generation " << at.first << " has failed " << kTimesAltered
                                               << " times since commit " << to_text(at.second)
                                               << ", and its members live: " << why);
  return false;
}

void exit_of_worker_that_left() {
  // Another thread is in exit(), which must not be called twice.
  while (ProcessWorld::instance().program_ends()) ::pause();
  std::exit(0);
}

Ending run(State& state, const std::function<void()>& body, const RunOptions& options) {
  {
    Run run(state);
    Turn turn = run.next(nullptr);
    while (turn == Turn::call) {
      std::exception_ptr thrown;
      try {
        body();
      } catch (const std::exception&) {
        thrown = std::current_exception();
      }
      turn = run.next(std::move(thrown));
    }
    if (turn == Turn::done) return Ending::done;
    HVD_LOG(info, "the job goes on without this worker");
    if (options.return_when_left) return Ending::left;
  }
  exit_of_worker_that_left();
}

}  // namespace detail
}  // namespace hvd::elastic
