// The descriptor between agent and worker: what is handed on in both directions, and what rubbish
// does.
#include "cmd/hvd-agent/worker_channel.h"

#include <algorithm>
#include <csignal>
#include <future>
#include <gtest/gtest.h>
#include <vector>

#include "base/machine/proc.h"
#include "base/protocol/worker_link.h"
#include "base/socket.h"
#include "base/text.h"
#include "cmd/hvd-agent/event_loop.h"
#include "cmd/hvd-agent/worker_heartbeat.h"
#include "tests/cmd/hvd-agent/agent_under_test.h"

namespace hvd::test {
namespace {

TEST(AgentChannel, HandsOnWelcomeAndWorlds) {
  AgentUnderTest agent;
  auto launch = agent.launch_of(1, {binary("hvd_agent_test_worker"), "read-channel"});
  launch.welcome = encode_frame(1, std::string(3'000'000, 'w'));  // more than a socket holds
  agent.send(launch.encode());
  const auto& out = agent.of(1).out;
  ASSERT_TRUE(agent.until([&] { return out.find('\n') != std::string::npos; }));
  EXPECT_EQ(out, "kind 1 of 3000000 bytes\n");
  agent.send(agent_link::World{1, true, "one"}.encode());
  ASSERT_TRUE(agent.until([&] { return out.find("kind 2 of 20 bytes\n") != std::string::npos; }));
  agent.send(agent_link::World{2, true, "number two"}.encode());
  ASSERT_TRUE(agent.until([&] { return out.find("kind 2 of 27 bytes\n") != std::string::npos; }));
  agent.send(agent_link::Kill{1}.encode());
  ASSERT_TRUE(agent.until_over(1));
}

TEST(AgentChannel, WorkersThatAreLaunchedLaterGetTheNewestEffectiveWorldBehindTheirWelcome) {
  AgentUnderTest agent;
  agent.send(agent_link::World{1, true, "one"}.encode());
  agent.send(agent_link::World{2, true, "number two"}.encode());
  agent.send(agent_link::World{3, false, "number three is proposed"}.encode());
  for (const agent_link::Incarnation worker : {1, 2}) {
    auto launch = agent.launch_of(worker, {binary("hvd_agent_test_worker"), "read-channel"});
    launch.welcome = encode_frame(1, "w");
    agent.send(launch.encode());
    const auto& out = agent.of(worker).out;
    ASSERT_TRUE(agent.until([&] { return std::count(out.begin(), out.end(), '\n') == 2; })) << out;
    EXPECT_EQ(out, "kind 1 of 1 bytes\nkind 2 of 27 bytes\n");
  }
  agent.send(agent_link::Kill{}.encode());
  ASSERT_TRUE(agent.until_over(1));
  ASSERT_TRUE(agent.until_over(2));
}

TEST(AgentChannel, EachWorkerGetsItsOwnKeyOfAWorldAndNoOther) {
  AgentUnderTest agent;
  agent.send(agent_link::WorldKeys{1, {{1, "11"}, {2, "2222"}}}.encode());
  agent.send(agent_link::World{1, true, "one"}.encode());
  const auto has_read = [&](agent_link::Incarnation worker, const std::string& lines) {
    return agent.until([&] { return agent.of(worker).out == "kind 1 of 1 bytes\n" + lines; });
  };
  for (const agent_link::Incarnation worker : {1, 2, 3}) {
    auto launch = agent.launch_of(worker, {binary("hvd_agent_test_worker"), "read-channel"});
    launch.welcome = encode_frame(1, "w");
    agent.send(launch.encode());
  }
  EXPECT_TRUE(has_read(1, "kind 2 of 22 bytes\n")) << agent.of(1).out;
  EXPECT_TRUE(has_read(2, "kind 2 of 24 bytes\n")) << agent.of(2).out;
  EXPECT_TRUE(has_read(3, "kind 2 of 20 bytes\n")) << agent.of(3).out;

  // Keys of another generation, and a world without any.
  agent.send(agent_link::WorldKeys{3, {{1, "11"}}}.encode());
  agent.send(agent_link::World{2, false, "two"}.encode());
  agent.send(agent_link::World{3, false, "3"}.encode());
  EXPECT_TRUE(has_read(1, "kind 2 of 22 bytes\nkind 2 of 20 bytes\nkind 2 of 18 bytes\n"))
      << agent.of(1).out;
  agent.send(agent_link::Kill{}.encode());
  for (const agent_link::Incarnation worker : {1, 2, 3}) ASSERT_TRUE(agent.until_over(worker));
}

TEST(AgentChannel, AWorkerThatNeverReadsHoldsUpNobody) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"stay"});
  agent.launch_mode(2, {"write-channel-and-stay", "initialised"});
  agent.launch_mode(3, {"read-channel"});
  ASSERT_TRUE(agent.until([&] { return agent.of(2).initialised == 1; }));
  const std::string document(500'000, 'd');
  constexpr std::uint64_t kWorlds = 20;
  for (std::uint64_t g = 1; g <= kWorlds; ++g) {
    agent.send(agent_link::World{g, true, document + std::string(g, '+')}.encode());
  }
  // The reader gets the newest world, whichever it has skipped.
  const std::string newest = cat("kind 2 of ", 17 + document.size() + kWorlds, " bytes\n");
  ASSERT_TRUE(agent.until([&] { return agent.of(3).out.find(newest) != std::string::npos; }));
  agent.send(agent_link::Heartbeat{1}.encode());
  ASSERT_TRUE(agent.until([&] { return !agent.acks.empty(); }));
  // One word about the one that said that it would read; none about the plain program.
  std::size_t complaints = 0;
  for (const auto& problem : agent.problems) {
    EXPECT_EQ(problem.find("here#1 "), std::string::npos) << problem;
    if (problem.find("here#2 does not read") != std::string::npos) ++complaints;
  }
  EXPECT_EQ(complaints, 1U);
}

