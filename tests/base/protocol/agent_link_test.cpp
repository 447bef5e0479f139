#include "base/protocol/agent_link.h"

#include <gtest/gtest.h>
#include <tuple>

#include "base/wire.h"
#include "tests/base/protocol/message_checks.h"

namespace hvd::agent_link {
namespace {

using test::expect_sound;
using test::payload_of;

TEST(AgentLinkMessages, AreSound) {
  expect_sound(Hello{3, "build", "job", 2000, 30000, 1024});
  expect_sound(
      Launch{7, "a#1", {"./train", ""}, {"A=1", "B="}, "/home", std::string("\0w", 2), {"HOME"}});
  expect_sound(Launch{});
  expect_sound(Program{{"./train", ""}, {"A=1", "B="}, "/home", {"HOME"}, true, "sleep 9"});
  expect_sound(Signal{1, -15});
  expect_sound(Stop{2, 5000, "because"});
  expect_sound(Kill{3});
  expect_sound(Credit{4, Stream::standard_error, 1ULL << 40});
  expect_sound(World{5, false, "{}"});
  expect_sound(WorldKeys{5, {{7, "sealed"}, {8, ""}}});
  expect_sound(Rendezvous{"::1", 4000});
  expect_sound(Heartbeat{6, 5});
  expect_sound(Pause{true});
  expect_sound(AskActivity{7, 1000});
  expect_sound(Shutdown{7});
  expect_sound(Check{"/home", "train", "/usr/bin:/bin"});
  expect_sound(Probe{7, 1000, {{"10.0.0.1", 4000, "hello"}, {"::1", 22, ""}}, true});
  expect_sound(Ready{
      1, "build", 99, "host", {{"lo", "127.0.0.1"}, {"eth0", "fd00::1"}}, 1, "g", 2, 8, 3, 96});
  expect_sound(Launched{8, 1234});
  expect_sound(LaunchFailed{9, 2, "find it"});
  expect_sound(Output{10, Stream::standard_output, std::string("\0\xff\n", 3)});
  expect_sound(OutputClosed{11, Stream::standard_error});
  expect_sound(Exited{12, 1234, 3, 0, true, true, 1, 5000});
  expect_sound(WorkerInitialised{13});
  expect_sound(WorkerDone{14});
  expect_sound(WorkerReady{15});
  expect_sound(WorkerLeaves{16});
  expect_sound(WorkerLeft{16, "no descriptors"});
  expect_sound(WorkerCannotReach{"h2"});
  expect_sound(Describe{16});
  expect_sound(Described{16, "it runs"});
  expect_sound(WorldCommitted{17, 3});
  expect_sound(HostLeaves{true, 120'000});
  expect_sound(Paused{false});
  expect_sound(ActivityWanted{});
  expect_sound(WorkerActivity{7, 2, 18, 'S', true, true, "nothing", "a", {}});
  expect_sound(HeartbeatAck{15});
  expect_sound(WorkReports{});
  expect_sound(WorkReports{{{7, {1, 2, 3, {{Collective::allreduce, 4, 5}}}}, {8, {}}}});
  expect_sound(Problem{"error"});
  expect_sound(Checked{Checked::Step::find_program, 2, "find train"});
  expect_sound(Probed{7, {"", "refused"}});
  expect_sound(Bye{});
}

TEST(AgentLinkMessages, AHostHasNoNegativeTimeLeft) {
  EXPECT_TRUE(HostLeaves::decode(payload_of(HostLeaves{true, HostLeaves::kUnknown})).ok());
  EXPECT_EQ(HostLeaves::decode(payload_of(HostLeaves{true, -2})).status().code(), Code::data_loss);
}

TEST(AgentLinkMessages, WorkNamesEachCollectiveOnceAndNoOther) {
  const WorkReports sent{
      {{7, {1, 2, 3, {{Collective::allreduce, 4, 5}, {Collective::join, 6, 0}}}}}};
  EXPECT_EQ(WorkReports::decode(payload_of(sent))->workers, sent.workers);

  WorkReports twice = sent;
  twice.workers[0].reading.collectives[1].kind = Collective::allreduce;
  EXPECT_EQ(WorkReports::decode(payload_of(twice)).status().code(), Code::data_loss);
  WorkReports unknown = sent;
  unknown.workers[0].reading.collectives[1].kind = static_cast<Collective>(kCollectives);
  EXPECT_EQ(WorkReports::decode(payload_of(unknown)).status().code(), Code::data_loss);
}

TEST(AgentLinkMessages, AProgramCompletesALaunch) {
  const Program program{{"./train", "-x"}, {"A=1", "B=2", "AA=3"}, "/home", {"HOME"}};
  Launch launch;
  launch.incarnation = 7;
  launch.environment = {"A=9", "RANK=0"};
  const Launch whole = complete(program, launch);
  EXPECT_EQ(whole.incarnation, 7U);
  EXPECT_EQ(whole.command, program.command);
  EXPECT_EQ(whole.environment, (std::vector<std::string>{"B=2", "AA=3", "A=9", "RANK=0"}));
  EXPECT_EQ(whole.working_directory, "/home");
  EXPECT_EQ(whole.host_variables, (std::vector<std::string>{"HOME"}));

  launch.command = {"other"};
  launch.working_directory = "/tmp";
  EXPECT_EQ(complete(program, launch).command, (std::vector<std::string>{"other"}));
  EXPECT_EQ(complete(program, launch).working_directory, "/tmp");
}

TEST(AgentLinkMessages, KeepEveryField) {
  const auto launch = Launch::decode(payload_of(Launch{7,
                                                       "a#1",
                                                       {"./train", "-x"},
                                                       {"A=1", "B="},
                                                       "/home",
                                                       "welcome",
                                                       {"HOME", "USER"},
                                                       Binding::numa,
                                                       2,
                                                       3}));
  ASSERT_TRUE(launch.ok());
  EXPECT_EQ(launch->incarnation, 7U);
  EXPECT_EQ(launch->worker, "a#1");
  EXPECT_EQ(launch->command, (std::vector<std::string>{"./train", "-x"}));
  EXPECT_EQ(launch->environment, (std::vector<std::string>{"A=1", "B="}));
  EXPECT_EQ(launch->working_directory, "/home");
  EXPECT_EQ(launch->welcome, "welcome");
  EXPECT_EQ(launch->host_variables, (std::vector<std::string>{"HOME", "USER"}));
  EXPECT_EQ(launch->binding, Binding::numa);
  EXPECT_EQ(launch->part, 2U);
  EXPECT_EQ(launch->parts, 3U);
  Launch odd = *launch;
  odd.part = 3;
  EXPECT_FALSE(Launch::decode(payload_of(odd)).ok());
  odd = *launch;
  odd.binding = static_cast<Binding>(3);
  EXPECT_FALSE(Launch::decode(payload_of(odd)).ok());

  const auto exited = Exited::decode(payload_of(Exited{12, 1234, 3, 9, true, true, 1'000, 5000}));
  ASSERT_TRUE(exited.ok());
  EXPECT_EQ(exited->incarnation, 12U);
  EXPECT_EQ(exited->pid, 1234);
  EXPECT_EQ(exited->exit_code, 3);
  EXPECT_EQ(exited->signal_number, 9);
  EXPECT_TRUE(exited->core_dumped);
  EXPECT_TRUE(exited->out_of_memory);
  EXPECT_EQ(exited->memory_limit, 1'000U);

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

  const auto failed = LaunchFailed::decode(payload_of(LaunchFailed{9, 2, "find it"}));
  ASSERT_TRUE(failed.ok());
  EXPECT_EQ(failed->error_number, 2);
  EXPECT_EQ(failed->message, "find it");
}

TEST(AgentLinkMessages, KeepEveryFieldOfTheGreetings) {
  const auto hello = Hello::decode(payload_of(Hello{3,
                                                    "build",
                                                    "job",
                                                    2000,
                                                    30'000,
                                                    1ULL << 40,
                                                    true,
                                                    300,
                                                    true,
                                                    40'000,
                                                    40'999,
                                                    {"eth0", "10.0.0.1"},
                                                    "h1",
                                                    7'000}));
  ASSERT_TRUE(hello.ok());
  EXPECT_EQ(hello->protocol, 3U);
  EXPECT_EQ(hello->build_id, "build");
  EXPECT_EQ(hello->job_id, "job");
  EXPECT_EQ(hello->lease_ms, 2000U);
  EXPECT_EQ(hello->orphan_timeout_ms, 30'000U);
  EXPECT_EQ(hello->open_files, 1ULL << 40);
  EXPECT_TRUE(hello->elastic);
  EXPECT_EQ(hello->worker_silence_ms, 300U);
  EXPECT_TRUE(hello->local);
  EXPECT_EQ(hello->first_port, 40'000);
  EXPECT_EQ(hello->last_port, 40'999);
  EXPECT_EQ(hello->listen_on, (std::vector<std::string>{"eth0", "10.0.0.1"}));
  EXPECT_EQ(hello->host, "h1");
  EXPECT_EQ(hello->grace_ms, 7'000U);

  const std::vector<Interface> interfaces = {{"lo", "127.0.0.1"}, {"eth0", "fd00::1"}};
  const auto ready = Ready::decode(payload_of(
      Ready{2, "build", 99, "host", interfaces, 4000, "hi", 5000, 8, 3, 96, "none left"}));
  ASSERT_TRUE(ready.ok());
  EXPECT_EQ(ready->protocol, 2U);
  EXPECT_EQ(ready->build_id, "build");
  EXPECT_EQ(ready->pid, 99);
  EXPECT_EQ(ready->host_name, "host");
  EXPECT_EQ(ready->interfaces, interfaces);
  EXPECT_EQ(ready->probe_port, 4000);
  EXPECT_EQ(ready->probe_greeting, "hi");
  EXPECT_EQ(ready->free_port, 5000);
  EXPECT_EQ(ready->gpus, 8);
  EXPECT_EQ(ready->visible_gpus, 3);
  EXPECT_EQ(ready->cores, 96);
  EXPECT_EQ(ready->port_error, "none left");
  EXPECT_TRUE(Ready::decode(payload_of(Ready{2, "build", 99, "host", interfaces, 4000, "hi", 5000,
                                             65'536, 65'536, 65'536}))
                  .ok());
  for (const auto& [gpus, visible, cores] : {std::tuple{-1, 0, 1},
                                             {0, -1, 1},
                                             {0, 0, 0},
                                             {65'537, 0, 1},
                                             {0, 65'537, 1},
                                             {0, 0, 65'537}}) {
    const auto lie = Ready::decode(payload_of(
        Ready{2, "build", 99, "host", interfaces, 4000, "hi", 5000, gpus, visible, cores}));
    ASSERT_FALSE(lie.ok());
    EXPECT_EQ(lie.status().code(), Code::data_loss);
  }

  const auto heartbeat = Heartbeat::decode(payload_of(Heartbeat{1ULL << 33, 1ULL << 32}));
  ASSERT_TRUE(heartbeat.ok());
  EXPECT_EQ(heartbeat->sequence, 1ULL << 33);
  EXPECT_EQ(heartbeat->acknowledged, 1ULL << 32);

  const auto answer = HeartbeatAck::decode(payload_of(HeartbeatAck{1ULL << 34}));
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->sequence, 1ULL << 34);
}

TEST(AgentLinkMessages, KeepEveryFieldOfPausesAndActivities) {
  EXPECT_TRUE(Pause::decode(payload_of(Pause{true}))->on);
  EXPECT_FALSE(Pause::decode(payload_of(Pause{false}))->on);
  EXPECT_TRUE(Paused::decode(payload_of(Paused{true}))->on);
  const auto question = AskActivity::decode(payload_of(AskActivity{7, 1000}));
  EXPECT_EQ(question->id, 7U);
  EXPECT_EQ(question->timeout_ms, 1000U);
  const auto activity =
      WorkerActivity::decode(payload_of(WorkerActivity{7, 2, 18, 'T', true, false, "a", "b", {}}));
  ASSERT_TRUE(activity.ok());
  EXPECT_EQ(activity->id, 7U);
  EXPECT_EQ(activity->incarnation, 18U);
  EXPECT_EQ(activity->process_state, 'T');
  EXPECT_TRUE(activity->initialised);
  EXPECT_FALSE(activity->answered);
  EXPECT_EQ(activity->in_flight, "a");
  EXPECT_EQ(activity->last, "b");
}

TEST(AgentLinkMessages, KeepEveryFieldOfChecksAndProbes) {
  const auto check = Check::decode(payload_of(Check{"/home", "train", "/usr/bin:/bin"}));
  ASSERT_TRUE(check.ok());
  EXPECT_EQ(check->working_directory, "/home");
  EXPECT_EQ(check->program, "train");
  EXPECT_EQ(check->search_path, "/usr/bin:/bin");

  const auto checked =
      Checked::decode(payload_of(Checked{Checked::Step::change_directory, 2, "not there"}));
  ASSERT_TRUE(checked.ok());
  EXPECT_EQ(checked->failed, Checked::Step::change_directory);
  EXPECT_EQ(checked->error_number, 2);
  EXPECT_EQ(checked->message, "not there");
  EXPECT_FALSE(Checked::decode(payload_of(Checked{Checked::Step{3}, 2, "x"})).ok());

  const std::vector<ProbeTarget> targets = {{"10.0.0.1", 4000, "hello"}, {"::1", 65'535, ""}};
  const auto probe = Probe::decode(payload_of(Probe{7, 1000, targets}));
  ASSERT_TRUE(probe.ok());
  EXPECT_EQ(probe->id, 7U);
  EXPECT_EQ(probe->timeout_ms, 1000U);
  EXPECT_EQ(probe->targets, targets);

  const auto probed = Probed::decode(payload_of(Probed{7, {"", "refused"}}));
  ASSERT_TRUE(probed.ok());
  EXPECT_EQ(probed->id, 7U);
  EXPECT_EQ(probed->errors, (std::vector<std::string>{"", "refused"}));
}

TEST(AgentLinkMessages, AStreamThatDoesNotExistIsRefused) {
  for (const auto wrong : {Stream{0}, Stream{3}, Stream{255}}) {
    EXPECT_FALSE(Output::decode(payload_of(Output{1, wrong, "x"})).ok());
    EXPECT_FALSE(OutputClosed::decode(payload_of(OutputClosed{1, wrong})).ok());
    EXPECT_FALSE(Credit::decode(payload_of(Credit{1, wrong, 1})).ok());
  }
}

TEST(AgentLink, FieldsLieOneAfterTheOtherAsTheWireWritesThem) {
  EXPECT_EQ(payload_of(Stop{2, 5000, "because"}),
            WireWriter().u64(2).u32(5000).str("because").bytes());
  EXPECT_EQ(payload_of(Credit{4, Stream::standard_error, 7}),
            WireWriter().u64(4).u8(2).u64(7).bytes());
  EXPECT_EQ(payload_of(WorkerActivity{7, 2, 18, 'T', true, false, "a", "b", "c"}),
            WireWriter()
                .u32(7)
                .u64(2)
                .u64(18)
                .u8('T')
                .boolean(true)
                .boolean(false)
                .str("a")
                .str("b")
                .str("c")
                .bytes());
  EXPECT_EQ(payload_of(Ready{2, "build", 99, "host", {{"lo", "::1"}}, 4000, "hi", 5000, 8, 4, 16}),
            WireWriter()
                .u32(2)
                .str("build")
                .i32(99)
                .str("host")
                .u32(1)
                .str("lo")
                .str("::1")
                .u16(4000)
                .str("hi")
                .u16(5000)
                .i32(8)
                .i32(4)
                .i32(16)
                .str("")
                .boolean(false)
                .bytes());
  EXPECT_EQ(payload_of(Probed{7, {"", "refused"}}),
            WireWriter().u32(7).strings({"", "refused"}).bytes());
}

}  // namespace
}  // namespace hvd::agent_link
