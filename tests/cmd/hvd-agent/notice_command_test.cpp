// The command of --notice-command, under a real agent, and by itself with the time handed in.
#include "cmd/hvd-agent/notice_command.h"

#include <csignal>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "tests/cmd/hvd-agent/agent_under_test.h"

namespace hvd::test {
namespace {

using std::chrono::milliseconds;

TEST(TimeLeft, IsTheLastLineIfThatIsANumber) {
  using agent::time_left;
  EXPECT_EQ(time_left("120"), milliseconds(120'000));
  EXPECT_EQ(time_left("the instance goes\n 1.5 \r\n\n"), milliseconds(1'500));
  EXPECT_EQ(time_left("0"), milliseconds(0));
  EXPECT_EQ(time_left("-3.5"), milliseconds(0)) << "it should be gone already";
  EXPECT_GT(time_left("1e300"), milliseconds(1'000'000));
  for (const char* const text : {"", "\n", "soon", "120\nseconds", "12 s", "nan", "inf", "0x10"}) {
    EXPECT_EQ(time_left(text), std::nullopt) << text;
  }
}

class AgentNotice : public testing::Test {
 protected:
  static AgentOptions elastic() {
    AgentOptions options;
    options.hello.elastic = true;
    options.hello.host = cat("noticed-", ::getpid());
    return options;
  }
  // As the agent of a job with this command, which has a first worker.
  void begin(const std::string& command) {
    agent_link::Program program;
    program.environment = {cat("PATH=", std::getenv("PATH")), "COLOUR=red",
                           cat(AgentUnderTest::kMark, "=", agent_.mark())};
    program.working_directory = directory();
    program.notice_command = command;
    agent_.send(program.encode());
  }
  bool until_noticed() {
    return agent_.until([&] { return agent_.host_leaves > 0; });
  }
  std::string directory() const { return agent_.directory().path(); }
  // The text that the command has written there, when it has.
  std::string file(const std::string& name) {
    const auto path = agent_.directory().path() / name;
    EXPECT_TRUE(eventually([&] { return read_file(path).ends_with("\n"); })) << name;
    return read_file(path);
  }

  AgentUnderTest agent_{elastic()};
};

TEST_F(AgentNotice, ComesWhenTheCommandEndsWith0AndHasTheTimeThatItPrints) {
  begin("echo the instance goes; echo 42.5");
  ASSERT_TRUE(until_noticed());
  EXPECT_TRUE(agent_.newest_leave.is_notice);
  EXPECT_EQ(agent_.newest_leave.left_ms, 42'500);
  EXPECT_TRUE(agent_.problems.empty());
}

TEST_F(AgentNotice, HasNoTimeIfTheCommandPrintsNone) {
  begin("yes | head -c 100000");  // more than the agent keeps
  ASSERT_TRUE(until_noticed());
  EXPECT_TRUE(agent_.newest_leave.is_notice);
  EXPECT_EQ(agent_.newest_leave.left_ms, agent_link::HostLeaves::kUnknown);
}

TEST_F(AgentNotice, ItsCommandHasEnvironmentAndDirectoryOfTheWorkersAndAGroupOfItsOwn) {
  begin(
      "{ echo $COLOUR $HVD_HOSTNAME; pwd -P; test \"$(ps -o pgid= -p $$ | tr -d ' ')\" = $$ && "
      "echo leads; "
      "env | grep -c ^HVD_WORKER_FD; } > said; true");
  ASSERT_TRUE(agent_.until([&] { return agent_.host_leaves + agent_.problems.size() > 0; }));
  const auto here = std::filesystem::canonical(directory()).string();
  EXPECT_EQ(file("said"), cat("red noticed-", ::getpid(), "\n", here, "\nleads\n0\n"));
}

TEST_F(AgentNotice, OfACommandThatCannotBeStartedIsNone) {
  begin("no-such-command");
  ASSERT_TRUE(agent_.until([&] { return !agent_.problems.empty(); }));
  EXPECT_NE(agent_.problems.front().find("the notice command on "), std::string::npos);
  EXPECT_NE(agent_.problems.front().find("exited with code 127"), std::string::npos);
  EXPECT_NE(agent_.problems.front().find("not found"), std::string::npos);
  EXPECT_EQ(agent_.host_leaves, 0);
}

TEST_F(AgentNotice, ASigtermBehindItIsTheFirst) {
  begin("true");
  ASSERT_TRUE(until_noticed());
  ::kill(agent_.pid(), SIGTERM);
  ASSERT_TRUE(agent_.until([&] { return agent_.host_leaves == 2; }));
  EXPECT_FALSE(agent_.newest_leave.is_notice);
  EXPECT_TRUE(agent_.problems.empty());
}

// A daemon of it, which has left its session, too.
constexpr const char* kStays =
    "setsid sh -c 'echo $$ > daemon; exec sleep 1000' & echo $$ > shell; wait";

TEST_F(AgentNotice, ItsCommandEndsWithTheJob) {
  begin(kStays);
  const auto daemon = static_cast<pid_t>(std::stoi(file("daemon")));
  const auto shell = static_cast<pid_t>(std::stoi(file("shell")));
  agent_.send(agent_link::Shutdown{}.encode());
  agent_.until_closed();
  EXPECT_EQ(agent_.wait_for_exit(), 0);
  EXPECT_TRUE(is_gone(daemon)) << "the agent has waited for it";
  EXPECT_TRUE(is_gone(shell));
}

TEST_F(AgentNotice, ItsCommandEndsWithAnAgentThatIsKilled) {
  begin(kStays);
  const auto daemon = static_cast<pid_t>(std::stoi(file("daemon")));
  const auto shell = static_cast<pid_t>(std::stoi(file("shell")));
  ::kill(agent_.pid(), SIGKILL);
  EXPECT_EQ(agent_.wait_for_exit(), -SIGKILL);
  EXPECT_TRUE(eventually([&] { return is_gone(daemon) && is_gone(shell); }));
}

TEST_F(AgentNotice, ItsCommandIsFrozenAndThawedWithTheWorkers) {
  begin("while :; do echo >> ticks; sleep 0.01; done");
  const auto path = agent_.directory().path() / "ticks";
  const auto ticks = [&] { return read_file(path).size(); };
  ASSERT_TRUE(eventually([&] { return ticks() > 0; }));
  agent_.send(agent_link::Pause{true}.encode());
  ASSERT_TRUE(agent_.until([&] { return agent_.pauses == 1; }));
  // It stands when it has not ticked for as long as fifty ticks take.
  ASSERT_TRUE(eventually([&] {
    const auto before = ticks();
    ::usleep(500'000);
    return ticks() == before;
  }));
  const auto before = ticks();
  agent_.send(agent_link::Pause{false}.encode());
  EXPECT_TRUE(eventually([&] { return ticks() > before; }));
}

TEST(AgentThatHoldsWorkers, TellsTheNextDriverOfANotice) {
  AgentOptions first;
  first.hello.elastic = true;
  first.hello.host = cat("noticed-", ::getpid());
  first.hello.epoch = 1;
  first.hello.hold_ms = 60'000;
  AgentUnderTest older(first);
  agent_link::Program program;
  program.environment = {cat("PATH=", std::getenv("PATH"))};
  program.working_directory = older.directory().path();
  program.notice_command =
      "echo > waits; while ! [ -e go ]; do sleep 0.01; done; echo 9 > told; echo 9";
  older.send(program.encode());
  const auto directory = older.directory().path();
  ASSERT_TRUE(eventually([&] { return !read_file(directory / "waits").empty(); }));
  older.close_link();
  std::ofstream(directory / "go").close();
  ASSERT_TRUE(eventually([&] { return !read_file(directory / "told").empty(); }));

  AgentOptions second = first;
  second.hello.epoch = 2;
  second.hello.takes_over = true;
  AgentUnderTest newer(second);
  ASSERT_TRUE(newer.until_beating([&] { return newer.host_leaves > 0; }));
  EXPECT_EQ(newer.newest_leave.left_ms, 9'000);
  newer.send(agent_link::Shutdown{}.encode());
  newer.until_closed();
  EXPECT_EQ(newer.wait_for_exit(), 0);
  EXPECT_EQ(older.wait_for_exit(), 0);
}

// ---- one end after the other ----

class NoticeCommandTest : public testing::Test {
 protected:
  void begin(const std::string& command) {
    notice_.begin(command, {cat("PATH=", std::getenv("PATH"))}, directory_.path());
  }
  // Runs it once more, as if the pause were over, and waits for its end.
  void run_once() {
    notice_.on_time(Clock::now() + agent::NoticeCommand::kPause);
    const TimePoint deadline = Clock::now() + kGenerous;
    while (!notice_.is_over() && Clock::now() < deadline) {
      ASSERT_TRUE(loop_->wait(deadline).ok());
    }
    ASSERT_TRUE(notice_.is_over());
    ASSERT_EQ(::waitpid(notice_.reaper_pid(), nullptr, 0), notice_.reaper_pid());
    notice_.reaper_waited_for();
  }

  TemporaryDirectory directory_;
  std::unique_ptr<agent::EventLoop> loop_ = std::move(*agent::EventLoop::create());
  agent::SharedLease lease_ = std::move(*agent::SharedLease::create());
  agent::DriverLink link_{UniqueFd(), UniqueFd()};
  agent::OutputPump pump_{link_};
  agent::OutOfMemoryKills out_of_memory_;
  agent::WorkerContext context_{*loop_, link_, pump_, rlimit{1024, 1024}, lease_, out_of_memory_};
  int notices_ = 0;
  std::vector<std::string> problems_;
  agent::NoticeCommand notice_{context_, [this](auto) { ++notices_; },
                               [this](const std::string& what) { problems_.push_back(what); }};
};

TEST_F(NoticeCommandTest, IsAskedUntilItSaysYesAndNeverAgain) {
  begin("echo >> runs; test -e go");
  run_once();
  run_once();
  EXPECT_EQ(notices_, 0);
  EXPECT_TRUE(problems_.empty());
  EXPECT_LE(notice_.deadline(), Clock::now() + agent::NoticeCommand::kPause);
  std::ofstream(directory_.path() / "go").close();
  run_once();
  EXPECT_EQ(notices_, 1);
  EXPECT_EQ(notice_.deadline(), kNever);
  notice_.on_time(Clock::now() + std::chrono::hours(1));
  EXPECT_TRUE(notice_.is_over());
  EXPECT_EQ(read_file(directory_.path() / "runs"), "\n\n\n");
}

TEST_F(NoticeCommandTest, TellsItsFirstErrorAndNoOther) {
  begin("echo one >&2; echo two >&2; exit 1");
  run_once();
  run_once();
  ASSERT_EQ(problems_.size(), 1U);
  EXPECT_EQ(problems_.front(), "exited with code 1: two; it is run again every 5 s");
}

TEST_F(NoticeCommandTest, ThatIsKilledIsNoNotice) {
  begin("kill -9 $$");
  run_once();
  EXPECT_EQ(notices_, 0);
  ASSERT_EQ(problems_.size(), 1U);
  EXPECT_NE(problems_.front().find("was killed by signal 9"), std::string::npos);
}

TEST_F(NoticeCommandTest, LeavesNothingBehindBetweenTwoRuns) {
  begin("setsid sleep 1000 & echo $! > left; exit 1");
  run_once();
  EXPECT_TRUE(is_gone(static_cast<pid_t>(std::stoi(read_file(directory_.path() / "left")))));
}

}  // namespace
}  // namespace hvd::test
