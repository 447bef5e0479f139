// Real scripts, real processes: every run carries a variable in its environment by which a test
// finds what was left, however it hid.
#include "discovery/script.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <optional>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/machine/proc.h"
#include "base/text.h"
#include "tests/support/process.h"

namespace hvd::discovery {
namespace {

using std::chrono::milliseconds;

// The reaper of a script that runs; -1: this process has no child.
pid_t only_child() {
  for (const pid_t pid : numbers_in("/proc")) {
    if (parent_of(pid) == ::getpid()) return pid;
  }
  return -1;
}

class ScriptTest : public testing::Test {
 protected:
  void SetUp() override { ::setenv("HVD_SCRIPT_TEST", mark_.c_str(), 1); }  // NOLINT
  void TearDown() override {
    EXPECT_TRUE(test::wait_until_gone("HVD_SCRIPT_TEST", mark_));
    ::unsetenv("HVD_SCRIPT_TEST");  // NOLINT
    EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
    EXPECT_EQ(errno, ECHILD);
  }

  // A file with these lines, which may be executed.
  std::string file(const std::string& text) {
    const auto path = directory_.file("discover.sh", text);
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path.string();
  }

  ScriptEnd run(const std::string& command, ScriptOptions options = {}) {
    options.command = command;
    boost::asio::io_context io;
    Script script(io, options);
    std::optional<ScriptEnd> end;
    script.run([&](ScriptEnd ended) { end = std::move(ended); });
    EXPECT_TRUE(script.running());
    io.run_for(test::kGenerous);
    EXPECT_TRUE(end.has_value());
    EXPECT_FALSE(script.running());
    return end.value_or(ScriptEnd{"did not end", "", ""});
  }

  const std::filesystem::path& directory() const { return directory_.path(); }
  const std::string& mark() const { return mark_; }

