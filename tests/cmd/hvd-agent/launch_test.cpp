// Starting workers: what they get, how their end is told, and what is said when there is nothing to
// start.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <set>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "tests/cmd/hvd-agent/agent_under_test.h"

namespace hvd::test {
namespace {

using agent_link::Kind;

TEST(AgentLaunch, TellsTheExitCode) {
  AgentUnderTest agent;
  agent.launch(1, {"sh", "-c", "exit 3"});
  ASSERT_TRUE(agent.until_over(1));
  EXPECT_GT(agent.of(1).pid, 0);
  EXPECT_EQ(agent.of(1).exited->pid, agent.of(1).pid);
  EXPECT_EQ(agent.of(1).exited->exit_code, 3);
  EXPECT_EQ(agent.of(1).exited->signal_number, 0);
  EXPECT_EQ(agent.of(1).order.front(), Kind::launched);
}

TEST(AgentLaunch, TellsTheSignalAndWhetherThereIsACore) {
  AgentUnderTest agent;
  const std::vector<std::string> command = {"sh", "-c", "ulimit -c unlimited; kill -SEGV $$"};
  agent.launch(1, command);
  ASSERT_TRUE(agent.until_over(1));
  EXPECT_EQ(agent.of(1).exited->signal_number, SIGSEGV);

  // Whether this machine writes cores is its own business: ask it the same way.
  const TemporaryDirectory elsewhere;
  const pid_t child = ::fork();
  if (child == 0) {
    if (::chdir(elsewhere.path().c_str()) != 0) ::_exit(1);
    ::execl("/bin/sh", "sh", "-c", command[2].c_str(), nullptr);
    ::_exit(1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(agent.of(1).exited->core_dumped, WCOREDUMP(status) != 0);
}

TEST(AgentLaunch, GivesExactlyTheEnvironmentAndTheDescriptor) {
  AgentUnderTest agent;
  auto launch = agent.launch_of(1, {"/usr/bin/env", "-0"});
  launch.environment.push_back("EMPTY=");
  launch.environment.push_back("LINES=one\ntwo \xff");
  launch.environment.push_back("HVD_WORKER_FD=7");  // ours counts
  launch.environment.push_back("HVD_LIFE_FD=8");
  const auto given = launch.environment;
  agent.send(launch.encode());
  ASSERT_TRUE(agent.until_over(1));
  std::vector<std::string> seen = split(agent.of(1).out, '\0');
  ASSERT_EQ(seen.back(), "");
  seen.pop_back();
  std::vector<std::string> expected(given.begin(), given.end() - 2);
  expected.push_back("HVD_WORKER_FD=100");
  expected.push_back("HVD_LIFE_FD=101");
  EXPECT_EQ(seen, expected);
}

TEST(AgentLaunch, StartsInTheGivenDirectory) {
  AgentUnderTest agent;
  agent.launch(1, {"pwd"});
  ASSERT_TRUE(agent.until_over(1));
  EXPECT_EQ(agent.of(1).out, agent.directory().path().string() + "\n");
}

TEST(AgentLaunch, LeaksNoDescriptor) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"stay"});  // one that is there already, with descriptors in the agent
  agent.launch(2, {"sh", "-c", "echo /proc/$$/fd/*"});
  ASSERT_TRUE(agent.until_over(2));
  std::vector<std::string> numbers;
  for (const auto& path : split(trim(agent.of(2).out), ' ')) {
    numbers.push_back(std::filesystem::path(path).filename());
  }
  std::sort(numbers.begin(), numbers.end());
  // The shell reads the directory itself, through the lowest free number.
  std::erase(numbers, "3");
  EXPECT_EQ(numbers, (std::vector<std::string>{"0", "1", "100", "101", "2"}));
}

TEST(AgentLaunch, GivesDefaultSignalsAndItsOwnSession) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"show-signals"});
  ASSERT_TRUE(agent.until_over(1));
  EXPECT_EQ(agent.of(1).out,
            "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\nsession 1 group 1\n");
}

