// Agents of a job that die, are silent, are other programs, or join by themselves.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <string>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "base/machine/proc.h"
#include "base/security/crypto.h"
#include "base/socket.h"
#include "base/text.h"
#include "driver/core/job_spec.h"
#include "driver/journal/state_directory.h"
#include "tests/driver/run_job_test.h"

namespace hvd::driver {
namespace {

using std::chrono::milliseconds;

// Worker, reaper, agent: the agent is the child of this process. 0 if it is not to be found.
pid_t agent_of(const WorkerView& worker) {
  pid_t agent = worker.pid;
  while (agent > 1 && parent_of(agent) != ::getpid()) agent = parent_of(agent).value_or(0);
  return agent;
}

TEST_F(RunJob, kills_all_that_a_killed_agent_leaves_and_names_its_host) {
  spec.hosts = {{"localhost", 1}, {"127.0.0.1", 1}};
  seen.at_output = [](const WorkerView& worker, const std::string& text) {
    if (worker.rank != 1 || text != "up\n") return;
    const pid_t agent = agent_of(worker);
    ASSERT_GT(agent, 1);
    ::kill(agent, SIGKILL);
  };
  const auto outcome =
      run("[ $HVD_RANK = 0 ] && exec sleep 1000; "
          "setsid sleep 1000 & trap '' TERM; echo up; sleep 1000");
  EXPECT_EQ(outcome.exit_code, 1);
  ASSERT_TRUE(outcome.failure.has_value());
  EXPECT_EQ(outcome.failure->worker.rank, -1);
  EXPECT_EQ(outcome.failure->worker.host, "127.0.0.1");
  EXPECT_EQ(outcome.failure->cause, "its agent went away: it was killed by SIGKILL (signal 9)");
  EXPECT_EQ(seen.exited[1], "ended with its agent");
}

// Each step of the job was written down, and its last action was not done.
TEST_F(RunJob, that_was_over_when_its_driver_died_is_ended_by_the_next_one) {
  spec.elastic.emplace();
  spec.state = StateSpec{directory.path() / "state"};
  const char* const script = "echo ran >> ran; cp state/job.json left.json";
  EXPECT_EQ(run(script).exit_code, 0);
  const std::string ran = test::read_file(directory.path() / "ran");
  EXPECT_NE(ran, "");
  EXPECT_FALSE(std::filesystem::exists(directory.path() / "state" / "job.json"));

  seen.started.clear();
  std::filesystem::rename(directory.path() / "left.json", directory.path() / "state" / "job.json");
  const auto outcome = run(script);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.reason;
  EXPECT_TRUE(seen.started.empty());
  EXPECT_EQ(test::read_file(directory.path() / "ran"), ran) << "its workers are started again";
  EXPECT_FALSE(std::filesystem::exists(directory.path() / "state" / "job.json"));
}

TEST_F(RunJob, that_has_ended_is_not_begun_anew_by_who_stands_by) {
  spec.elastic.emplace();
  spec.state = StateSpec{directory.path() / "state"};
  spec.state->stands_by = true;
  auto other = StateDirectory::open(spec.state->directory, false);
  ASSERT_TRUE(other.ok()) << other.status().to_string();
  seen.at_notice = [&] {
    if (seen.notices.back().starts_with("stands by")) other = Status(Code::unavailable, "ended");
  };
  const auto outcome = run("echo ran >> ran");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.reason;
  EXPECT_EQ(outcome.reason, cat("the job in ", spec.state->directory, " has ended"));
  EXPECT_FALSE(std::filesystem::exists(directory.path() / "ran"));
}

// A debugger of this process holds on to a process that was killed, until it ends itself.
class Debugger {
 public:
  Debugger() : sockets_(*socket_pair()) {
    pid_ = ::fork();
    if (pid_ == 0) run(sockets_.second.get());
  }
  ~Debugger() { end(); }
  Debugger(const Debugger&) = delete;
  Debugger& operator=(const Debugger&) = delete;

  bool seize(pid_t process) const {
    bool held = false;
    return ::write(sockets_.first.get(), &process, sizeof process) == sizeof process &&
           ::read(sockets_.first.get(), &held, sizeof held) == sizeof held && held;
  }
  void end() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(std::exchange(pid_, 0), nullptr, 0);
  }

 private:
  [[noreturn]] static void run(int socket) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    pid_t process = 0;
    if (::read(socket, &process, sizeof process) != sizeof process) ::_exit(1);
    const bool held = ::ptrace(PTRACE_SEIZE, process, nullptr, nullptr) == 0;
    if (::write(socket, &held, sizeof held) != sizeof held) ::_exit(1);
    for (;;) ::pause();
  }

  std::pair<UniqueFd, UniqueFd> sockets_;
  pid_t pid_ = 0;
};

// Its loop goes on meanwhile, or the leases of the other agents would end.
TEST_F(RunJob, waits_beside_its_work_for_what_a_killed_agent_leaves_to_die) {
  Debugger debugger;
  bool held = false;
  spec.hosts = {{"localhost", 1}, {"127.0.0.1", 1}};
  std::map<int, WorkerView> up;
  seen.at_output = [&](const WorkerView& worker, const std::string& text) {
    if (text == "up\n") up.emplace(worker.rank, worker);
    if (text == "up\n" && up.size() == 2) {
      held = debugger.seize(up.at(1).pid);
      ::kill(agent_of(up.at(1)), SIGKILL);
    }
    if (worker.rank == 0 && text == "up\nasked to end\n") debugger.end();
  };
  const auto outcome = run("trap 'echo asked to end; exit 1' TERM; echo up; sleep 1000 & wait");
  EXPECT_EQ(outcome.exit_code, 1);
  if (!held) GTEST_SKIP() << "no process may be debugged here";
  EXPECT_EQ(seen.out[0], "up\nasked to end\n");
  EXPECT_TRUE(seen.warnings.empty()) << seen.warnings.front();
}