TEST(AgentChannel, PassesOnTheNewestWorkWithAHeartbeat) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"write-channel-and-stay", "work"});
  ASSERT_TRUE(agent.until([&] { return agent.of(1).initialised == 1; }));
  EXPECT_TRUE(agent.work.empty());

  for (std::uint64_t heartbeat = 1; heartbeat <= 2; ++heartbeat) {
    agent.send(agent_link::Heartbeat{heartbeat}.encode());
    ASSERT_TRUE(agent.until([&] { return agent.acks.size() == heartbeat; }));
  }
  ASSERT_TRUE(agent.until([&] { return !agent.work[1].empty(); }));
  ASSERT_EQ(agent.work[1].size(), 1U) << "once";
  EXPECT_EQ(agent.work[1][0].steps, 3U);
}

TEST(AgentChannel, WorkThatWasNotPassedOnComesBeforeTheExit) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"write-channel", "work"});
  ASSERT_TRUE(agent.until_over(1));
  ASSERT_EQ(agent.work[1].size(), 1U);
  EXPECT_EQ(agent.work[1][0].steps, 3U);
}

TEST(AgentChannel, DescribesWorkersThatDoNotReportTheirActivity) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"stay"});
  agent.launch_mode(2, {"write-channel-and-stay", "initialised"});  // and never answers
  agent.launch_mode(3, {"stay"});
  ASSERT_TRUE(agent.until([&] {
    return agent.of(1).pid != 0 && agent.of(2).initialised == 1 && agent.of(3).pid != 0;
  }));
  ::kill(agent.of(3).pid, SIGSTOP);
  ASSERT_TRUE(eventually([&] { return is_stopped(agent.of(3).pid); }));

  agent.send(agent_link::AskActivity{7, 100}.encode());
  ASSERT_TRUE(agent.until([&] { return agent.activities.size() == 3; }));
  for (const auto& [incarnation, activity] : agent.activities) {
    EXPECT_EQ(activity.id, 7U);
    EXPECT_FALSE(activity.answered);
    EXPECT_EQ(activity.initialised, incarnation == 2);
    EXPECT_EQ(activity.process_state == 'T', incarnation == 3);
  }
}

