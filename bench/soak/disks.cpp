// The faults of the disks that a job writes to. A bad disk of the observers must end neither the
// job nor any of its workers (docs/internals/observers.md), and a slow disk must lose nothing of
// its state.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <utility>

#include "base/text.h"
#include "bench/soak/fault_injector.h"

namespace hvd::soak {
namespace {

namespace fs = std::filesystem;

constexpr int kSuspended = 75;
constexpr const char* kWell = "well";

}  // namespace

std::map<std::string, pid_t> FaultInjector::workers() {
  job_.step_logs().read();
  std::map<std::string, pid_t> found;
  for (const auto* const member : job_.step_logs().members()) {
    found[member->worker] = job_.pid_of(*member);
  }
  return found;
}

void FaultInjector::wants_alive(const std::map<std::string, pid_t>& workers,
                                const std::string& when) {
  for (const auto& [worker, pid] : workers) {
    wants(pid > 0 && ::kill(pid, 0) == 0, cat(worker, " lived on ", when));
  }
}

bool FaultInjector::spoil_disk(const std::string& what, const std::function<void()>& spoil,
                               const std::function<void()>& mend) {
  if (!make_peace()) return false;
  auto survivors = workers();
  const auto world = job_.step_logs().newest_world();
  note(what);
  spoil();
  read_until(Clock::now() + std::chrono::milliseconds(random(1000, 7000)));
  wants(steps_go_on(), cat("steps went on when ", what));
  wants(job_.step_logs().newest_world() == world, cat("the world stayed when ", what));
  wants_alive(survivors, cat("when ", what));

  // The observers of a world open their files when it begins, on the host of rank 0.
  const auto members = job_.step_logs().members();
  if (!members.empty()) {
    const std::string first = members.front()->worker;
    note(cat("kill ", first, ", rank 0"));
    job_.signal(*members.front(), SIGKILL);
    survivors.erase(first);
    wants(comes([&] { return job_.step_logs().newest_world() > world; }) && steps_go_on(),
          cat("another world went on when ", what));
    wants_alive(survivors, cat("in another world when ", what));
  }

  note("that is over");
  mend();
  wants(steps_go_on(), cat("steps went on after ", what));
  wants_alive(survivors, cat("after ", what));
  return true;
}

bool FaultInjector::fill_disk() {
  return spoil_disk(
      "the disk of what observes is full",
      [this] {
        agreement_.distrust_events();
        events_are_whole_ = false;
        job_.set_disk(test::kObserved, "full");
      },
      [this] { job_.set_disk(test::kObserved, kWell); });
}

bool FaultInjector::hang_disk() {
  std::uintmax_t size = 0;
  return spoil_disk(
      "the disk of what observes hangs",
      [&] {
        agreement_.distrust_events();
        job_.set_disk(test::kObserved, "hang");
        if (events_are_whole_) size = fs::file_size(job_.events_file());
      },
      [&] {
        job_.set_disk(test::kObserved, kWell);
        if (!events_are_whole_) return;
        wants(comes([&] { return fs::file_size(job_.events_file()) > size; }),
              "the events went on when the disk did");
      });
}

// Files that are open go on without a name.
bool FaultInjector::remove_directory() {
  return spoil_disk(
      "the directory of what observes is removed",
      [this] {
        events_are_whole_ = false;
        job_.remove_observed();
      },
      [this] { job_.make_observed(); });
}

bool FaultInjector::suspend_to_slow_disk() {
  if (!make_peace()) return false;
  const auto leaving = workers();
  const auto world = job_.step_logs().newest_world();
  agreement_.pause();
  const int rate = random(200'000, 2'000'000);
  job_.set_disk(test::kSaved, cat("rate ", rate));
  note(cat("the job is suspended to a disk that takes ", rate, " bytes a second"));
  const auto end = job_.suspend();
  suspensions_.push_back(Clock::now());
  said_before_ += end.err;
  note(cat("it has ended with ", end.code));
  wants(end.code == kSuspended, cat("a job that was suspended ended with ", kSuspended));
  wants(job_.state_files().size() == 1, "the suspended job left one state file");
  for (const auto& [worker, pid] : leaving) {
    wants(test::eventually([pid = pid] { return ::kill(pid, 0) != 0; }),
          cat(worker, " ended with the job that was suspended"));
  }

  job_.remove_observed();
  job_.make_observed();
  job_.set_disk(test::kSaved, kWell);
  job_.take_up();
  note("it is taken up");
  events_are_whole_ = true;
  // From which step is what the step logs are judged for at the end.
  wants(comes([&] { return job_.step_logs().newest_world() > world; }) && steps_go_on(),
        "the job went on when it was taken up");
  agreement_.follow(job_.events_file(), job_.process().pid());
  return true;
}

}  // namespace hvd::soak