TEST_F(RunJob, gives_up_an_agent_that_is_silent_for_too_long_and_leaves_nothing_of_it) {
  spec.hosts = {{"localhost", 1}, {"127.0.0.1", 1}};
  spec.heartbeat_timeout = milliseconds(500);
  seen.at_output = [](const WorkerView& worker, const std::string& text) {
    if (worker.rank != 1 || text != "up\n") return;
    const pid_t agent = agent_of(worker);
    ASSERT_GT(agent, 1);
    ::kill(agent, SIGSTOP);
  };
  const auto outcome = run("[ $HVD_RANK = 1 ] && echo up; exec sleep 1000");
  EXPECT_EQ(outcome.exit_code, 1);
  ASSERT_TRUE(outcome.failure.has_value());
  EXPECT_EQ(outcome.failure->worker.rank, -1);
  EXPECT_EQ(outcome.failure->worker.host, "127.0.0.1");
  EXPECT_EQ(outcome.failure->cause,
            "no sign of life for 0.5 s (--heartbeat-timeout): its agent hangs or was stopped");
  EXPECT_EQ(seen.exited[1], "ended with its agent");
}

TEST_F(RunJob, keeps_an_agent_that_is_heard_as_long_as_the_job_takes) {
  spec.heartbeat_timeout = milliseconds(300);
  EXPECT_EQ(run("sleep 1.5").exit_code, 0);
  EXPECT_TRUE(seen.warnings.empty()) << seen.warnings.front();
}

// Programs that are not agents.

void expect_failed(const Outcome& outcome, const std::string& because) {
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.reason.find(because), std::string::npos) << outcome.reason;
}

TEST_F(RunJob, says_that_the_agent_cannot_be_started) {
  spec.agent_path = directory.path() / "no-agent";
  const auto outcome = run("true");
  expect_failed(outcome, spec.agent_path);
  expect_failed(outcome, "No such file");
}

TEST_F(RunJob, says_that_the_program_is_no_agent_when_it_just_ends) {
  spec.agent_path = "/bin/true";
  expect_failed(run("true"), "exited with code 0; is /bin/true the hvd-agent");
}

TEST_F(RunJob, says_that_the_program_is_no_agent_when_it_echoes) {
  spec.agent_path = "/bin/cat";
  expect_failed(run("true"), "which no agent sends; is /bin/cat the hvd-agent");
}

TEST_F(RunJob, says_that_the_program_is_no_agent_when_it_writes_rubbish) {
  spec.agent_path = script_file(
      cat("#!/bin/sh\nexport ", kTag, "=", tag, "\necho all kinds of rubbish\nexec sleep 1000\n"));
  expect_failed(run("true"), "the program there is not the expected agent: a frame of");
}

TEST_F(RunJob, gives_up_an_agent_that_never_answers) {
  spec.start_timeout = milliseconds(200);
  spec.agent_path =
      script_file(cat("#!/bin/sh\nexport ", kTag, "=", tag, "\nsleep 1000 &\nexec sleep 1000\n"));
  expect_failed(run("true"),
                "host localhost cannot take part: start agent: no answer within 0.2 s");
}

TEST_F(RunJob, kills_an_agent_that_closes_its_link_and_stays) {
  spec.agent_path =
      script_file(cat("#!/bin/sh\nexport ", kTag, "=", tag, "\nexec sleep 1000 <&- >&-\n"));
  expect_failed(run("true"), "closed its link and did not end");
}

// Agents that join by themselves.

TEST_F(RunJob, names_the_hosts_that_did_not_join) {
  spec.join = JoinSpec{{"127.0.0.1", 0}, Token::random()};
  spec.hosts = {{"a", 1}, {"b", 1}};
  spec.start_timeout = milliseconds(100);
  const auto outcome = run("true");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.reason.substr(0, 82),
            "0 of 2 hosts have joined within 0.1 s (--start-timeout): a and b did not come to 1")
      << outcome.reason;
}

TEST_F(RunJob, wants_to_know_for_how_many_agents_to_wait) {
  spec.join = JoinSpec{{"127.0.0.1", 0}, Token::random()};
  spec.hosts.clear();
  EXPECT_NE(run("true").reason.find("(-np) or the hosts (-H)"), std::string::npos);
}

TEST_F(RunJob, can_be_interrupted_while_it_waits_for_agents) {
  spec.join = JoinSpec{{"127.0.0.1", 0}, Token::random()};
  spec.start_timeout = std::chrono::hours(1);
  seen.at_notice = [] { ::kill(::getpid(), SIGINT); };
  EXPECT_EQ(run("true").exit_code, 130);
  ASSERT_EQ(seen.notices.size(), 1U);
  EXPECT_EQ(seen.notices[0].substr(0, 21), "waiting at 127.0.0.1:");
}

}  // namespace
}  // namespace hvd::driver
