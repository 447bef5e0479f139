// Workers of a job: their environment, their output, and their ends.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/protocol/agent_link.h"
#include "base/text.h"
#include "tests/driver/run_job_test.h"

namespace hvd::driver {
namespace {

using std::chrono::milliseconds;

// By another thread, as soon as a worker has printed something; and before the job begins.
TEST_F(RunJob, ends_at_a_request_as_by_a_signal) {
  spec.command = {"sh", "-c", "echo up; exec sleep 1000"};
  StopRequest early;
  early.make();
  EXPECT_EQ(run_job(spec, seen, &early).exit_code, 128 + SIGTERM);

  StopRequest stop;
  std::thread asks([&] {
    EXPECT_TRUE(
        test::eventually([&] { return !test::processes_with_variable(kTag, tag).empty(); }));
    stop.make();
  });
  EXPECT_EQ(run_job(spec, seen, &stop).exit_code, 128 + SIGTERM);
  asks.join();
  stop.make();  // nothing is left to stop
}

TEST_F(RunJob, runs_every_worker_with_its_identity_and_passes_its_output) {
  spec.hosts = {{"localhost", 1}, {"127.0.0.1", 2}};
  const auto outcome =
      run("echo \"$HVD_RANK of $HVD_SIZE $HVD_WORKER $LOCAL_RANK $HOROVOD_CROSS_RANK $PWD\"; "
          "echo failure >&2");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.reason;
  EXPECT_FALSE(outcome.failure.has_value());
  const std::string where = cat(" ", directory.path().string(), "\n");
  EXPECT_EQ(seen.out[0], "0 of 3 localhost#0 0 0" + where);
  EXPECT_EQ(seen.out[1], "1 of 3 127.0.0.1#0 0 1" + where);
  EXPECT_EQ(seen.out[2], "2 of 3 127.0.0.1#1 1 0" + where);
  EXPECT_EQ(seen.err[2], "failure\n");
  EXPECT_EQ(seen.started.size(), 3U);
  EXPECT_EQ(seen.world.members.size(), 3U);
  EXPECT_TRUE(seen.warnings.empty());
}

TEST_F(RunJob, says_when_there_are_more_processes_than_slots) {
  spec.processes = 5;
  EXPECT_EQ(run("true").exit_code, 0);
  EXPECT_EQ(seen.started.size(), 5U);
  ASSERT_EQ(seen.warnings.size(), 1U);
  EXPECT_EQ(seen.warnings[0],
            "oversubscribed: 5 processes on 2 slots: 5 on localhost (2 slots); --no-oversubscribe "
            "makes this an error");
}

TEST_F(RunJob, refuses_more_processes_than_slots_if_told_to) {
  spec.processes = 5;
  spec.oversubscribe = false;
  EXPECT_EQ(run("true").reason, "Requested more processes (5) than there are available slots (2)");
}

TEST_F(RunJob, returns_the_code_and_the_last_lines_of_the_first_that_fails) {
  const auto outcome = run(
      "if [ $HVD_RANK = 1 ]; then seq 1 30 >&2; echo bad luck >&2; exit 7; fi; exec sleep 1000");
  EXPECT_EQ(outcome.exit_code, 7);
  ASSERT_TRUE(outcome.failure.has_value());
  EXPECT_EQ(outcome.failure->worker.rank, 1);
  EXPECT_EQ(outcome.failure->worker.host, "localhost");
  EXPECT_GT(outcome.failure->worker.pid, 0);
  EXPECT_EQ(outcome.failure->cause, "exited with code 7");
  ASSERT_EQ(outcome.failure->stderr_tail.size(), 20U);
  EXPECT_EQ(outcome.failure->stderr_tail.front(), "12");
  EXPECT_EQ(outcome.failure->stderr_tail.back(), "bad luck");
  EXPECT_EQ(seen.exited[0], "was killed by SIGTERM (signal 15)");
}

TEST_F(RunJob, returns_128_and_the_signal_of_a_killed_worker) {
  const auto outcome = run("[ $HVD_RANK = 0 ] && kill -SEGV $$; exec sleep 1000");
  EXPECT_EQ(outcome.exit_code, 139);
  EXPECT_EQ(outcome.reason.substr(0, 55),
            "rank 0 on localhost#0 was killed by SIGSEGV (signal 11)");
}

TEST_F(RunJob, kills_workers_that_ignore_the_end_when_the_grace_is_over) {
  spec.grace = milliseconds(100);
  // The other worker fails only once this one is known to ignore the signal.
  const auto outcome =
      run("if [ $HVD_RANK = 0 ]; then trap '' TERM; touch deaf; while :; do sleep 1000; done; fi; "
          "until [ -e deaf ]; do sleep 0.01; done; exit 3");
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_EQ(seen.exited[0], "was killed by SIGKILL (signal 9)");
}

TEST_F(RunJob, leaves_nothing_of_a_worker_that_made_a_daemon) {
  const auto outcome = run(
      "(trap '' TERM HUP; setsid sleep 1000 >/dev/null 2>&1 </dev/null &) ; sleep 1000 & exit 0");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.reason;
}

TEST_F(RunJob, says_127_if_there_is_no_such_program) {
  spec.command = {"./train"};
  const auto outcome = run_command();
  EXPECT_EQ(outcome.exit_code, 127) << outcome.reason;
  ASSERT_TRUE(outcome.failure.has_value());
  EXPECT_EQ(outcome.failure->worker.pid, 0);
  EXPECT_NE(outcome.reason.find("./train"), std::string::npos) << outcome.reason;
  EXPECT_NE(outcome.reason.find("No such file"), std::string::npos) << outcome.reason;
}

TEST_F(RunJob, says_126_if_the_program_may_not_be_executed) {
  const auto path = directory.file("train", "#!/bin/sh\n");
  ::chmod(path.c_str(), 0644);
  spec.command = {path};
  const auto outcome = run_command();
  EXPECT_EQ(outcome.exit_code, 126) << outcome.reason;
  EXPECT_NE(outcome.reason.find("Permission denied"), std::string::npos) << outcome.reason;
}

TEST_F(RunJob, fails_if_the_working_directory_is_not_there) {
  spec.working_directory = directory.path() / "gone";
  const auto outcome = run("true");
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_NE(outcome.reason.find("gone"), std::string::npos) << outcome.reason;
}

// The frames that an hvd program sends on its descriptor (base/protocol/worker_link.h).
constexpr const char* kInitialised =
    "printf '\\006\\000\\000\\000\\145\\000\\001\\000\\000\\000' >&$HVD_WORKER_FD;";
constexpr const char* kDone = "printf '\\002\\000\\000\\000\\146\\000' >&$HVD_WORKER_FD;";

TEST_F(RunJob, wants_an_hvd_program_to_say_that_it_is_done) {
  EXPECT_EQ(run(cat(kInitialised, kDone, "exit 0")).exit_code, 0);
}

TEST_F(RunJob, fails_if_an_hvd_program_ends_with_0_before_it_is_done) {
  spec.hosts = {{"localhost", 1}};
  const auto outcome = run(cat(kInitialised, "exit 0"));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.reason.find("exited with 0 without saying that it was done"), std::string::npos)
      << outcome.reason;
}

class RunJobSignalled : public RunJob, public testing::WithParamInterface<int> {};

TEST_P(RunJobSignalled, stops_all_and_returns_128_and_the_signal) {
  seen.at_start = [this](const WorkerView&) {
    if (seen.started.size() == 2) ::kill(::getpid(), GetParam());
  };
  const auto outcome = run("exec sleep 1000");
  EXPECT_EQ(outcome.exit_code, 128 + GetParam());
  EXPECT_FALSE(outcome.failure.has_value());
  EXPECT_EQ(seen.exited[1], "was killed by SIGTERM (signal 15)");
}

INSTANTIATE_TEST_SUITE_P(Signals, RunJobSignalled, testing::Values(SIGINT, SIGTERM, SIGHUP));

// Each line of the worker brings a signal: those that come too soon after the first have no effect.
TEST_F(RunJob, kills_at_once_when_it_is_interrupted_twice) {
  spec.hosts = {{"localhost", 1}};
  spec.grace = std::chrono::hours(1);
  seen.at_output = [](const WorkerView&, const std::string&) { ::kill(::getpid(), SIGINT); };
  const auto outcome = run("trap '' TERM; while :; do echo deaf; sleep 0.05; done");
  EXPECT_EQ(outcome.exit_code, 130);
  EXPECT_EQ(seen.exited[0], "was killed by SIGKILL (signal 9)");
}

TEST_F(RunJob, gives_the_workers_the_limit_of_open_files_that_it_was_given) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const rlimit lower{std::min<rlim_t>(limit.rlim_cur, 300), limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &lower), 0);
  EXPECT_EQ(run("ulimit -n").exit_code, 0);
  rlimit after{};
  ::getrlimit(RLIMIT_NOFILE, &after);
  EXPECT_EQ(after.rlim_cur, lower.rlim_cur);
  ::setrlimit(RLIMIT_NOFILE, &limit);
  EXPECT_EQ(seen.out[0], cat(lower.rlim_cur, "\n"));
}

