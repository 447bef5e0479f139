// Injects faults into a job, chosen by a seed. At least one worker that holds the state is always
// spared, so that the job must survive all faults. For one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "bench/soak/agreement.h"
#include "tests/many_hosts/steps_job.h"

namespace hvd::soak {

struct FaultOptions {
  int hosts = 4;
  int slots = 2;
  std::uint64_t seed = 1;
  double least_pause = 2;  // seconds
  double most_pause = 5;
  double stop = 40;            // seconds for which the whole job stands still
  bool keeps_state = false;    // agents do, so that no worker need be spared
  std::set<std::string> only;  // names of faults; empty: all
};

class FaultInjector {
 public:
  // The job is observed. When it is suspended, another hvdrun takes it up, which `agreement` is
  // made to follow.
  FaultInjector(test::HostBed& bed, test::StepsJob& job, Agreement& agreement,
                const FaultOptions& options);

  // "kill", "exit", ... as FaultOptions::only knows them.
  static std::vector<std::string> names();
  // The output of discovery when all hosts are there.
  static std::string answer(int hosts, int slots);

  // Until the time is up, or the job ends.
  void run(double seconds);
  // Ends all that is in force: cuts, crashes, hosts that discovery does not name.
  void make_whole();

  // Missing consequences of faults, one per line; empty if there are none.
  const std::string& errors() const { return errors_; }
  // Part of the error message with which workers may end after these faults; empty: no error may
  // occur.
  std::string expected_error() const;
  // "kill 7, freeze 3"
  std::string account() const;
  // Line by line what was done, and how many ms after begin().
  const std::string& diary() const { return diary_; }
  TimePoint begin() const { return begin_; }
  // The output of each hvdrun that was suspended, and when it ended.
  const std::string& said_before() const { return said_before_; }
  const std::vector<TimePoint>& suspensions() const { return suspensions_; }

 private:
  struct Fault {
    const char* name;
    bool (FaultInjector::*inject)();  // false: not now
  };
  struct Later {
    TimePoint when;
    std::function<void()> what;
  };

  bool kill_worker();
  bool fail_worker();
  bool freeze_worker();
  bool cut_host();
  bool crash_host();
  bool add_host();
  bool remove_host();
  bool preempt_worker();
  bool preempt_agent();
  bool kill_driver();
  bool kill_all();

  // bench/soak/disks.cpp
  bool fill_disk();
  bool hang_disk();
  bool remove_directory();
  bool suspend_to_slow_disk();
  // The job goes on with the workers that it has while `spoil` is in force, and after `mend`.
  bool spoil_disk(const std::string& what, const std::function<void()>& spoil,
                  const std::function<void()>& mend);
  // The members of the newest world.
  std::map<std::string, pid_t> workers();
  void wants_alive(const std::map<std::string, pid_t>& workers, const std::string& when);

  // bench/soak/outcomes.cpp
  bool replace_all_hosts();
  bool break_slot();
  bool end_worker_well();
  bool take_descriptors();
  bool stop_job();
  // Notes an error unless `so` holds.
  void wants(bool so, const std::string& what);
  // Waits until it holds; false at a limit, or when the job has ended.
  bool comes(const std::function<bool()>& condition);
  bool steps_go_on();
  // Ends all that is in force, and waits until every worker whose slot is not broken takes part.
  bool make_peace();
  bool all_work_on(const std::set<int>& hosts);
  void name_only(const std::set<int>& hosts);

  static const std::vector<Fault>& faults();
  // Each of those that are wanted once, in an order of the seed, and then again.
  const Fault& next_fault();
  double random(double least, double most);
  int random(int least, int most);
  const test::StepLog* some_worker();
  // A healthy host, if enough others are healthy, too; 0: there is none.
  int some_host();
  void later(double least, double most, std::function<void()> what);
  void do_what_is_due();
  // Reads what hvdrun and the workers say meanwhile.
  void read_until(TimePoint end);
  void discover();
  void note(const std::string& what);

  test::HostBed& bed_;
  test::StepsJob& job_;
  Agreement& agreement_;
  FaultOptions options_;
  std::mt19937_64 random_;
  std::vector<Later> later_;
  std::map<int, std::string> away_;  // hosts, and what is the matter with them
  std::map<int, int> slots_;         // as discovery says; 0: it does not name the host
  std::set<std::string> broken_;     // workers whose slots are, for good
  std::vector<const Fault*> deck_;   // what is still to come of this round
  std::map<std::string, int> account_;
  bool events_are_whole_ = true;  // their file is in place, and has not ended early
  std::string errors_;
  std::string diary_;
  std::string said_before_;
  std::vector<TimePoint> suspensions_;
  TimePoint begin_ = Clock::now();
};

}  // namespace hvd::soak
