#include "base/protocol/agent_link.h"

#include <gtest/gtest.h>

#include "tests/base/message_checks.h"

namespace hvd::agent_link {
namespace {

using test::expect_sound;
using test::payload_of;

TEST(AgentLinkMessages, AreSound) {
  expect_sound(Hello{3, "build", "job", 2000, 30000, 1024});
  expect_sound(
      Launch{7, "a#1", {"./train", ""}, {"A=1", "B="}, "/home", std::string("\0w", 2), {"HOME"}});
  expect_sound(Launch{});
  expect_sound(Signal{1, -15});
  expect_sound(Stop{2, 5000, "because"});
  expect_sound(Kill{3});
  expect_sound(Credit{4, Stream::standard_error, 1ULL << 40});
  expect_sound(World{5, "{}"});
  expect_sound(Heartbeat{6, 5});
  expect_sound(Shutdown{});
  expect_sound(Check{"/home", "train", "/usr/bin:/bin"});
  expect_sound(Probe{7, 1000, {{"10.0.0.1", 4000, "hello"}, {"::1", 22, ""}}});
  expect_sound(
      Ready{1, "build", 99, "host", {{"lo", "127.0.0.1"}, {"eth0", "fd00::1"}}, 1, "g", 2});
  expect_sound(Launched{8, 1234});
  expect_sound(LaunchFailed{9, 2, "find it"});
  expect_sound(Output{10, Stream::standard_output, std::string("\0\xff\n", 3)});
  expect_sound(OutputClosed{11, Stream::standard_error});
  expect_sound(Exited{12, 1234, 3, 0, true});
  expect_sound(WorkerInitialised{13});
  expect_sound(WorkerDone{14});
  expect_sound(HeartbeatAck{15});
  expect_sound(Problem{"trouble"});
  expect_sound(Checked{Checked::Step::find_program, 2, "find train"});
  expect_sound(Probed{7, {"", "refused"}});
  expect_sound(Bye{});
}

TEST(AgentLinkMessages, KeepEveryField) {
  const auto launch = Launch::decode(
      payload_of(Launch{7, "a#1", {"./train", "-x"}, {"A=1", "B="}, "/home", "welcome"}));
  ASSERT_TRUE(launch.ok());
  EXPECT_EQ(launch->incarnation, 7U);
  EXPECT_EQ(launch->worker, "a#1");
  EXPECT_EQ(launch->command, (std::vector<std::string>{"./train", "-x"}));
  EXPECT_EQ(launch->environment, (std::vector<std::string>{"A=1", "B="}));
  EXPECT_EQ(launch->working_directory, "/home");
  EXPECT_EQ(launch->welcome, "welcome");

  const auto exited = Exited::decode(payload_of(Exited{12, 1234, 3, 9, true}));
  ASSERT_TRUE(exited.ok());
  EXPECT_EQ(exited->incarnation, 12U);
  EXPECT_EQ(exited->pid, 1234);
  EXPECT_EQ(exited->exit_code, 3);
  EXPECT_EQ(exited->signal_number, 9);
  EXPECT_TRUE(exited->core_dumped);

  const auto stop = Stop::decode(payload_of(Stop{2, 5000, "because"}));
  ASSERT_TRUE(stop.ok());
  EXPECT_EQ(stop->incarnation, 2U);
  EXPECT_EQ(stop->grace_ms, 5000U);
  EXPECT_EQ(stop->reason, "because");

  const auto credit = Credit::decode(payload_of(Credit{4, Stream::standard_error, 1ULL << 40}));
  ASSERT_TRUE(credit.ok());
  EXPECT_EQ(credit->incarnation, 4U);
  EXPECT_EQ(credit->stream, Stream::standard_error);
  EXPECT_EQ(credit->bytes, 1ULL << 40);

  const auto ready = Ready::decode(payload_of(Ready{2, "build", 99, "host"}));
  ASSERT_TRUE(ready.ok());
  EXPECT_EQ(ready->protocol, 2U);
  EXPECT_EQ(ready->build_id, "build");
  EXPECT_EQ(ready->pid, 99);
  EXPECT_EQ(ready->host_name, "host");

  const auto failed = LaunchFailed::decode(payload_of(LaunchFailed{9, 2, "find it"}));
  ASSERT_TRUE(failed.ok());
  EXPECT_EQ(failed->error_number, 2);
  EXPECT_EQ(failed->message, "find it");
}

TEST(AgentLinkMessages, AStreamThatDoesNotExistIsRefused) {
  for (const auto wrong : {Stream{0}, Stream{3}, Stream{255}}) {
    EXPECT_FALSE(Output::decode(payload_of(Output{1, wrong, "x"})).ok());
    EXPECT_FALSE(OutputClosed::decode(payload_of(OutputClosed{1, wrong})).ok());
    EXPECT_FALSE(Credit::decode(payload_of(Credit{1, wrong, 1})).ok());
  }
}

}  // namespace
}  // namespace hvd::agent_link
