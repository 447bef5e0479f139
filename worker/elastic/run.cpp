#include <chrono>
#include <cstdlib>
#include <optional>
#include <unistd.h>

#include <hvd/elastic.h>
#include <hvd/error.h>

#include "base/log.h"
#include "base/text.h"
#include "worker/elastic/leave_watch.h"
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

class Running {
 public:
  explicit Running(StateImpl& state) : state_(state) {
    if (state.running) throw InvalidArgumentError("elastic::run() runs already with this state");
    state.running = true;
    ProcessWorld::instance().begin_run();
  }
  ~Running() {
    ProcessWorld::instance().end_run();
    state_.running = false;
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  StateImpl& state_;
};

enum class Entered { yes, left };

Entered enter_next() {
  auto& process = ProcessWorld::instance();
  const Status entered = process.enter_next();
  if (entered.ok()) return Entered::yes;
  if (process.membership()->is_out() || process.is_leaving()) return Entered::left;
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

Ending run(State& state, const std::function<void()>& body, const RunOptions& options) {
  auto& process = ProcessWorld::instance();
  auto& impl = StateImpl::of(state);
  const Running running(impl);
  std::optional<worker::LeaveWatch> leave_watch;
  if (auto* const membership = process.membership()) leave_watch.emplace(membership->agent());
  process.set_finished(false);
  if (process.is_joining()) impl.make_room();

  bool again = false;
  bool rolls_back = false;
  for (;;) {
    bool finishing = false;
    try {
      if ((again || process.needs_next()) && enter_next() == Entered::left) break;
      impl.begin(rolls_back);
      if (again) impl.call_back();
      body();
      finishing = true;
      impl.finish();
      process.set_finished(true);
      return Ending::done;
    } catch (const HostsUpdated&) {
      rolls_back = !impl.is_at_commit();
    } catch (const CollectiveError& error) {
      const bool is_over =
          process.membership() != nullptr && (process.is_leaving() || !process.stands());
      if (!is_over) throw;
      HVD_LOG(info, "elastic::run(): " << error.what());
      rolls_back = true;
    } catch (const Error& error) {
      // The function, or another thread, has called shutdown(): nothing can be called any more.
      if (process.membership() == nullptr || !process.is_leaving()) throw;
      HVD_LOG(info, "elastic::run(): " << error.what());
    }

    if (process.is_leaving()) break;
    if (finishing && all_had_finished()) {
      process.set_finished(true);
      return Ending::done;
    }
    again = true;
  }

  HVD_LOG(info, "the job goes on without this worker");
  if (options.return_when_left) return Ending::left;
  leave_watch.reset();
  // Another thread is in exit(), which must not be called twice.
  while (process.program_ends()) ::pause();
  std::exit(0);
}

}  // namespace detail
}  // namespace hvd::elastic
