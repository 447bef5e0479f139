// A driver that goes on with a job learns from its steps what agents were asked and have said.
#include "driver/run/takeover.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace hvd::driver {
namespace {

using Hosts = std::vector<HostIndex>;

struct Turn {
  Event event;
  std::vector<Action> actions = {};
};

// What was asked of the agents of hosts 0 to 2, and what they have said: "0: launch a#0 ...".
std::vector<std::string> unanswered_texts(const Takeover& takeover) {
  std::vector<std::string> texts;
  for (HostIndex host = 0; host < 3; ++host) {
    for (const auto& action : takeover.unanswered(host)) {
      texts.push_back(to_text(action, {"a", "b", "c"}));
    }
  }
  return texts;
}

action::Launch launch(HostIndex host, Incarnation incarnation) {
  action::Launch launch;
  launch.host = host;
  launch.member.host = std::string(1, static_cast<char>('a' + host));
  launch.member.incarnation = incarnation;
  launch.member.slot = static_cast<int>(incarnation) - 1;
  return launch;
}

Turn begins(HostIndex host) { return {event::Begin{}, {action::StartAgent{host}}}; }
Turn asks(Action action) { return {event::Tick{}, {std::move(action)}}; }

struct History {
  const char* name;
  std::vector<Turn> steps;
  Hosts looked_for;
  Hosts ready;
  std::vector<std::string> unanswered;
};

TEST(Takeover, KnowsFromTheStepsWhatWasAskedAndIsNotAnswered) {
  const std::string launch_1 = to_text(launch(0, 1), {"a", "b", "c"});
  const std::string launch_2 = to_text(launch(0, 2), {"a", "b", "c"});
  const auto text = [](const Action& action) { return to_text(action, {"a", "b", "c"}); };
  const action::StopWorkers stop_1{0, 1, std::chrono::milliseconds(5), "why"};
  const action::KillWorkers kill_1{0, 1};
  const action::StopWorkers stop_all{0, kEveryWorker, std::chrono::milliseconds(5), "why"};
  const action::DescribeWorker describe_1{0, 1};
  const std::vector<History> histories{
      {"nothing has happened", {}, {}, {}, {}},
      {"an agent is on its way", {begins(0)}, {0}, {}, {}},
      {"an agent is ready", {begins(0), {event::AgentReady{0, {}}}}, {0}, {0}, {}},
      {"two agents, one of which is ready",
       {begins(0), begins(2), {event::AgentReady{2, {}}}},
       {0, 2},
       {2},
       {}},
      {"a host has failed", {begins(0), {event::HostFailed{0, {}}}}, {}, {}, {}},
      {"an agent has gone, with what it was asked",
       {begins(0), {event::AgentReady{0, {}}, {launch(0, 1)}}, {event::AgentGone{0, "x"}}},
       {},
       {},
       {}},
      {"another agent comes to the host of one that has gone",
       {begins(0),
        {event::AgentReady{0, {}}, {launch(0, 1)}},
        {event::AgentGone{0, "x"}, {action::StartAgent{0}}}},
       {0},
       {},
       {}},
      {"a launch without an answer", {begins(0), asks(launch(0, 1))}, {0}, {}, {launch_1}},
      {"a launch that was answered",
       {begins(0), asks(launch(0, 1)), {event::Launched{0, 1, 9}}},
       {0},
       {},
       {}},
      {"a launch that has failed",
       {begins(0), asks(launch(0, 1)), {event::LaunchFailed{0, 1, 2, "no"}}},
       {0},
       {},
       {}},
      {"two launches, the second of which was answered",
       {begins(0), asks(launch(0, 1)), asks(launch(0, 2)), {event::Launched{0, 2, 9}}},
       {0},
       {},
       {launch_1}},
      {"the same incarnation's number from another host answers nothing",
       {begins(0), begins(1), asks(launch(0, 1)), {event::Launched{1, 1, 9}}},
       {0, 1},
       {},
       {launch_1}},
      {"a worker runs, and is to stop",
       {begins(0), asks(launch(0, 1)), {event::Launched{0, 1, 9}}, asks(stop_1)},
       {0},
       {},
       {text(stop_1)}},
      {"its end answers all that would have ended it",
       {begins(0),
        asks(launch(0, 1)),
        {event::Launched{0, 1, 9}},
        asks(stop_1),
        asks(kill_1),
        {event::Exited{0, 1, 0, 15}}},
       {0},
       {},
       {}},
      {"the end of another worker does not",
       {begins(0), asks(kill_1), {event::Exited{0, 2, 0, 15}}},
       {0},
       {},
       {text(kill_1)}},
      {"what is asked of all workers is repeated until the agent ends",
       {begins(0), asks(stop_all), {event::Exited{0, 1, 0, 15}}},
       {0},
       {},
       {text(stop_all)}},
      {"a description",
       {begins(0), asks(describe_1), {event::Described{0, 1, "it runs"}}},
       {0},
       {},
       {}},
      {"a description without an answer",
       {begins(0), asks(describe_1), {event::Described{0, 2, "it runs"}}},
       {0},
       {},
       {text(describe_1)}},
      {"an address",
       {begins(0), asks(action::FindAddress{0}), {event::AddressFound{0, "x", "y:1"}}},
       {0},
       {},
       {}},
      {"an address without an answer",
       {begins(0), asks(action::FindAddress{0})},
       {0},
       {},
       {text(action::FindAddress{0})}},
      {"an agent is to end, in the order in which it was asked",
       {begins(0), asks(launch(0, 2)), asks(action::ShutDownAgent{0, 3}),
        asks(action::DropAgent{0})},
       {0},
       {},
       {launch_2, text(action::ShutDownAgent{0, 3}), text(action::DropAgent{0})}},
      {"what concerns no agent is nobody's",
       {begins(0), asks(action::Say{}), asks(action::VoidCommits{3}), asks(action::Answer{})},
       {0},
       {},
       {}},
  };
  for (const auto& [name, steps, looked_for, ready, unanswered] : histories) {
    SCOPED_TRACE(name);
    Takeover takeover;
    for (const auto& [event, actions] : steps) takeover.relive(event, actions);
    EXPECT_EQ(takeover.hosts(), looked_for);
    Hosts were_ready;
    for (HostIndex host = 0; host < 3; ++host) {
      if (takeover.was_ready(host)) were_ready.push_back(host);
    }
    EXPECT_EQ(were_ready, ready);
    EXPECT_EQ(unanswered_texts(takeover), unanswered);
  }
}

TEST(Takeover, LooksForAnAgentUntilItIsFoundOrGivenUp) {
  Takeover takeover;
  takeover.relive(event::Begin{}, {action::StartAgent{0}, action::StartAgent{1}});
  EXPECT_TRUE(takeover.looks_for(0));
  takeover.ends_looking_for(0);
  EXPECT_FALSE(takeover.looks_for(0));
  EXPECT_EQ(takeover.hosts(), Hosts{1});
  EXPECT_FALSE(takeover.looks_for(7));
}

// A driver hears late of the commit that took a world into force, when it has proposed another one.
TEST(Takeover, KnowsTheWorldThatIsProposedStill) {
  const auto world = [](std::uint64_t generation, WorldState state) {
    WorldDocument world;
    world.generation = generation;
    world.state = state;
    return world;
  };
  Takeover takeover;
  const auto proposed = [&] { return takeover.proposed() ? takeover.proposed()->generation : 0; };
  takeover.publish(world(2, WorldState::proposed));
  takeover.publish(world(3, WorldState::proposed));
  EXPECT_EQ(proposed(), 3U);
  takeover.publish(world(2, WorldState::effective));
  EXPECT_EQ(proposed(), 3U);
  takeover.publish(world(3, WorldState::effective));
  EXPECT_EQ(proposed(), 0U);
  takeover.publish(world(4, WorldState::proposed));
  takeover.publish(world(5, WorldState::effective));
  EXPECT_EQ(proposed(), 0U) << "a loss has withdrawn it";
}

// Its agent would not hear it before.
TEST(Takeover, WhatIsDecidedForAnAgentWaitsUntilItIsFound) {
  const action::StopWorkers stop{0, 1, std::chrono::milliseconds(5), "why"};
  const action::KillWorkers kill{0, 1};
  Takeover takeover;
  takeover.relive(event::Begin{}, {action::StartAgent{0}, action::StartAgent{1}});
  takeover.relive(event::AgentReady{0, {}}, {stop});
  EXPECT_TRUE(takeover.defer(kill));
  EXPECT_FALSE(takeover.defer(action::DropAgent{0})) << "nobody waits for it any more";
  EXPECT_FALSE(takeover.defer(action::DropAgent{1}));
  EXPECT_FALSE(takeover.defer(action::StartAgent{2}));
  EXPECT_FALSE(takeover.defer(action::Say{}));
  const std::vector<std::string> both{to_text(stop, {"a"}), to_text(kill, {"a"})};
  EXPECT_EQ(unanswered_texts(takeover), both);
  takeover.ends_looking_for(0);
  EXPECT_FALSE(takeover.defer(kill));
  EXPECT_EQ(unanswered_texts(takeover), both);
}

// All that the agent has said comes again, and the job is to hear of each once.
TEST(Takeover, KnowsTheReportsThatTheJobHasHad) {
  const std::vector<Event> reports{
      event::Launched{0, 1, 9}, event::LaunchFailed{0, 1, 2, "no"}, event::Initialised{0, 1},
      event::Done{0, 1},        event::Exited{0, 1, 3, 0},          event::HostLeaves{0},
      event::WorkerReady{0, 1}, event::LeaveRequested{0, 1},        event::WorkerLeft{0, 1, "why"},
      event::Committed{0, 1, 5}};
  for (const auto& report : reports) {
    SCOPED_TRACE(report.index());
    Takeover takeover;
    takeover.relive(event::Begin{}, {action::StartAgent{0}});
    EXPECT_FALSE(takeover.is_known(report));
    takeover.relive(report, {});
    EXPECT_TRUE(takeover.is_known(report));
    for (const auto& other : reports) {
      EXPECT_EQ(takeover.is_known(other), other.index() == report.index()) << other.index();
    }
  }
}

TEST(Takeover, AReportOfAnotherWorkerAnotherCommitOrAnotherAgentIsNew) {
  Takeover takeover;
  takeover.relive(event::Begin{}, {action::StartAgent{0}, action::StartAgent{1}});
  takeover.relive(event::Exited{0, 1, 3, 0}, {});
  takeover.relive(event::Committed{0, 1, 5}, {});
  EXPECT_FALSE(takeover.is_known(event::Exited{0, 2, 3, 0}));
  EXPECT_FALSE(takeover.is_known(event::Exited{1, 1, 3, 0}));
  EXPECT_FALSE(takeover.is_known(event::Committed{0, 1, 6}));
  // The agent that has said it is gone, and its workers with it.
  takeover.relive(event::AgentGone{0, "x"}, {action::StartAgent{0}});
  EXPECT_FALSE(takeover.is_known(event::Exited{0, 1, 3, 0}));
}

// What can be true again, or is of the driver's own, is always news.
TEST(Takeover, WhatIsNoReportOfAnAgentIsAlwaysNew) {
  for (const Event& event :
       std::vector<Event>{event::Heard{0}, event::Unserved{0}, event::HostProgress{0, {}},
                          event::Described{0, 1, "it runs"}, event::FoundSlow{0, 1, true},
                          event::Saving{0, 1, 5, 5, true}, event::SuspendRequested{15},
                          event::StopRequested{2}, event::Tick{}}) {
    Takeover takeover;
    takeover.relive(event::Begin{}, {action::StartAgent{0}});
    takeover.relive(event, {});
    EXPECT_FALSE(takeover.is_known(event)) << event.index();
  }
}

TEST(Takeover, KnowsWhichWorldsHaveBeenAtWork) {
  Takeover takeover;
  takeover.relive(event::Begin{}, {action::StartAgent{0}});
  EXPECT_FALSE(takeover.is_known(event::WorldEntered{1, 1}));
  takeover.relive(event::WorldEntered{3, 1}, {});
  EXPECT_TRUE(takeover.is_known(event::WorldEntered{3, 2}));
  EXPECT_FALSE(takeover.is_known(event::WorldEntered{4, 1}));
}

TEST(Takeover, KnowsWhereItsHostsReachTheRendezvous) {
  Takeover takeover;
  takeover.relive(event::Begin{},
                  {action::StartAgent{0}, action::StartAgent{1}, action::StartAgent{2}});
  takeover.relive(event::AddressFound{0, "10.0.0.5", "10.0.0.1:4711"}, {});
  takeover.relive(event::AddressFound{1, "10.0.0.6", "10.0.0.1:4711"}, {});
  takeover.relive(event::AddressFound{2, "127.0.0.1", "127.0.0.1:4712"}, {});
  const std::set<std::string> both{"10.0.0.1:4711", "127.0.0.1:4712"};
  EXPECT_EQ(takeover.rendezvous_addresses(), both);
  ASSERT_TRUE(takeover.address(1));
  EXPECT_EQ(takeover.address(1)->address, "10.0.0.6");
  takeover.relive(event::AgentGone{2, "x"}, {});
  EXPECT_EQ(takeover.rendezvous_addresses(), std::set<std::string>{"10.0.0.1:4711"});
  EXPECT_FALSE(takeover.address(2));
  EXPECT_FALSE(takeover.address(7));
}

// Its driver has died before it could forget the job.
TEST(Takeover, KnowsThatTheJobIsOver) {
  Takeover takeover;
  takeover.relive(event::Begin{}, {action::StartAgent{0}});
  EXPECT_FALSE(takeover.finish());
  takeover.relive(event::AgentGone{0, "left"}, {action::Finish{3, {}, "why"}});
  ASSERT_TRUE(takeover.finish());
  EXPECT_EQ(takeover.finish()->exit_code, 3);
}

TEST(Takeover, KnowsTheWorldThatIsProposed) {
  const auto publish = [](std::uint64_t generation, WorldState state) {
    action::PublishWorld action;
    action.world.generation = generation;
    action.world.state = state;
    return action;
  };
  Takeover takeover;
  EXPECT_FALSE(takeover.proposed());
  takeover.relive(event::Tick{}, {publish(1, WorldState::effective)});
  EXPECT_FALSE(takeover.proposed());
  takeover.relive(event::Tick{}, {publish(2, WorldState::proposed)});
  takeover.relive(event::Tick{}, {publish(3, WorldState::proposed)});
  ASSERT_TRUE(takeover.proposed());
  EXPECT_EQ(takeover.proposed()->generation, 3U);
  takeover.relive(event::Committed{0, 1, 3}, {publish(3, WorldState::effective)});
  EXPECT_FALSE(takeover.proposed());
  // By this driver, before all agents are found.
  takeover.publish(publish(4, WorldState::proposed).world);
  ASSERT_TRUE(takeover.proposed());
  EXPECT_EQ(takeover.proposed()->generation, 4U);
}

}  // namespace
}  // namespace hvd::driver