TEST_F(RunJob, takes_a_host_s_own_variables_from_the_host) {
  spec.hosts = {{"localhost", 1}};
  spec.host_variables = {"HOME", "HVD_NOWHERE"};
  EXPECT_EQ(run("echo \"$HOME ${HVD_NOWHERE-unset}\"").exit_code, 0);
  EXPECT_EQ(seen.out[0], cat(std::getenv("HOME"), " unset\n"));
}

TEST_F(RunJob, uses_loopback_alone_on_this_machine) {
  spec.hosts = {{"localhost", 1}, {"127.0.0.1", 1}};
  EXPECT_EQ(run("echo $HVD_RENDEZVOUS_ADDR $MASTER_ADDR $HOROVOD_GLOO_IFACE").exit_code, 0);
  EXPECT_EQ(seen.out[0], "127.0.0.1 127.0.0.1 lo\n");
  EXPECT_EQ(seen.out[1], seen.out[0]);
}

TEST_F(RunJob, takes_output_of_any_size_from_an_observer_that_consumes_it_elsewhere) {
  std::mutex mutex;
  std::vector<std::function<void()>> receipts;
  bool over = false;
  std::thread consumer([&] {
    for (;;) {
      std::vector<std::function<void()>> some;
      {
        const std::lock_guard lock(mutex);
        some.swap(receipts);
        if (over && some.empty()) return;
      }
      for (const auto& consumed : some) consumed();
      std::this_thread::yield();
    }
  });
  seen.at_bytes = [&](std::function<void()> consumed) {
    const std::lock_guard lock(mutex);
    receipts.push_back(std::move(consumed));
  };
  const auto outcome = run("head -c 9000000 /dev/zero; head -c 5000000 /dev/zero >&2");
  {
    const std::lock_guard lock(mutex);
    over = true;
  }
  consumer.join();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.reason;
  for (const int rank : {0, 1}) {
    EXPECT_EQ(seen.out[rank].size(), 9'000'000U);
    EXPECT_EQ(seen.err[rank].size(), 5'000'000U);
  }
}

