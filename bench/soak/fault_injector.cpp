#include "bench/soak/fault_injector.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <utility>

#include "base/text.h"

namespace hvd::soak {
namespace {

constexpr int kMostAway = 2;

Duration seconds(double count) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(count));
}

}  // namespace

FaultInjector::FaultInjector(test::HostBed& bed, test::StepsJob& job, Agreement& agreement,
                             const FaultOptions& options)
    : bed_(bed), job_(job), agreement_(agreement), options_(options), random_(options.seed) {
  for (int host = 1; host <= options_.hosts; ++host) slots_[host] = options_.slots;
}

std::string FaultInjector::answer(int hosts, int slots) {
  std::string text;
  for (int host = 1; host <= hosts; ++host) text += cat("h", host, ":", slots, "\n");
  return text;
}

// The same for each seed wherever it runs, unlike the library's distributions.
double FaultInjector::random(double least, double most) {
  return least + (most - least) * static_cast<double>(random_() >> 11) * 0x1p-53;
}

int FaultInjector::random(int least, int most) {
  return least + static_cast<int>(random_() % static_cast<std::uint64_t>(most - least + 1));
}

void FaultInjector::note(const std::string& what) {
  const auto at = std::chrono::duration<double>(Clock::now() - begin_).count();
  diary_ += cat(static_cast<long>(at * 1000), " ms: ", what, "\n");
}

const test::StepLog* FaultInjector::some_worker() {
  job_.step_logs().read();
  const auto members = job_.step_logs().members();
  // At least one worker that holds the state must be left.
  if (members.size() < 3) return nullptr;
  return members[static_cast<std::size_t>(random(0, static_cast<int>(members.size()) - 1))];
}

int FaultInjector::some_host() {
  if (away_.size() >= kMostAway) return 0;
  // Workers that return do not hold the state yet, so that another worker must hold it.
  job_.step_logs().read();
  const auto members = job_.step_logs().members();
  std::vector<int> candidates;
  for (int host = 1; host <= options_.hosts; ++host) {
    if (away_.count(host) != 0) continue;
    const bool others = std::any_of(members.begin(), members.end(), [&](const auto* step_log) {
      const int of = step_log->worker.at(1) - '0';
      return of != host && away_.count(of) == 0;
    });
    if (others) candidates.push_back(host);
  }
  if (candidates.empty()) return 0;
  return candidates[static_cast<std::size_t>(random(0, static_cast<int>(candidates.size()) - 1))];
}

void FaultInjector::later(double least, double most, std::function<void()> what) {
  later_.push_back({Clock::now() + seconds(random(least, most)), std::move(what)});
}

void FaultInjector::discover() {
  std::string text;
  for (const auto& [host, slots] : slots_) {
    if (slots > 0) text += cat("h", host, ":", slots, "\n");
  }
  job_.discover(text);
}

bool FaultInjector::kill_worker() {
  const auto* const step_log = some_worker();
  if (step_log == nullptr) return false;
  note(cat("kill ", step_log->worker));
  return job_.signal(*step_log, SIGKILL);
}

bool FaultInjector::fail_worker() {
  const auto* const step_log = some_worker();
  if (step_log == nullptr) return false;
  note(cat("exit 1 of ", step_log->worker));
  job_.fail(*step_log);
  return true;
}

bool FaultInjector::freeze_worker() {
  const auto* const step_log = some_worker();
  if (step_log == nullptr) return false;
  note(cat("freeze ", step_log->worker));
  return job_.signal(*step_log, SIGSTOP);
}

bool FaultInjector::cut_host() {
  const bool one_is_cut = std::any_of(away_.begin(), away_.end(),
                                      [](const auto& away) { return away.second == "cut"; });
  const int host = some_host();
  if (host == 0 || one_is_cut) return false;  // healing heals all
  note(cat("cut h", host));
  away_[host] = "cut";
  bed_.cut_off(bed_.host(host));
  later(0.1, 2, [this, host] {
    note(cat("heal h", host));
    bed_.heal();
    away_.erase(host);
  });
  return true;
}

bool FaultInjector::crash_host() {
  const int host = some_host();
  if (host == 0) return false;
  note(cat("crash h", host));
  away_[host] = "crashed";
  bed_.crash(bed_.host(host));
  later(0.5, 4, [this, host] {
    note(cat("boot h", host));
    bed_.boot(bed_.host(host));
    job_.host_is_back(bed_.host(host));
    away_.erase(host);
  });
  return true;
}

bool FaultInjector::remove_host() {
  const int host = some_host();
  if (host == 0) return false;
  const int slots = random(0, options_.slots - 1);
  note(cat("h", host, " has ", slots, " slots"));
  away_[host] = "removed";
  slots_[host] = slots;
  discover();
  return true;
}

bool FaultInjector::add_host() {
  for (const auto& [host, why] : away_) {
    if (why != "removed") continue;
    note(cat("h", host, " is back"));
    slots_[host] = options_.slots;
    away_.erase(host);
    discover();
    return true;
  }
  return false;
}

bool FaultInjector::preempt_worker() {
  const auto* const step_log = some_worker();
  if (step_log == nullptr) return false;
  note(cat("SIGTERM to ", step_log->worker));
  return job_.signal(*step_log, SIGTERM);
}