 private:
  test::TemporaryDirectory directory_;
  const std::string mark_ = cat(::getpid(), ".", directory_.path().string());
};

TEST_F(ScriptTest, returns_what_it_prints) {
  const ScriptEnd end = run(file("#!/bin/sh\necho a:4\necho b\n"));
  EXPECT_EQ(end.error, "");
  EXPECT_EQ(end.output, "a:4\nb\n");
  EXPECT_EQ(end.standard_error, "");
}

TEST_F(ScriptTest, is_not_ended_by_its_signals_to_its_parent) {
  for (const char* const signal : {"TERM", "INT", "HUP", "QUIT", "USR1", "ABRT"}) {
    const ScriptEnd end =
        run(file(cat("#!/bin/sh\nkill -", signal, " $PPID\nsleep 0.05\nsleep 1000 &\necho a:4\n")));
    EXPECT_EQ(end.error, "") << signal;
    EXPECT_EQ(end.output, "a:4\n") << signal;
  }
  // Its own group is its own.
  EXPECT_EQ(run(file("#!/bin/sh\necho a:4\nkill 0\nsleep 1000\n")).error,
            "was killed by SIGTERM, signal 15");
}

TEST_F(ScriptTest, fails_if_it_kills_or_stops_its_reaper_and_runs_again) {
  boost::asio::io_context io;
  ScriptOptions options;
  options.timeout = std::chrono::seconds(3);  // long enough for a run in which nothing is wrong
  options.kill_timeout = std::chrono::seconds(2);  // and for a process to end
  const auto path = file("#!/bin/sh\nkill -$(cat signal) $PPID\necho a:4\n");
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(directory());
  options.command = path;
  Script script(io, options);
  for (const char* const signal : {"KILL", "STOP", "CONT"}) {
    std::ofstream("signal") << signal;
    std::optional<ScriptEnd> end;
    script.run([&](ScriptEnd ended) { end = std::move(ended); });
    io.restart();
    io.run_for(test::kGenerous);
    ASSERT_TRUE(end.has_value()) << signal;
    if (signal == std::string("KILL")) {
      EXPECT_NE(end->error.find("kill -9 $PPID"), std::string::npos) << end->error;
    } else if (signal == std::string("STOP")) {
      EXPECT_NE(end->error.find("did not end within"), std::string::npos) << end->error;
    } else {
      EXPECT_EQ(end->error, "");
    }
  }
  std::filesystem::current_path(before);
}

TEST_F(ScriptTest, is_found_in_the_working_directory_without_a_slash) {
  file("#!/bin/sh\necho here\n");
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(directory());
  const ScriptEnd end = run("discover.sh");
  std::filesystem::current_path(before);
  EXPECT_EQ(end.error + end.standard_error, "");
  EXPECT_EQ(end.output, "here\n");
}

TEST_F(ScriptTest, may_be_a_command_line_or_a_file_without_an_interpreter) {
  EXPECT_EQ(run("echo a:1 && echo b:2").output, "a:1\nb:2\n");
  EXPECT_EQ(run(file("echo c:3\n")).output, "c:3\n");
}

TEST_F(ScriptTest, has_an_empty_standard_input) { EXPECT_EQ(run("cat; echo end").output, "end\n"); }

TEST_F(ScriptTest, tells_how_it_failed_and_what_it_said) {
  const ScriptEnd end = run(file("#!/bin/sh\necho a:4\necho no credentials >&2\nexit 3\n"));
  EXPECT_EQ(end.error, "exited with code 3");
  EXPECT_EQ(end.standard_error, "no credentials\n");
  EXPECT_EQ(run("kill -SEGV $$").error, "was killed by SIGSEGV, signal 11");
}

TEST_F(ScriptTest, tells_that_it_is_missing_or_may_not_be_executed) {
  const ScriptEnd missing = run("/nowhere/discover.sh");
  EXPECT_EQ(missing.error, "exited with code 127 (something was not found)");
  EXPECT_NE(missing.standard_error.find("/nowhere/discover.sh"), std::string::npos)
      << missing.standard_error;
  const std::string path = file("echo a\n");
  std::filesystem::permissions(path, std::filesystem::perms::owner_read);
  const ScriptEnd forbidden = run(path);
  EXPECT_EQ(forbidden.error, "exited with code 126 (may it be executed? chmod +x)");
  EXPECT_NE(forbidden.standard_error.find("discover.sh"), std::string::npos)
      << forbidden.standard_error;
  EXPECT_EQ(run(directory().string()).error.substr(0, 20), "exited with code 126");
}

TEST_F(ScriptTest, is_killed_with_all_its_children_when_it_hangs) {
  ScriptOptions options;
  options.timeout = milliseconds(300);
  // In its group; in a session of its own; a daemon of two forks; deaf to SIGTERM.
  const ScriptEnd end =
      run("sleep 1000 & setsid sleep 1000 & (setsid sh -c 'sleep 1000 & sleep 1000' &) ; "
          "trap '' TERM; echo a; while true; do sleep 1000; done",
          options);
  EXPECT_EQ(end.error, "did not end within 0.3 s and was killed");
}

TEST_F(ScriptTest, leaves_nothing_behind_when_it_ends_well) {
  const ScriptEnd end = run("(setsid sleep 1000 &) ; sleep 1000 & echo a:4");
  EXPECT_EQ(end.error, "");
  EXPECT_EQ(end.output, "a:4\n");
}

TEST_F(ScriptTest, is_killed_when_it_prints_without_end) {
  ScriptOptions options;
  options.max_output = 100'000;
  const ScriptEnd end = run("yes", options);
  EXPECT_EQ(end.error, "printed more than 100,000 bytes and was killed");
  EXPECT_EQ(end.output, "");
}

TEST_F(ScriptTest, may_print_megabytes_on_its_standard_error_of_which_the_last_are_kept) {
  const ScriptEnd end = run("yes | head -c 8000000 >&2; echo the end >&2; echo a");
  EXPECT_EQ(end.error, "");
  EXPECT_EQ(end.output, "a\n");
  EXPECT_EQ(end.standard_error.size(), ScriptOptions().max_errors);
  EXPECT_EQ(end.standard_error.substr(end.standard_error.size() - 8), "the end\n");
}

TEST_F(ScriptTest, returns_rubbish_as_it_was_printed) {
  EXPECT_EQ(run("printf 'a\\000\\377b'").output, std::string("a\0\xff"
                                                             "b",
                                                             4));
}

TEST_F(ScriptTest, ends_when_its_owner_is_destroyed) {
  boost::asio::io_context io;
  bool called = false;
  auto script =
      std::make_unique<Script>(io, ScriptOptions{.command = "setsid sleep 1000 & sleep 1000"});
  script->run([&](const ScriptEnd&) { called = true; });
  io.run_for(milliseconds(50));
  EXPECT_GT(only_child(), 0);
  script.reset();
  io.run_for(test::kGenerous);
  EXPECT_FALSE(called);
}

TEST_F(ScriptTest, runs_again_and_again_without_using_anything_up) {
  const auto descriptors = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  boost::asio::io_context io;
  Script script(io, {.command = "echo a"});
  int left = 30;
  std::ptrdiff_t before = 0;  // after the first, when Asio has its own
  std::function<void(ScriptEnd)> again = [&](const ScriptEnd& end) {
    EXPECT_EQ(end.output, "a\n");
    if (before == 0) before = descriptors();
    if (--left > 0) script.run(again);
  };
  script.run(again);
  io.run_for(test::kGenerous);
  EXPECT_EQ(left, 0);
  EXPECT_EQ(descriptors(), before);
  EXPECT_EQ(only_child(), -1);
}

// As hvdrun is by SIGKILL: nobody is left to order anything.
TEST_F(ScriptTest, ends_with_a_process_that_is_killed) {
  const pid_t runner = ::fork();
  if (runner == 0) {
    boost::asio::io_context io;
    Script script(io, {.command = cat("setsid sleep 1000 & echo > ", directory().string(),
                                      "/runs; sleep 1000")});
    script.run([](const ScriptEnd&) {});
    io.run();
    ::_exit(0);
  }
  EXPECT_TRUE(test::eventually([&] { return std::filesystem::exists(directory() / "runs"); }));
  ::kill(runner, SIGKILL);
  EXPECT_EQ(::waitpid(runner, nullptr, 0), runner);
}

// Killed at any moment: before the script is there, while it starts, and while it runs.
TEST_F(ScriptTest, leaves_nothing_when_its_reaper_is_killed) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // as hvdrun is
  for (const bool started : {false, true}) {
    SCOPED_TRACE(started);
    boost::asio::io_context io;
    const auto file = directory() / "started";
    Script script(
        io, {.command = cat("(sleep 1000 & sleep 1000) & touch ", file.string(), "; sleep 1000")});
    std::string error;
    script.run([&](const ScriptEnd& end) { error = end.error; });
    if (started) {
      EXPECT_TRUE(test::eventually([&] { return std::filesystem::exists(file); }));
    }
    const pid_t reaper = only_child();
    ASSERT_GT(reaper, 0);
    ::kill(reaper, SIGKILL);
    io.run_for(test::kGenerous);
    EXPECT_EQ(
        error,
        "ended with the process that watches over it, which was killed (by the script itself, "
        "with kill -9 $PPID?)");
    EXPECT_TRUE(test::wait_until_gone("HVD_SCRIPT_TEST", mark()));
    EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
  }
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
}

}  // namespace
}  // namespace hvd::discovery