TEST(AgentLaunch, GivesTheOriginalLimitOfOpenFiles) {
  rlimit mine{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &mine), 0);
  AgentUnderTest agent;
  agent.launch(1, {"sh", "-c", "ulimit -n"});
  ASSERT_TRUE(agent.until_over(1));
  EXPECT_EQ(agent.of(1).out, cat(mine.rlim_cur, "\n"));
}

TEST(AgentLaunch, ReadsEndOfFileFromStandardInput) {
  AgentUnderTest agent;
  agent.launch(1, {"cat"});
  ASSERT_TRUE(agent.until_over(1));
  EXPECT_EQ(agent.of(1).exited->exit_code, 0);
}

struct BadLaunch {
  std::vector<std::string> command;
  int error_number;
  std::vector<std::string> words;  // all stand in the message
};

TEST(AgentLaunch, SaysWhatCouldNotBeStartedAndWhy) {
  AgentUnderTest agent;
  const auto& directory = agent.directory();
  directory.file("plain", "echo no\n");
  const auto no_shebang = directory.file("no_shebang", "echo no\n");
  std::filesystem::permissions(no_shebang, std::filesystem::perms::owner_all);
  const auto lost = directory.file("lost_interpreter", "#!/no/such/interpreter\n");
  std::filesystem::permissions(lost, std::filesystem::perms::owner_all);
  const std::vector<BadLaunch> cases = {
      {{"no-such-program"}, ENOENT, {"no-such-program", "PATH", "/usr/bin:/bin"}},
      {{"lost_interpreter"}, ENOENT, {"PATH", "./lost_interpreter is in the working directory"}},
      {{"./missing"}, ENOENT, {"./missing", directory.path()}},
      {{"./plain"}, EACCES, {"./plain", "not executable"}},
      {{directory.path()}, EACCES, {"it is a directory"}},
      {{"./no_shebang"}, ENOEXEC, {"./no_shebang", "#!/bin/sh"}},
      {{"./lost_interpreter"}, ENOENT, {"./lost_interpreter", "interpreter"}},
      {{"./plain/x"}, ENOTDIR, {"./plain/x"}},
      {{"true", std::string(1 << 20, 'x')}, E2BIG, {"too long"}},
      {{}, EINVAL, {"no program"}},
      {{""}, EINVAL, {"no program"}},
      {{"true", std::string("a\0b", 3)}, EINVAL, {"NUL"}},
  };
  agent_link::Incarnation incarnation = 0;
  for (const auto& bad : cases) {
    agent.launch(++incarnation, bad.command);
    ASSERT_TRUE(agent.until_over(incarnation));
    const auto& heard = agent.of(incarnation);
    ASSERT_TRUE(heard.failed.has_value()) << incarnation;
    EXPECT_EQ(heard.failed->error_number, bad.error_number) << heard.failed->message;
    EXPECT_NE(heard.failed->message.find(cat("here#", incarnation)), std::string::npos);
    for (const auto& word : bad.words) {
      EXPECT_NE(heard.failed->message.find(word), std::string::npos) << heard.failed->message;
    }
    EXPECT_EQ(heard.order, std::vector<Kind>{Kind::launch_failed});
  }
}

TEST(AgentLaunch, SaysThatTheWorkingDirectoryCannotBeEntered) {
  AgentUnderTest agent;
  auto launch = agent.launch_of(1, {"true"});
  launch.working_directory = "/no/such/directory";
  agent.send(launch.encode());
  ASSERT_TRUE(agent.until_over(1));
  ASSERT_TRUE(agent.of(1).failed.has_value());
  EXPECT_EQ(agent.of(1).failed->error_number, ENOENT);
  EXPECT_NE(agent.of(1).failed->message.find("working directory /no/such/directory"),
            std::string::npos);
}