TEST_F(RunJob, holds_back_a_worker_whose_output_is_not_consumed_and_still_ends) {
  std::vector<std::function<void()>> receipts;
  seen.at_bytes = [&](std::function<void()> consumed) { receipts.push_back(std::move(consumed)); };
  seen.at_output = [](const WorkerView& worker, const std::string& text) {
    // Exactly the bytes of the credit window: the worker is blocked now.
    if (worker.rank == 0 && text.size() == agent_link::kOutputWindow) ::kill(::getpid(), SIGINT);
  };
  spec.grace = milliseconds(100);
  const auto outcome = run("if [ $HVD_RANK = 0 ]; then exec cat /dev/zero; fi; exec sleep 1000");
  EXPECT_EQ(outcome.exit_code, 130);
  EXPECT_LE(seen.out[0].size(), agent_link::kOutputWindow);
  EXPECT_EQ(seen.exited[0], "was killed by SIGTERM (signal 15)");
  for (const auto& consumed : receipts) consumed();  // late, and harmless
}

TEST_F(RunJob, passes_bytes_that_are_no_text) {
  spec.hosts = {{"localhost", 1}};
  EXPECT_EQ(run("printf 'a\\000\\377\\r\\nb'").exit_code, 0);
  EXPECT_EQ(seen.out[0], std::string("a\0\xff\r\nb", 6));
}

}  // namespace
}  // namespace hvd::driver
