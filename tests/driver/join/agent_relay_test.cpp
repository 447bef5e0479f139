// The real `hvdrun agent --join`, with a real agent and real workers below it. The test is the
// driver.
#include <csignal>
#include <filesystem>
#include <gtest/gtest.h>
#include <poll.h>

#include "base/protocol/agent_link.h"
#include "base/text.h"
#include "base/versions.h"
#include "tests/driver/join/join_point.h"
#include "tests/support/process.h"

namespace hvd::driver::join {
namespace {

using test::binary;
using test::Process;
using test::wait_until_gone;

constexpr const char* kMark = "HVD_JOIN_TEST";

class AgentRelay : public testing::Test {
 protected:
  std::vector<std::string> command(const std::string& token_file) const {
    return {binary("hvdrun"), "agent",    "--join", "tls://" + join_point_.address().to_string(),
            "--token-file",   token_file, "--host", "pod-1",
            "--slots=2"};
  }
  std::string token_file(char digit = 'a') const {
    const auto file = directory_.file(cat("token-", digit), std::string(64, digit) + "\n");
    std::filesystem::permissions(file, std::filesystem::perms{0600});
    return file;
  }

  // A relay that has joined.
  std::unique_ptr<Process> start() {
    auto relay = std::make_unique<Process>(command(token_file()));
    EXPECT_TRUE(join_point_.wait_for_joined(1)) << hvd::join(join_point_.refused(), "\n");
    return relay;
  }
  AgentConnection& agent() { return join_point_.joined(0).connection; }
  void say(std::string_view frame) {
    EXPECT_TRUE(send_all(agent().link.get(), frame, soon()).ok());
  }
  template <typename Message>
  Message expect() {
    for (;;) {
      const auto frame = receive_frame(agent().link.get(), decoder_, soon());
      if (!frame.ok()) {
        ADD_FAILURE() << frame.status().message();
        return {};
      }
      if (frame->kind == static_cast<std::uint16_t>(Message::kKind)) {
        return *Message::decode(frame->payload);
      }
    }
  }
  void greet() {
    say(agent_link::Hello{.build_id = std::string(build_id()), .job_id = "job"}.encode());
    EXPECT_EQ(expect<agent_link::Ready>().build_id, build_id());
  }
  // A worker that keeps running, and also starts a daemon.
  void launch() {
    say(agent_link::Launch{.incarnation = 1,
                           .worker = "pod-1#0",
                           .command = {"sh", "-c", "setsid sleep 1000 & echo up; exec sleep 1000"},
                           .environment = {"PATH=/usr/bin:/bin", cat(kMark, "=", mark_)},
                           .working_directory = "/",
                           .welcome = {},
                           .host_variables = {}}
            .encode());
    EXPECT_GT(expect<agent_link::Launched>().pid, 0);
    EXPECT_EQ(expect<agent_link::Output>().bytes, "up\n");
  }
  bool ended() { return wait_for(agent().handle->ended_fd(), POLLIN, soon()).ok(); }

  test::TemporaryDirectory directory_;
  JoinPoint join_point_;
  FrameDecoder decoder_;
  std::string mark_ = directory_.path();
};

TEST_F(AgentRelay, CarriesAJobToItsEnd) {
  const auto relay = start();
  EXPECT_EQ(join_point_.joined(0).host, "pod-1");
  EXPECT_EQ(join_point_.joined(0).slots, 2);
  greet();
  launch();
  say(agent_link::Kill{1}.encode());
  EXPECT_EQ(expect<agent_link::Exited>().signal_number, SIGKILL);
  say(agent_link::Shutdown{}.encode());
  expect<agent_link::Bye>();
  const auto status = relay->wait();
  EXPECT_EQ(status.code, 0) << status.err;
  EXPECT_EQ(status.out, "");
  EXPECT_TRUE(ended());
  EXPECT_TRUE(wait_until_gone(kMark, mark_));
}

TEST_F(AgentRelay, LeavesNothingBehindWhenItIsKilled) {
  const auto relay = start();
  greet();
  launch();
  relay->signal(SIGKILL);
  EXPECT_TRUE(wait_until_gone(kMark, mark_));
  EXPECT_TRUE(ended());
  EXPECT_EQ(relay->wait().signal, SIGKILL);
}

TEST_F(AgentRelay, EndsTheWorkersWhenTheDriverIsGoneAndSaysSo) {
  const auto relay = start();
  greet();
  launch();
  join_point_.on_thread([this] { agent().handle->kill(); });
  const auto status = relay->wait();
  EXPECT_NE(status.code, 0);
  EXPECT_NE(status.err.find("was lost: it closed the connection; its workers here were ended"),
            std::string::npos)
      << status.err;
  EXPECT_TRUE(wait_until_gone(kMark, mark_));
}

TEST_F(AgentRelay, HandsATerminationToItsAgent) {
  const auto relay = start();
  greet();
  launch();
  relay->signal(SIGTERM);
  EXPECT_EQ(expect<agent_link::Exited>().signal_number, SIGTERM);
  const auto status = relay->wait();
  EXPECT_EQ(status.code, 128 + SIGTERM) << status.err;
  EXPECT_TRUE(wait_until_gone(kMark, mark_));
}

TEST_F(AgentRelay, EndsWhenItsAgentIsKilled) {
  const auto relay = start();
  say(agent_link::Hello{.build_id = std::string(build_id()), .job_id = "job"}.encode());
  const int pid = expect<agent_link::Ready>().pid;
  launch();
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  const auto status = relay->wait();
  EXPECT_EQ(status.code, 128 + SIGKILL);
  EXPECT_NE(status.err.find("the agent was killed by SIGKILL"), std::string::npos) << status.err;
  EXPECT_TRUE(wait_until_gone(kMark, mark_));
  EXPECT_TRUE(ended());
}

TEST_F(AgentRelay, WithAnotherTokenNothingIsStarted) {
  const auto status = test::run(command(token_file('b')));
  EXPECT_EQ(status.code, 1);
  EXPECT_NE(status.err.find("it does not hold the same token"), std::string::npos) << status.err;
  EXPECT_TRUE(join_point_.wait_for_refusal("it does not hold the same token"));
}

}  // namespace
}  // namespace hvd::driver::join