TEST(AgentLaunch, NeverShowsTheValueOfABadVariable) {
  AgentUnderTest agent;
  auto launch = agent.launch_of(1, {"true"});
  launch.environment.push_back(std::string("SECRET=swordfish\0", 17));
  agent.send(launch.encode());
  ASSERT_TRUE(agent.until_over(1));
  ASSERT_TRUE(agent.of(1).failed.has_value());
  EXPECT_NE(agent.of(1).failed->message.find("SECRET"), std::string::npos);
  EXPECT_EQ(agent.of(1).failed->message.find("swordfish"), std::string::npos);
}

TEST(AgentLaunch, SearchesThePathOfTheGivenEnvironment) {
  AgentUnderTest agent;
  const auto program = agent.directory().file("only-here", "#!/bin/sh\necho found\n");
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  auto launch = agent.launch_of(1, {"only-here"});
  launch.environment[0] = cat("PATH=/no/such:", agent.directory().path().string());
  agent.send(launch.encode());
  ASSERT_TRUE(agent.until_over(1));
  EXPECT_EQ(agent.of(1).out, "found\n");
}

// The descriptors in the agent's event loop that are newer than the loop: those of workers.
std::set<int> watched_by(pid_t agent) {
  std::set<int> watched;
  for (const auto& entry : std::filesystem::directory_iterator(cat("/proc/", agent, "/fdinfo"))) {
    const int loop = std::atoi(entry.path().filename().c_str());
    for (const auto& line : split(read_file(entry.path()), '\n')) {
      if (!line.starts_with("tfd:")) continue;
      if (const int fd = std::atoi(line.c_str() + 4); fd > loop) watched.insert(fd);
    }
  }
  return watched;
}

// Each descriptor of a worker is the one that cannot be watched, in an agent of its own.
TEST(AgentLaunch, EndsAWorkerThatCannotBeWatchedOrGoesOnWithoutItsOutput) {
  if (run({binary("hvd_without_calls"), "watch=0", "true"}).code == 77) {
    GTEST_SKIP() << "this kernel takes no filter for system calls";
  }
  std::set<int> of_the_worker;  // the channel, the reaper, and two streams
  {
    AgentUnderTest agent;
    agent.launch(1, {"sleep", "1000"});
    ASSERT_TRUE(eventually([&] {
      of_the_worker = watched_by(agent.pid());
      return of_the_worker.size() == 4;
    }));
    agent.send(agent_link::Shutdown{}.encode());
    agent.until_closed();
  }

  int failed = 0;
  for (const int fd : of_the_worker) {
    SCOPED_TRACE(fd);
    AgentUnderTest agent(
        {.script = cat("exec ", binary("hvd_without_calls"), " watch=", fd, " \"$0\"")});
    agent.launch(1, {"true"});
    ASSERT_TRUE(agent.until_over(1));
    if (agent.of(1).failed) ++failed;
    const auto problems = agent.problems.size();
    EXPECT_EQ(problems, agent.of(1).failed ? 0U : 1U);
    agent.send(agent_link::Shutdown{}.encode());
    agent.until_closed();
    EXPECT_EQ(agent.problems.size(), problems) << agent.problems.back();
    EXPECT_EQ(agent.wait_for_exit(), 0);
  }
  EXPECT_EQ(failed, 2) << "of the channel and the reaper";
}

TEST(AgentLaunch, StartsAHundredAtOnce) {
  AgentUnderTest agent;
  std::string launches;
  constexpr agent_link::Incarnation kCount = 100;
  for (agent_link::Incarnation i = 1; i <= kCount; ++i) {
    launches += agent.launch_of(i, {"sh", "-c", cat("echo ", i, "; exit ", i)}).encode();
  }
  agent.send(launches);
  for (agent_link::Incarnation i = 1; i <= kCount; ++i) {
    ASSERT_TRUE(agent.until_over(i));
    EXPECT_EQ(agent.of(i).exited->exit_code, static_cast<int>(i));
    EXPECT_EQ(agent.of(i).out, cat(i, "\n"));
  }
}

}  // namespace
}  // namespace hvd::test
