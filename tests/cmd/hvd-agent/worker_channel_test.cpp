// The descriptor between agent and worker: what is handed on in both directions, and what rubbish
// does.
#include <algorithm>
#include <csignal>
#include <gtest/gtest.h>

#include "base/machine/proc.h"
#include "base/protocol/worker_link.h"
#include "base/text.h"
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
  ASSERT_TRUE(agent.until([&] { return out.find("kind 2 of 16 bytes\n") != std::string::npos; }));
  agent.send(agent_link::World{2, true, "number two"}.encode());
  ASSERT_TRUE(agent.until([&] { return out.find("kind 2 of 23 bytes\n") != std::string::npos; }));
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
    EXPECT_EQ(out, "kind 1 of 1 bytes\nkind 2 of 23 bytes\n");
  }
  agent.send(agent_link::Kill{}.encode());
  ASSERT_TRUE(agent.until_over(1));
  ASSERT_TRUE(agent.until_over(2));
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
  const std::string newest = cat("kind 2 of ", 13 + document.size() + kWorlds, " bytes\n");
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
  ASSERT_TRUE(agent.until([&] { return out.find("of 115 bytes\n") != std::string::npos; }));
  const auto effective = out.find("kind 2 of 214 bytes\n");
  EXPECT_LT(effective, out.find("kind 2 of 115 bytes\n")) << out;
  for (const char* const replaced : {"of 113 bytes", "of 114 bytes", "of 213 bytes"}) {
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

}  // namespace
}  // namespace hvd::test
