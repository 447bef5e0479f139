#include "driver/agents/agent_session_state.h"

#include <gtest/gtest.h>

namespace hvd::driver {
namespace {

using enum AgentSessionState;

TEST(AgentSessionState, RowsAreInTheOrderOfTheEnum) {
  for (std::size_t i = 0; i < kAgentSessionStates.size(); ++i) {
    EXPECT_EQ(static_cast<std::size_t>(kAgentSessionStates.at(i).state), i);
  }
  EXPECT_EQ(name_of(closed), "closed");
}

TEST(AgentSessionState, EveryStateLeadsToTheEnd) {
  for (const auto& row : kAgentSessionStates) {
    if (row.state == ended || row.state == closed) continue;
    EXPECT_TRUE(may_follow(row.state, ended)) << row.name;
    EXPECT_TRUE(may_follow(row.state, closed)) << row.name;
  }
  EXPECT_TRUE(may_follow(ended, closed));
}

TEST(AgentSessionState, NothingFollowsTheEnd) {
  for (const auto& row : kAgentSessionStates) {
    EXPECT_FALSE(may_follow(closed, row.state)) << row.name;
    EXPECT_EQ(may_follow(ended, row.state), row.state == closed) << row.name;
    EXPECT_FALSE(may_follow(row.state, row.state)) << row.name;
    EXPECT_FALSE(may_follow(row.state, greeting)) << row.name;
  }
}

TEST(AgentSessionState, AnAgentIsReadyOnlyOnceItIsIdentifiedAndChecked) {
  for (const auto& row : kAgentSessionStates) {
    EXPECT_EQ(may_follow(row.state, ready), row.state == identified || row.state == checked)
        << row.name;
  }
}

// Errors of a ready agent are for the job to judge, and drop() changes nothing for it.
TEST(AgentSessionState, AReadyAgentIsNeverRejected) {
  for (const auto state : {ready, leaving}) {
    EXPECT_FALSE(may_follow(state, rejected));
    EXPECT_FALSE(may_follow(state, dropped));
  }
}

}  // namespace
}  // namespace hvd::driver
