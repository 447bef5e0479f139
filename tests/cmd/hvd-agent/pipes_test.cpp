// The link as sshd makes it: two pipes, a shell between, another environment.
#include <csignal>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/frame.h"
#include "base/socket.h"
#include "base/text.h"
#include "cmd/hvd-agent/driver_link.h"
#include "tests/cmd/hvd-agent/agent_under_test.h"

namespace hvd::test {
namespace {

AgentOptions as_sshd_does() {
  AgentOptions options;
  options.pipes = true;
  options.script = "exec \"$0\"";
  options.environment = {{"SSH_CONNECTION", "10.0.0.1 1 10.0.0.2 22"}, {"HVD_LOG_LEVEL", "error"}};
  return options;
}

bool all_gone(const AgentUnderTest& agent) {
  return processes_with_variable(AgentUnderTest::kMark, agent.mark()).empty();
}

TEST(AgentPipes, ServeAJobFromHelloToBye) {
  AgentUnderTest agent(as_sshd_does());
  EXPECT_EQ(agent.ready->pid, agent.pid());
  EXPECT_EQ(::getsid(agent.pid()), agent.pid());
  agent.launch(1, {"sh", "-c", "echo out; echo err >&2; exit 4"});
  ASSERT_TRUE(agent.until_over(1));
  EXPECT_EQ(agent.of(1).out, "out\n");
  EXPECT_EQ(agent.of(1).err, "err\n");
  EXPECT_EQ(agent.of(1).exited->exit_code, 4);
  agent.send(agent_link::Shutdown{}.encode());
  agent.until_closed();
  EXPECT_TRUE(agent.bye);
  EXPECT_EQ(agent.wait_for_exit(), 0);
}

TEST(AgentPipes, EndOfFileKillsEverything) {
  AgentUnderTest agent(as_sshd_does());
  agent.launch_mode(1, {"stay-stubbornly"});
  ASSERT_TRUE(agent.until([&] { return !agent.of(1).out.empty(); }));
  agent.close_to_agent();
  EXPECT_EQ(agent.wait_for_exit(), 1);
  EXPECT_TRUE(all_gone(agent));
}

TEST(AgentPipes, EndOfFileKillsEverythingWhileNobodyTakesTheOutput) {
  AgentUnderTest agent(as_sshd_does());
  agent.launch_mode(1, {"spew", "100000000"});
  agent.launch_mode(2, {"stay-stubbornly"});
  // The test reads nothing until the agent's pipe is full, the credit used up, the worker blocked.
  const auto worker_is_blocked = [&] {
    for (const pid_t pid : processes_with_variable(AgentUnderTest::kMark, agent.mark())) {
      if (read_file(cat("/proc/", pid, "/cmdline")).find("spew") == std::string::npos) continue;
      if (read_file(cat("/proc/", pid, "/syscall")).starts_with("1 0x1 ")) return true;
    }
    return false;
  };
  ASSERT_TRUE(eventually(worker_is_blocked));
  agent.close_to_agent();
  EXPECT_EQ(agent.wait_for_exit(), 1);
  EXPECT_TRUE(all_gone(agent));
}

TEST(AgentPipes, AReaderThatGoesAwayKillsEverythingEvenIfThereIsNothingToSay) {
  AgentUnderTest agent(as_sshd_does());
  agent.launch_mode(1, {"stay-stubbornly"});
  ASSERT_TRUE(agent.until([&] { return !agent.of(1).out.empty(); }));
  agent.close_from_agent();
  EXPECT_EQ(agent.wait_for_exit(), 1);
  EXPECT_TRUE(all_gone(agent));
}

TEST(AgentPipes, AHangupIsNoEnd) {
  AgentUnderTest agent(as_sshd_does());
  agent.launch_mode(1, {"stay-stubbornly"});
  ASSERT_TRUE(agent.until([&] { return !agent.of(1).out.empty(); }));
  ::kill(agent.pid(), SIGHUP);
  ::kill(agent.pid(), SIGPIPE);
  agent.launch(2, {"echo", "still here"});
  ASSERT_TRUE(agent.until_over(2));
  EXPECT_EQ(agent.of(2).out, "still here\n");
}

TEST(AgentPipes, WorkersGetOfTheAgentsEnvironmentWhatIsAskedForByName) {
  AgentOptions options = as_sshd_does();
  options.environment["HVD_TEST_HOST_VALUE"] = "this host's own";
  options.environment["HVD_TEST_EMPTY"] = "";
  options.environment["HVD_TEST_SECRET"] = "not for workers";
  options.environment["HVD_TEST_TWICE"] = "the host's";
  AgentUnderTest agent(options);
  auto launch = agent.launch_of(1, {"/usr/bin/env", "-0"});
  launch.environment.emplace_back("HVD_TEST_TWICE=the driver's");
  launch.host_variables = {"HVD_TEST_HOST_VALUE",
                           "HVD_TEST_EMPTY",
                           "HVD_TEST_TWICE",
                           "HVD_TEST_NOT_THERE",
                           "",
                           "HVD_TEST_SECRET=not",
                           std::string("HVD_TEST_SECRET\0", 16)};
  auto expected = launch.environment;
  expected.emplace_back("HVD_TEST_HOST_VALUE=this host's own");
  expected.emplace_back("HVD_TEST_EMPTY=");
  expected.emplace_back("HVD_WORKER_FD=100");
  expected.emplace_back("HVD_LIFE_FD=101");
  agent.send(launch.encode());
  ASSERT_TRUE(agent.until_over(1));
  auto seen = split(agent.of(1).out, '\0');
  seen.pop_back();
  EXPECT_EQ(seen, expected);
}

TEST(AgentPipes, ThePathOfTheHostIsSearchedIfItIsAskedFor) {
  AgentUnderTest agent(as_sshd_does());
  auto launch = agent.launch_of(1, {"sh", "-c", "echo $PATH"});
  launch.environment.erase(launch.environment.begin());  // PATH
  launch.host_variables = {"PATH"};
  agent.send(launch.encode());
  ASSERT_TRUE(agent.until_over(1));
  // NOLINTNEXTLINE(concurrency-mt-unsafe): there is one thread
  EXPECT_EQ(agent.of(1).out, cat(std::getenv("PATH"), "\n"));
}

TEST(AgentPipes, WorkersGetTheLimitOfOpenFilesThatWasAskedForAsFarAsTheHostAllows) {
  rlimit mine{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &mine), 0);
  for (const std::uint64_t asked :
       {std::uint64_t{200}, std::uint64_t{mine.rlim_max}, std::uint64_t{1} << 62}) {
    AgentOptions options = as_sshd_does();
    options.hello.open_files = asked;
    AgentUnderTest agent(options);
    agent.launch(1, {"sh", "-c", "ulimit -Sn; ulimit -Hn"});
    ASSERT_TRUE(agent.until_over(1));
    EXPECT_EQ(agent.of(1).out,
              cat(std::min<std::uint64_t>(asked, mine.rlim_max), "\n", mine.rlim_max, "\n"));
  }
}

TEST(DriverLink, AnswersToHeartbeatsOvertakeAllThatWaits) {
  auto sockets = socket_pair();
  ASSERT_TRUE(sockets.ok());
  ASSERT_TRUE(set_nonblocking(sockets->first.get(), true).ok());
  const int test = sockets->second.get();
  agent::DriverLink link(UniqueFd(), std::move(sockets->first));
  for (int i = 0; i < 100; ++i) {
    link.send_output(
        {1, agent_link::Stream::standard_output, std::string(agent_link::kMaxOutputChunk, 'x')});
  }
  ASSERT_TRUE(link.flush().ok());  // as much as the other side takes without reading
  ASSERT_FALSE(link.all_sent());
  link.send(agent_link::WorkerDone{1}.encode());
  link.send_first(agent_link::HeartbeatAck{1}.encode());
  link.send_first(agent_link::HeartbeatAck{2}.encode());

  FrameDecoder decoder;
  std::vector<agent_link::Kind> order;
  std::size_t outputs_before = 0;
  while (order.size() < 3) {
    ASSERT_TRUE(link.flush().ok());
    const auto frame = receive_frame(test, decoder, Clock::now() + kGenerous);
    ASSERT_TRUE(frame.ok());
    const auto kind = static_cast<agent_link::Kind>(frame->kind);
    if (kind != agent_link::Kind::output) {
      order.push_back(kind);
      if (order.size() < 3) continue;
    } else if (order.empty()) {
      ++outputs_before;
    } else {
      FAIL() << "output between what overtakes it";
    }
  }
  using agent_link::Kind;
  EXPECT_EQ(order,
            (std::vector<Kind>{Kind::heartbeat_ack, Kind::heartbeat_ack, Kind::worker_done}));
  EXPECT_LT(outputs_before, 50U);  // what the socket held, and the one that was begun
}

}  // namespace
}  // namespace hvd::test