TEST(AgentChannel, PassesOnWhatAWorkerDidWhenItsWorldFailed) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"write-channel-and-stay", "last-words"});
  ASSERT_TRUE(agent.until([&] { return agent.activities.contains(1); }));
  const auto& told = agent.activities[1];
  EXPECT_EQ(told.id, worker_link::Activity::kAtTheEnd);
  EXPECT_TRUE(told.answered);
  EXPECT_EQ(told.in_flight, "allreduce \"a\"");
  EXPECT_EQ(told.missing, "rank 1 on b#0 has not asked for \"a\"");
}

TEST(AgentChannel, AWorkerThatDoesNotAnswerIsStoppedAMomentLater) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"write-channel-and-stay", "initialised"});  // and never answers
  ASSERT_TRUE(agent.until([&] { return agent.of(1).initialised == 1; }));
  agent.send(agent_link::Stop{1, 60'000, "another worker has failed"}.encode());
  ASSERT_TRUE(agent.until_over(1));
  ASSERT_TRUE(agent.of(1).exited);
  EXPECT_EQ(agent.of(1).exited->signal_number, SIGTERM);
  EXPECT_TRUE(agent.activities.empty());
}

TEST(AgentChannel, ASecondStopDoesNotPutOffTheSigterm) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"write-channel-and-stay", "initialised"});
  ASSERT_TRUE(agent.until([&] { return agent.of(1).initialised == 1; }));
  agent.send(agent_link::Stop{1, 2'000, "first"}.encode());
  agent.send(agent_link::Stop{1, 2'000, "second"}.encode());
  ASSERT_TRUE(agent.until_over(1));
  EXPECT_EQ(agent.of(1).exited->signal_number, SIGTERM);
}

TEST(AgentChannel, AKillDoesNotWaitForAFinalReport) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"write-channel-and-stay", "initialised"});
  // The agent asks a worker only once its start is known.
  ASSERT_TRUE(agent.until([&] { return agent.of(1).initialised == 1 && agent.of(1).pid != 0; }));
  agent.send(agent_link::Stop{1, 60'000, "first"}.encode());
  agent.send(agent_link::Kill{1}.encode());
  ASSERT_TRUE(agent.until_over(1));
  EXPECT_EQ(agent.of(1).exited->signal_number, SIGKILL);
}

TEST(AgentChannel, SignalsToTheAgentThatMeanNothingOrAQuestionEndNothing) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"stay"});
  ASSERT_TRUE(agent.until([&] { return agent.of(1).pid != 0; }));
  for (const int number : {SIGHUP, SIGPIPE, SIGTSTP, SIGUSR2}) ::kill(agent.pid(), number);
  ::kill(agent.pid(), SIGUSR1);
  ASSERT_TRUE(agent.until([&] { return agent.activity_wanted == 1; }));
  agent.send(agent_link::Heartbeat{1}.encode());
  ASSERT_TRUE(agent.until([&] { return !agent.acks.empty(); }));
}

TEST(AgentChannel, AProposedWorldAndAnEffectiveOneDoNotReplaceEachOther) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"read-channel"});
  ASSERT_TRUE(agent.until([&] { return agent.of(1).pid != 0; }));
  agent.send(agent_link::Signal{1, SIGSTOP}.encode());
  // More than a socket holds: behind the first all others wait.
  const auto send = [&](std::uint64_t generation, bool effective, std::size_t size) {
    agent.send(agent_link::World{generation, effective, std::string(size, 'd')}.encode());
  };
  send(1, true, 3'000'000);
  send(2, false, 100);
  send(3, true, 200);
  send(4, false, 101);
  send(4, true, 201);  // a commit took it into force; a newer one is proposed
  send(6, false, 102);
  agent.send(agent_link::Signal{1, SIGCONT}.encode());
  const auto& out = agent.of(1).out;
  ASSERT_TRUE(agent.until([&] { return out.find("of 119 bytes\n") != std::string::npos; }));
  const auto effective = out.find("kind 2 of 218 bytes\n");
  EXPECT_LT(effective, out.find("kind 2 of 119 bytes\n")) << out;
  for (const char* const replaced : {"of 117 bytes", "of 118 bytes", "of 217 bytes"}) {
    EXPECT_EQ(out.find(replaced), std::string::npos) << out;
  }
}