bool FaultInjector::preempt_agent() {
  const int host = some_host();
  if (host == 0) return false;
  const pid_t agent = job_.agent_of(bed_.host(host));
  if (agent <= 0) return false;
  note(cat("SIGTERM to the agent of h", host));
  return ::kill(agent, SIGTERM) == 0;
}

// The next one comes after a while, in which the workers go on by themselves.
bool FaultInjector::kill_driver() {
  agreement_.pause();
  note("kill hvdrun");
  said_before_ += job_.crash_driver().err;
  read_until(Clock::now() + seconds(random(0.0, 2.0)));
  note("another hvdrun");
  job_.start_driver();
  // It replaces the file of events of the one before when it has read the job's journal.
  if (!job_.process().wait_for_error("goes on with job")) {
    errors_ += "no other hvdrun went on with the job\n";
  }
  agreement_.follow(job_.events_file(), job_.process().pid());
  return true;
}

// All members of the newest world at once. The hosts are all there, or the newest commit could lie
// with none.
bool FaultInjector::kill_all() {
  if (!options_.keeps_state || !away_.empty()) return false;
  const auto members = workers();
  if (members.empty()) return false;
  note("kill all workers");
  for (const auto& [worker, pid] : members) {
    if (pid > 0) ::kill(pid, SIGKILL);
  }
  return true;
}

void FaultInjector::do_what_is_due() {
  for (std::size_t at = 0; at < later_.size();) {
    if (later_[at].when > Clock::now()) {
      ++at;
      continue;
    }
    const auto what = std::move(later_[at].what);
    later_.erase(later_.begin() + static_cast<std::ptrdiff_t>(at));
    what();
  }
}

const std::vector<FaultInjector::Fault>& FaultInjector::faults() {
  static const std::vector<Fault> kFaults{
      {"kill", &FaultInjector::kill_worker},
      {"exit", &FaultInjector::fail_worker},
      {"freeze", &FaultInjector::freeze_worker},
      {"cut", &FaultInjector::cut_host},
      {"crash", &FaultInjector::crash_host},
      {"add", &FaultInjector::add_host},
      {"remove", &FaultInjector::remove_host},
      {"preempt", &FaultInjector::preempt_worker},
      {"preempt-host", &FaultInjector::preempt_agent},
      {"kill-driver", &FaultInjector::kill_driver},
      {"kill-all", &FaultInjector::kill_all},
      {"replace-all", &FaultInjector::replace_all_hosts},
      {"break-slot", &FaultInjector::break_slot},
      {"exit-0", &FaultInjector::end_worker_well},
      {"descriptors", &FaultInjector::take_descriptors},
      {"stop", &FaultInjector::stop_job},
      {"full-disk", &FaultInjector::fill_disk},
      {"hung-disk", &FaultInjector::hang_disk},
      {"no-directory", &FaultInjector::remove_directory},
      {"suspend-slow-disk", &FaultInjector::suspend_to_slow_disk}};
  return kFaults;
}

std::vector<std::string> FaultInjector::names() {
  std::vector<std::string> names;
  for (const Fault& fault : faults()) names.emplace_back(fault.name);
  return names;
}

const FaultInjector::Fault& FaultInjector::next_fault() {
  if (deck_.empty()) {
    for (const Fault& fault : faults()) {
      if (options_.only.empty() || options_.only.count(fault.name) != 0) deck_.push_back(&fault);
    }
    for (int left = static_cast<int>(deck_.size()); left > 1; --left) {
      std::swap(deck_[static_cast<std::size_t>(left - 1)],
                deck_[static_cast<std::size_t>(random(0, left - 1))]);
    }
  }
  const Fault& fault = *deck_.back();
  deck_.pop_back();
  return fault;
}

void FaultInjector::read_until(TimePoint end) {
  while (Clock::now() < end) {
    // It says nothing like this.
    job_.process().wait_for_error("\n\n\n", std::chrono::milliseconds(20));
    job_.step_logs().read();
  }
}

void FaultInjector::run(double duration) {
  begin_ = Clock::now();
  const TimePoint end = begin_ + seconds(duration);
  while (Clock::now() < end) {
    const TimePoint next =
        std::min(end, Clock::now() + seconds(random(options_.least_pause, options_.most_pause)));
    while (Clock::now() < next) {
      do_what_is_due();
      read_until(std::min(next, Clock::now() + std::chrono::milliseconds(20)));
    }
    const Fault& fault = next_fault();
    if ((this->*fault.inject)()) ++account_[fault.name];
  }
}

void FaultInjector::make_whole() {
  for (auto& one : later_) one.what();
  later_.clear();
  away_.clear();
  for (auto& [host, slots] : slots_) slots = options_.slots;
  discover();
  note("all hosts are whole");
}

std::string FaultInjector::expected_error() const {
  return account_.contains("descriptors") ? "Too many open files" : "";
}

std::string FaultInjector::account() const {
  std::vector<std::string> parts;
  for (const auto& [name, count] : account_) parts.push_back(cat(name, " ", count));
  return join(parts, ", ");
}

}  // namespace hvd::soak
