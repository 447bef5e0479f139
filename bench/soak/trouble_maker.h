// Disturbs a job by a seed. It always leaves one host alone, so that somebody holds the state: the
// job must survive all that it does. For one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "tests/many_hosts/steps_job.h"

namespace hvd::soak {

struct TroubleOptions {
  int hosts = 4;
  int slots = 2;
  std::uint64_t seed = 1;
  double least_pause = 2;  // seconds
  double most_pause = 5;
};

class TroubleMaker {
 public:
  TroubleMaker(test::HostBed& bed, test::StepsJob& job, const TroubleOptions& options);

  // What discovery prints when all hosts are there.
  static std::string answer(int hosts, int slots);

  // Until the time is up, or the job ends.
  void run(double seconds);
  // Ends all that still is in force, so that the job can end in peace.
  void make_whole();

  // "kill 7, freeze 3"
  std::string account() const;
  // Line by line what was done, and how many ms after begin().
  const std::string& diary() const { return diary_; }
  TimePoint begin() const { return begin_; }

 private:
  struct Fault {
    const char* name;
    bool (TroubleMaker::*inject)();  // false: not now
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

  double random(double least, double most);
  int random(int least, int most);
  const test::StepsBook* some_worker();
  // A host that nothing is the matter with, while enough others are so; 0: none.
  int some_host();
  void later(double least, double most, std::function<void()> what);
  void do_what_is_due();
  void discover();
  void note(const std::string& what);

  test::HostBed& bed_;
  test::StepsJob& job_;
  TroubleOptions options_;
  std::mt19937_64 random_;
  std::vector<Later> later_;
  std::map<int, std::string> away_;  // hosts, and what is the matter with them
  std::map<int, int> slots_;         // as discovery says; 0: it does not name the host
  std::map<std::string, int> account_;
  std::string diary_;
  TimePoint begin_ = Clock::now();
};

}  // namespace hvd::soak