TEST(AgentChannel, AWorkerThatGivesNoSignOfLifeAfterInitIsKilled) {
  AgentOptions options;
  options.hello.worker_silence_ms = 200;
  AgentUnderTest agent(options);
  agent.launch_mode(1, {"stay"});  // a plain program is never asked
  agent.launch_mode(2, {"write-channel-and-stay", "initialised"});
  ASSERT_TRUE(agent.until([&] { return agent.of(2).exited.has_value(); }));
  EXPECT_EQ(agent.of(2).exited->signal_number, SIGKILL);
  EXPECT_FALSE(agent.of(1).exited);
  ASSERT_FALSE(agent.problems.empty());
  EXPECT_TRUE(agent.problems.front().starts_with("worker here#2 gave no sign of life for 200 ms"))
      << agent.problems.front();
}

TEST(AgentPulse, SilenceIsJudgedFromTheLastAnswerAndNotWhileTheJudgeWasHeldUp) {
  using std::chrono::milliseconds;
  const TimePoint begin{};
  const auto at = [&](int ms) { return begin + milliseconds(ms); };
  agent::WorkerHeartbeat heartbeat(milliseconds(600));
  EXPECT_EQ(heartbeat.deadline(), kNever);
  heartbeat.begin(at(0));
  EXPECT_TRUE(heartbeat.look(at(0)).ping);
  EXPECT_FALSE(heartbeat.look(at(50)).ping);
  EXPECT_TRUE(heartbeat.look(at(100)).ping);
  heartbeat.heard(at(110));
  for (int ms = 200; ms < 700; ms += 100) EXPECT_FALSE(heartbeat.look(at(ms)).silent) << ms;
  EXPECT_TRUE(heartbeat.look(at(710)).silent);
  // The agent was held up for half the limit, so that an answer may wait unread.
  EXPECT_FALSE(heartbeat.look(at(1100)).silent);
  for (int ms = 1200; ms < 1700; ms += 100) EXPECT_FALSE(heartbeat.look(at(ms)).silent) << ms;
  EXPECT_TRUE(heartbeat.look(at(1700)).silent);
  heartbeat.excuse(at(1700));
  EXPECT_FALSE(heartbeat.look(at(1700)).silent);
  heartbeat.end();
  EXPECT_FALSE(heartbeat.look(at(9000)).silent);
  agent::WorkerHeartbeat never(milliseconds(0));
  never.begin(at(0));
  EXPECT_EQ(never.deadline(), kNever);
}

TEST(AgentChannel, TellsWhatAWorkerOfAChangingWorldSaysAndNothingTwice) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"write-channel", "elastic"});
  ASSERT_TRUE(agent.until_over(1));
  EXPECT_EQ(agent.of(1).ready, 1);
  EXPECT_EQ(agent.of(1).leaves, 1);
  EXPECT_EQ(agent.of(1).left, (std::vector<std::string>{"why"}));
  EXPECT_EQ(agent.of(1).committed, (std::vector<std::uint64_t>{5, 6}));
  using agent_link::Kind;
  const std::vector<Kind> said{Kind::worker_initialised, Kind::worker_ready,  Kind::world_committed,
                               Kind::world_committed,    Kind::worker_leaves, Kind::worker_left,
                               Kind::worker_done};
  auto order = agent.of(1).order;
  std::erase_if(order,
                [&](Kind kind) { return std::find(said.begin(), said.end(), kind) == said.end(); });
  EXPECT_EQ(order, said);
  EXPECT_TRUE(agent.problems.empty());
}

