// The worlds that a process is told of, waits for, and enters. The test plays its agent.
#include "worker/process/membership.h"

#include <future>
#include <gtest/gtest.h>
#include <string>

#include "base/protocol/worker_link.h"
#include "base/socket.h"
#include "base/text.h"
#include "tests/support/process.h"

namespace hvd::worker {
namespace {

WorldDocument world_of_one(std::uint64_t generation) {
  WorldDocument document;
  document.job_id = "job";
  document.generation = generation;
  document.state = WorldState::effective;
  document.members.push_back({0, "a", 0, 100, "127.0.0.1", 0, 1, 0, 1});
  return document;
}

class ElasticMembership : public ::testing::Test {
 protected:
  ElasticMembership() {
    auto ends = socket_pair();
    EXPECT_TRUE(ends.ok());
    // Kept open for good: a process ends when its agent is gone.
    agent_ = ends->first.release();
    worker_link::Welcome welcome("job", Token::random());
    welcome.worker = "a#0";
    welcome.incarnation = 100;
    welcome.rendezvous_host = "127.0.0.1";
    welcome.rendezvous_port = 1;
    welcome.elastic = true;
    welcome.world_follows = true;
    EXPECT_TRUE(send_all(agent_, welcome.encode(), Clock::now() + test::kGenerous).ok());
    publish(world_of_one(1));
    auto channel = AgentChannel::open(cat(ends->second.release()), "");
    EXPECT_TRUE(channel.ok()) << channel.status().to_string();
    auto begun = Membership::begin(**channel);
    EXPECT_TRUE(begun.ok()) << begun.status().to_string();
    membership_ = *begun;
  }
  void publish(const WorldDocument& document) const {
    const auto frame = worker_link::World{document.generation, true, document.to_json()}.encode();
    EXPECT_TRUE(send_all(agent_, frame, Clock::now() + test::kGenerous).ok());
  }
  Result<Membership::Entry> enter() { return membership_->next(Clock::now()); }

  int agent_ = -1;
  Membership* membership_ = nullptr;
};

TEST_F(ElasticMembership, AWaitForANewerWorldEndsAsSoonAsItComes) {
  ASSERT_TRUE(enter().ok());
  auto waiting = std::async(std::launch::async, [this] {
    return membership_->wait_for_newer(Clock::now() + test::kGenerous);
  });
  publish(world_of_one(2));
  EXPECT_TRUE(waiting.get());
  EXPECT_TRUE(membership_->has_next());
}

TEST_F(ElasticMembership, ARoundIsLeftOnlyWhenOthersMayKnowWhereThisProcessWasInIt) {
  EXPECT_EQ(enter()->round, 1U);
  EXPECT_EQ(enter()->round, 1U) << "no rank knows of the first attempt";
  membership_->announced();
  EXPECT_EQ(enter()->round, 2U);
  publish(world_of_one(2));
  ASSERT_TRUE(membership_->wait_for_newer(Clock::now() + test::kGenerous));
  const auto entry = enter();
  EXPECT_EQ(entry->document.generation, 2U);
  EXPECT_EQ(entry->round, 1U);
}

TEST_F(ElasticMembership, AProcessThatLeavesWaitsForNoWorld) {
  const auto entry = enter();
  ASSERT_TRUE(entry.ok());
  auto waiting =
      std::async(std::launch::async, [this] { return membership_->next(kNever).status(); });
  membership_->abandon();
  EXPECT_EQ(waiting.get().code(), Code::failed_precondition);
  EXPECT_TRUE(entry->interrupt->raised()) << "what is being formed ends";
  membership_->resume();
  EXPECT_TRUE(enter().ok());
}

}  // namespace
}  // namespace hvd::worker
