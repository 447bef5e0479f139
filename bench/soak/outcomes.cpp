// The faults whose outcome is looked at when they happen: each says what must come of it, and waits
// for that.
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <sys/resource.h>
#include <thread>
#include <utility>

#include "base/text.h"
#include "bench/soak/fault_injector.h"

namespace hvd::soak {
namespace {

constexpr std::chrono::seconds kSoon{90};  // for what takes seconds on a machine that is not busy
constexpr int kStepsThatProveLife = 10;

int host_of(const test::StepLog& step_log) { return step_log.worker.at(1) - '0'; }

}  // namespace

void FaultInjector::wants(bool so, const std::string& what) {
  if (so) return;
  note("NOT SO: " + what);
  errors_ += what + "\n";
}

bool FaultInjector::comes(const std::function<bool()>& condition) {
  bool so = false;
  job_.step_logs().wait(
      [&] {
        so = condition();
        return so || job_.has_ended();
      },
      kSoon);
  return so;
}

bool FaultInjector::steps_go_on() {
  job_.step_logs().read();
  const auto wanted = job_.step_logs().newest_step() + kStepsThatProveLife;
  return comes([&] { return job_.step_logs().newest_step() >= wanted; });
}

bool FaultInjector::make_peace() {
  make_whole();
  const std::size_t all = static_cast<std::size_t>(options_.hosts * options_.slots);
  // A world that is about to change may look whole, too: steps of the same one prove that it stays.
  const bool whole = comes([&] {
    const auto world = job_.step_logs().newest_world();
    const bool is_complete = job_.step_logs().members().size() + broken_.size() >= all;
    return is_complete && steps_go_on() && job_.step_logs().newest_world() == world;
  });
  wants(whole, "every worker whose slot is not broken took part again once all hosts were whole");
  return whole;
}

bool FaultInjector::all_work_on(const std::set<int>& hosts) {
  return comes([&] {
    const auto members = job_.step_logs().members();
    return !members.empty() && std::all_of(members.begin(), members.end(), [&](auto* step_log) {
      return hosts.count(host_of(*step_log)) != 0;
    });
  });
}

void FaultInjector::name_only(const std::set<int>& hosts) {
  for (auto& [host, slots] : slots_) slots = hosts.count(host) != 0 ? options_.slots : 0;
  discover();
}

// The hosts of the next answer are others than those of the last, all of them: the workers that
// hold the state are to leave in the same world in which the first newcomers enter.
bool FaultInjector::replace_all_hosts() {
  if (!make_peace()) return false;
  std::set<int> first;
  std::set<int> second;
  for (int host = 1; host <= options_.hosts; ++host) {
    (host <= options_.hosts / 2 ? first : second).insert(host);
  }
  if (random(0, 1) == 1) first.swap(second);

  note("some hosts are removed, so that all can be replaced");
  name_only(first);
  wants(all_work_on(first), "the hosts that stayed went on");
  note("all hosts are replaced at once");
  name_only(second);
  wants(all_work_on(second), "the hosts that replaced all others went on with their work");
  wants(steps_go_on(), "steps went on after that");
  note("all hosts are back");
  for (auto& [host, slots] : slots_) slots = options_.slots;
  discover();
  return true;
}

// Each worker that is started in this slot ends with 7 before hvd::init(), until the end of the
// job.
bool FaultInjector::break_slot() {
  // Half of all work on: nothing must look like a program that fails everywhere.
  if (broken_.size() * 4 >= static_cast<std::size_t>(options_.hosts * options_.slots)) return false;
  if (!make_peace()) return false;
  const auto* const step_log = some_worker();
  if (step_log == nullptr) return false;
  const std::string worker = step_log->worker;
  note(cat(worker, " is broken for good"));
  job_.break_slot(*step_log);
  broken_.insert(worker);
  const auto world = job_.step_logs().newest_world();
  if (!job_.signal(*step_log, SIGKILL)) return true;  // it has ended by itself: its slot fails next
  wants(comes([&] {
          const auto members = job_.step_logs().members();
          return job_.step_logs().newest_world() > world && !members.empty() &&
                 std::none_of(members.begin(), members.end(),
                              [&](auto* member) { return member->worker == worker; });
        }),
        cat("there was a world without ", worker, ", whose slot is broken"));
  wants(steps_go_on(), "the others went on without it");
  return true;
}

bool FaultInjector::end_worker_well() {
  const auto* const step_log = some_worker();
  if (step_log == nullptr) return false;
  note(cat("exit(0) of ", step_log->worker));
  job_.end_well(*step_log);
  wants(steps_go_on(), "steps went on after an exit(0)");
  return true;
}

// The worker keeps what it has open, and can open nothing more: it can be in no further world.
bool FaultInjector::take_descriptors() {
  const auto* const step_log = some_worker();
  if (step_log == nullptr) return false;
  const pid_t pid = job_.pid_of(*step_log);
  if (pid <= 0) return false;
  // Numbers below 4 are taken as long as it lives: what comes free later does not serve it again.
  constexpr rlimit kNone{4, 4};
  if (::prlimit(pid, RLIMIT_NOFILE, &kNone, nullptr) != 0) return false;
  const std::string poor = step_log->worker;
  note(cat("no more descriptors for ", poor));

  // It matters when the world changes.
  job_.step_logs().read();
  const auto members = job_.step_logs().members();
  const auto other = std::find_if(members.begin(), members.end(),
                                  [&](auto* member) { return member->worker != poor; });
  if (other != members.end() && job_.signal(**other, SIGKILL)) note(cat("kill ", (*other)->worker));
  wants(comes([&] { return ::kill(pid, 0) != 0; }),
        cat(poor, ", which can open nothing, was replaced"));
  wants(steps_go_on(), "the others went on without it");
  return true;
}

// As a laptop that sleeps, or a debugger: hvdrun, its agents and their workers all stand still.
bool FaultInjector::stop_job() {
  if (!make_peace()) return false;
  const auto before = job_.step_logs().members();
  std::vector<pid_t> workers;
  for (const auto* const step_log : before) workers.push_back(job_.pid_of(*step_log));
  const std::vector<pid_t> all = job_.processes();
  note(cat("all ", all.size(), " processes of the job stop for ", options_.stop, " s"));
  for (const pid_t pid : all) ::kill(pid, SIGSTOP);
  std::this_thread::sleep_for(std::chrono::duration<double>(options_.stop));
  for (auto at = all.rbegin(); at != all.rend(); ++at) ::kill(*at, SIGCONT);
  note("they go on");

  wants(steps_go_on(), "steps went on after the stop");
  for (std::size_t rank = 0; rank < workers.size(); ++rank) {
    wants(workers[rank] > 0 && ::kill(workers[rank], 0) == 0,
          cat(before[rank]->worker, " lived on after the stop"));
  }
  return true;
}

}  // namespace hvd::soak