TEST(AgentDescribe, SaysWhatAWorkerAndItsChildrenAreDoing) {
  AgentUnderTest agent;
  agent.launch(1, {"sh", "-c", "while :; do :; done & echo there; wait"});
  ASSERT_TRUE(agent.until([&] { return agent.of(1).out == "there\n"; }));
  agent.send(agent_link::Describe{1}.encode());
  agent.send(agent_link::Describe{77}.encode());  // there is none: no answer
  ASSERT_TRUE(agent.until([&] { return !agent.of(1).described.empty(); }));
  const std::string& text = agent.of(1).described.front();
  EXPECT_TRUE(text.starts_with(cat("sh (pid ", agent.of(1).pid, ", with 1 child) runs, "))) << text;
  EXPECT_TRUE(text.ends_with(" s of processor time")) << text;
  agent.send(agent_link::Kill{1}.encode());
  ASSERT_TRUE(agent.until_over(1));
}

TEST(AgentChannel, TellsInitialisedAndDoneBeforeTheExit) {
  AgentUnderTest agent;
  for (agent_link::Incarnation i = 1; i <= 20; ++i) agent.launch_mode(i, {"write-channel", "done"});
  for (agent_link::Incarnation i = 1; i <= 20; ++i) {
    ASSERT_TRUE(agent.until([&] { return agent.of(i).exited.has_value(); }));
    EXPECT_EQ(agent.of(i).initialised, 1);
    EXPECT_EQ(agent.of(i).done, 1);
  }
}

TEST(AgentChannel, TellsAgainOnlyWhatChanged) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"write-channel", "twice"});
  ASSERT_TRUE(agent.until_over(1));
  EXPECT_EQ(agent.of(1).initialised, 1);
  EXPECT_EQ(agent.of(1).done, 1);
}

TEST(AgentChannel, RubbishHarmsNothing) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"write-channel-and-stay", "rubbish"});
  ASSERT_TRUE(agent.until([&] { return agent.of(1).out == "written\n"; }));
  agent.launch_mode(2, {"write-channel", "done"});
  ASSERT_TRUE(agent.until_over(2));
  EXPECT_EQ(agent.of(2).done, 1);
  ASSERT_TRUE(agent.until([&] { return !agent.problems.empty(); }));
  agent.send(agent_link::World{1, true, "x"}.encode() + agent_link::Kill{1}.encode());
  ASSERT_TRUE(agent.until_over(1));
  ASSERT_EQ(agent.problems.size(), 1U);
  EXPECT_NE(agent.problems[0].find("here#1 sent malformed data"), std::string::npos);
}

TEST(AgentChannel, AnUnknownMessageIsToldOnceAndPassedOver) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"write-channel", "unknown"});
  ASSERT_TRUE(agent.until_over(1));
  EXPECT_EQ(agent.of(1).initialised, 1);
  ASSERT_EQ(agent.problems.size(), 1U);
  EXPECT_NE(agent.problems[0].find("kind 77"), std::string::npos);
}

TEST(AgentChannel, TheWorkerSeesTheAgentsEnd) {
  AgentUnderTest agent;
  agent.launch_mode(1, {"read-channel"});
  ASSERT_TRUE(agent.until([&] { return agent.of(1).pid != 0; }));
  agent.close_link();
  EXPECT_EQ(agent.wait_for_exit(), 1);
}

