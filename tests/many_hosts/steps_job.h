// A job of elastic_steps, or of examples/train, on pretend hosts, its step logs, and what can be
// done to it: for tests, for the benchmark of faults and for the soak. For one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/step_logs.h"
#include "tests/testbed/hosts.h"

namespace hvd::test {

enum class StepsProgram { elastic_steps, train };
// "elastic_steps", "train"
const char* name_of(StepsProgram program);

struct StepsJobOptions {
  StepsProgram program = StepsProgram::elastic_steps;
  // "h1:2,h2:2"; or "localhost:4": on the head itself. With `discovery` lines, one a host, which a
  // script prints that hvdrun runs ten times a second.
  std::string hosts = {};
  bool discovery = false;
  // With such lines, too: hvdrun logs in nowhere. On each host an agent joins, as a pod's would: it
  // is started again whenever it has ended.
  bool joining = false;
  bool breakable = false;  // break_slot() works
  // Everything that observes the job writes files, which are in kObserved, and it can be suspended.
  bool observed = false;
  std::vector<std::string> flags = {};          // of hvdrun
  std::vector<std::string> program_flags = {};  // of the program
};

// Directories in the /root of the head and of each host, of jobs that are observed.
inline constexpr const char* kObserved = "observed";
inline constexpr const char* kSaved = "saved";  // of the state file

class StepsJob {
 public:
  // Starts it; the bed must outlive it. Step logs of earlier jobs on this bed are removed.
  StepsJob(HostBed& bed, const StepsJobOptions& options);

  Process& process() { return *process_; }
  StepLogs& step_logs() { return step_logs_; }
  // The rules for the step logs at the end of a job that goes well.
  StepLogRules rules() const;
  // The next answer of the discovery script. Of agents that join: those whose slots it changes are
  // told to go, and come again with as many as it says.
  void discover(const std::string& answer);
  // It was crashed, and has booted: its agent joins again.
  void host_is_back(Host& host);
  // Of a worker at a point ("h1#0", "any"; elastic_steps.cpp says what there is), on all hosts.
  // Only elastic_steps takes orders.
  void order(const std::string& worker, const std::string& point, const std::string& action);
  // This worker, or with `train` some worker of its host, ends with code 1 at its next step.
  void fail(const StepLog& step_log);
  // The same with code 0, by which no worker of an elastic job says that the work is done.
  void end_well(const StepLog& step_log);
  // Workers that are started in this worker's slot from now on end with 7 before hvd::init().
  void break_slot(const StepLog& step_log);
  // It is to end after the step that it is in.
  void say_enough();

  // For a job that is observed. What the disk of this directory does from now on, on all hosts:
  // "full", ... as tests/support/bad_files.c knows it; "well".
  void set_disk(const char* directory, const std::string& mode);
  // With all that is in it. It is made anew, empty.
  void remove_observed();
  void make_observed();
  std::filesystem::path events_file() const;
  // SIGTERM to hvdrun, and its end. Then take_up() starts the same command again, where every host
  // has the state file, as on a shared file system.
  ExitStatus suspend();
  // hvdrun is killed, and its end. Then start_driver() starts the same command again, which goes on
  // with the job.
  ExitStatus crash_driver();
  void start_driver() { start(); }
  std::vector<std::filesystem::path> state_files() const;
  void take_up();

  // The process behind a step log, as this machine counts; -1: it is gone.
  pid_t pid_of(const StepLog& step_log);
  bool signal(const StepLog& step_log, int number);
  pid_t agent_of(Host& host) const;
  // hvdrun has; its status is still to be asked for.
  bool has_ended() const;
  // hvdrun, the agents and what they keep, and the workers, in this order, as this machine counts.
  std::vector<pid_t> processes() const;
  Host& host_of(const StepLog& step_log);

 private:
  void start();
  std::vector<Host*> places() const;
  void hand_out_slots(const std::string& answer);

  HostBed& bed_;
  bool joining_;
  StepsProgram program_;
  StepLogs step_logs_;
  std::vector<std::string> command_;
  std::unique_ptr<Process> process_;
  std::map<std::string, std::unique_ptr<Process>> joiners_;  // by host
};

}  // namespace hvd::test