// The channel alone, with the test as its worker.
class OneWorkerChannel : public ::testing::Test {
 protected:
  agent::WorkerChannel& open(std::string welcome, bool wants_marks = true) {
    auto ends = socket_pair();
    EXPECT_TRUE(ends.ok());
    worker_ = std::move(ends->second);
    agent::WorkerChannel::Listener listener;
    listener.initialised = [this] { ++initialised_; };
    listener.problem = [this](const std::string& what) { problems_.push_back(what); };
    if (wants_marks) listener.mark = [this](std::string commit) { mark_ = std::move(commit); };
    channel_ = std::make_unique<agent::WorkerChannel>(std::move(listener));
    EXPECT_TRUE(
        channel_->open(*loop_, std::move(ends->first), std::move(welcome), SharedBytes()).ok());
    return *channel_;
  }
  // Serves the channel until `work`, which plays the worker on a thread of its own, is done.
  template <typename Work>
  auto serve(Work work) {
    auto done = std::async(std::launch::async, std::move(work));
    while (done.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      EXPECT_TRUE(loop_->wait(Clock::now() + std::chrono::milliseconds(10)).ok());
    }
    return done.get();
  }
  Frame read_one() {
    return serve([this] {
      auto frame = receive_frame(worker_.get(), decoder_, Clock::now() + kGenerous);
      EXPECT_TRUE(frame.ok()) << frame.status().to_string();
      return frame.ok() ? *frame : Frame();
    });
  }
  void say(const std::string& bytes) {
    serve([&] { EXPECT_TRUE(send_all(worker_.get(), bytes, Clock::now() + kGenerous).ok()); });
    channel_->receive();
  }
  static bool is_gone(const Frame& frame) {
    EXPECT_EQ(frame.kind, static_cast<std::uint16_t>(worker_link::Kind::driver_gone));
    const auto message = worker_link::DriverGone::decode(frame.payload);
    return message.ok() && message->gone;
  }

  std::unique_ptr<agent::EventLoop> loop_ = *agent::EventLoop::create();
  UniqueFd worker_;
  FrameDecoder decoder_;
  std::unique_ptr<agent::WorkerChannel> channel_;
  int initialised_ = 0;
  std::string mark_;
  std::vector<std::string> problems_;
};

TEST_F(OneWorkerChannel, OfWordsOnTheDriverOnlyTheNewestWaits) {
  auto& channel = open(encode_frame(1, std::string(3'000'000, 'w')));  // more than a socket holds
  for (int i = 0; i < 1000; ++i) {
    channel.send_driver_gone({true});
    channel.send_driver_gone({false});
  }
  channel.send_driver_gone({true});
  EXPECT_EQ(read_one().payload.size(), 3'000'000U);
  EXPECT_TRUE(is_gone(read_one()));
  channel.send_driver_gone({false});
  EXPECT_FALSE(is_gone(read_one()));
}

TEST_F(OneWorkerChannel, AProposedWorldThatWaitsGoesWithTheDriverThatProposedIt) {
  auto& channel = open(encode_frame(1, std::string(3'000'000, 'w')));
  const auto send = [&](std::uint64_t generation, bool effective) {
    channel.send_world(generation, effective,
                       share(worker_link::World{generation, effective, "{}"}.encode()));
  };
  const auto generation_of = [](const Frame& frame) {
    const auto world = worker_link::World::decode(frame.payload);
    return world.ok() ? world->generation : 0;
  };
  send(1, true);
  send(2, false);
  channel.send_driver_gone({true});
  channel.send_driver_gone({false});
  send(3, false);  // of the successor
  (void)read_one();
  EXPECT_FALSE(is_gone(read_one()));
  EXPECT_EQ(generation_of(read_one()), 1U);
  EXPECT_EQ(generation_of(read_one()), 3U);
}

TEST_F(OneWorkerChannel, HearsAsManyMarksAsThereAreCommits) {
  constexpr int kMany = 110'000;  // more than a worker may say of other things
  open("");
  std::string marks;
  for (int i = 1; i <= kMany; ++i) marks += worker_link::Mark{cat("1.", i)}.encode();
  say(marks + worker_link::Initialised{1}.encode());
  EXPECT_EQ(mark_, cat("1.", kMany));
  EXPECT_EQ(initialised_, 1);
  EXPECT_TRUE(problems_.empty());
}

TEST_F(OneWorkerChannel, TakesAMarkThatNobodyWantsAndRefusesOneThatIsNone) {
  open("", false);
  say(worker_link::Mark{"1.2"}.encode());
  EXPECT_TRUE(problems_.empty());
  say(worker_link::Mark{"the newest"}.encode() + worker_link::Initialised{1}.encode());
  EXPECT_EQ(problems_.size(), 1U);
  EXPECT_EQ(initialised_, 1);
}

}  // namespace
}  // namespace hvd::test
