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
    const auto frame =
        worker_link::World{document.generation, true, document.encode(), "key"}.encode();
    EXPECT_TRUE(send_all(agent_, frame, Clock::now() + test::kGenerous).ok());
  }
  void propose(const WorldDocument& document) const {
    const auto frame =
        worker_link::World{document.generation, false, document.encode(), "key"}.encode();
    EXPECT_TRUE(send_all(agent_, frame, Clock::now() + test::kGenerous).ok());
  }
  // Returns when the process has heard it.
  void say_driver_gone(bool gone) const {
    const auto frame = worker_link::DriverGone{gone}.encode();
    EXPECT_TRUE(send_all(agent_, frame, Clock::now() + test::kGenerous).ok());
    EXPECT_TRUE(test::eventually([&] { return membership_->agent().driver_is_gone() == gone; }));
  }
  std::string next_mark() {
    const auto frame = receive_frame(agent_, decoder_, Clock::now() + test::kGenerous);
    EXPECT_TRUE(frame.ok()) << frame.status().to_string();
    if (!frame.ok() || frame->kind != static_cast<std::uint16_t>(worker_link::Kind::mark))
      return "";
    return worker_link::Mark::decode(frame->payload)->commit;
  }
  Result<Membership::Entry> enter() { return membership_->next(Clock::now()); }

  int agent_ = -1;
  FrameDecoder decoder_;
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

// Rank 0 has heard of the world earlier, and its commit names it.
TEST_F(ElasticMembership, AWorldThatACommitTookIntoForceIsEnteredOnceItsKeyHasCome) {
  ASSERT_TRUE(enter().ok());
  ASSERT_TRUE(membership_->committed(world_of_one(2).encode()).ok());
  EXPECT_FALSE(membership_->has_next());
  EXPECT_EQ(membership_->next(Clock::now(), Clock::now()).status().code(), Code::deadline_exceeded)
      << "the world before is not formed again";
  auto next = std::async(std::launch::async, [this] { return enter(); });
  EXPECT_EQ(next.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
  publish(world_of_one(2));
  ASSERT_EQ(next.wait_for(test::kGenerous), std::future_status::ready);
  const auto entry = next.get();
  EXPECT_EQ(entry->document.generation, 2U);
  EXPECT_EQ(entry->key, "key");
}

// Late, the process would end, and the test with it.
TEST_F(ElasticMembership, TheWaitForAKeyDoesNotCountAsItsOwnTime) {
  ASSERT_TRUE(enter().ok());
  publish(world_of_one(2));  // an earlier loss, long ago
  ASSERT_TRUE(membership_->wait_for_newer(Clock::now() + test::kGenerous));
  ASSERT_TRUE(enter().ok());
  constexpr std::chrono::milliseconds kLimit(5'000);
  membership_->set_running(true);
  membership_->end_if_late(kLimit);
  auto& agent = membership_->agent();
  EXPECT_FALSE(agent.wait_for_stop(Clock::now() + kLimit + std::chrono::milliseconds(500)));
  ASSERT_TRUE(membership_->committed(world_of_one(3).encode()).ok());
  EXPECT_FALSE(agent.wait_for_stop(Clock::now() + std::chrono::milliseconds(300)));
  publish(world_of_one(3));
  ASSERT_TRUE(membership_->wait_for_newer(Clock::now() + test::kGenerous));
  EXPECT_FALSE(agent.wait_for_stop(Clock::now() + std::chrono::milliseconds(300)))
      << "its time begins when it can enter the world";
  EXPECT_EQ(enter()->document.generation, 3U);
  membership_->set_running(false);
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

TEST_F(ElasticMembership, AWorldThatHasFailedIsFormedAgainOnlyWithADriver) {
  ASSERT_TRUE(enter().ok());
  say_driver_gone(true);
  auto again = std::async(std::launch::async, [this] { return enter(); });
  EXPECT_EQ(again.wait_for(std::chrono::milliseconds(300)), std::future_status::timeout);
  EXPECT_EQ(membership_->next(Clock::now(), Clock::now()).status().code(), Code::deadline_exceeded);
  say_driver_gone(false);
  ASSERT_EQ(again.wait_for(test::kGenerous), std::future_status::ready);
  EXPECT_TRUE(again.get().ok());
}

TEST_F(ElasticMembership, TheNextDriverMayBeAtAnotherAddress) {
  const auto server = membership_->agent().rendezvous_options().server;
  EXPECT_EQ(server(), (SocketAddress{"127.0.0.1", 1}));
  say_driver_gone(true);
  const auto frame = worker_link::DriverGone{false, "::1", 2}.encode();
  EXPECT_TRUE(send_all(agent_, frame, Clock::now() + test::kGenerous).ok());
  EXPECT_TRUE(test::eventually([&] { return !membership_->agent().driver_is_gone(); }));
  EXPECT_EQ(server(), (SocketAddress{"::1", 2}));
  say_driver_gone(true);
  say_driver_gone(false);
  EXPECT_EQ(server(), (SocketAddress{"::1", 2})) << "it is where it was";
}

TEST_F(ElasticMembership, ANewerWorldNeedsNoWaitForTheDriver) {
  ASSERT_TRUE(enter().ok());
  say_driver_gone(true);
  auto next = std::async(std::launch::async, [this] { return enter(); });
  publish(world_of_one(2));
  ASSERT_EQ(next.wait_for(test::kGenerous), std::future_status::ready);
  EXPECT_EQ(next.get()->document.generation, 2U);
}

TEST_F(ElasticMembership, AnAttemptWhoseMembersHaveNotMetEndsWithTheDriverAndAWholeWorldDoesNot) {
  for (const bool has_met : {false, true}) {
    const auto entry = enter();
    ASSERT_TRUE(entry.ok());
    if (has_met) membership_->met();
    say_driver_gone(true);
    say_driver_gone(false);
    // By then the process has acted on both words.
    ASSERT_TRUE(enter().ok());
    EXPECT_EQ(entry->interrupt->raised(), !has_met);
    EXPECT_EQ(entry->client->is_cancelled(), !has_met);
    EXPECT_EQ(entry->interrupt->why().status.code(), has_met ? Code::ok : Code::unavailable);
    membership_->met();
  }
}

TEST_F(ElasticMembership, AProposalEndsWithTheDriverThatMadeIt) {
  ASSERT_TRUE(enter().ok());
  membership_->met();
  auto proposed = world_of_one(2);
  proposed.members.front().incarnation = 101;
  propose(proposed);
  ASSERT_TRUE(test::eventually([this] { return membership_->proposed_generation() == 2; }));
  say_driver_gone(true);
  EXPECT_TRUE(test::eventually([this] { return membership_->proposal().empty(); }));
  propose(proposed);  // of the successor
  EXPECT_TRUE(test::eventually([this] { return membership_->proposed_generation() == 2; }));
}

// Late, the process would end, and the test with it.
TEST_F(ElasticMembership, IsNotLateWhileThereIsNobodyToReplaceIt) {
  ASSERT_TRUE(enter().ok());
  membership_->set_running(true);
  say_driver_gone(true);
  membership_->end_if_late(std::chrono::milliseconds(1));
  publish(world_of_one(2));
  ASSERT_TRUE(membership_->wait_for_newer(Clock::now() + test::kGenerous));
  EXPECT_FALSE(membership_->agent().wait_for_stop(Clock::now() + std::chrono::milliseconds(300)));
  membership_->set_running(false);
}

TEST_F(ElasticMembership, TheAgentHasTheNewestMarkAsSoonAsTheDriverIsGone) {
  auto& agent = membership_->agent();
  ASSERT_TRUE(agent.keep_mark({1, 7}).ok());
  ASSERT_TRUE(agent.keep_mark({1, 8}).ok());
  say_driver_gone(true);
  EXPECT_EQ(next_mark(), "1.8");
  ASSERT_TRUE(agent.keep_mark({1, 9}).ok());
  EXPECT_EQ(next_mark(), "1.9");
  EXPECT_FALSE(agent.wait_for_driver(Clock::now()));
  auto waiting = std::async(std::launch::async, [&agent] {
    return agent.wait_for_driver(Clock::now() + test::kGenerous);
  });
  say_driver_gone(false);
  EXPECT_TRUE(waiting.get());
  // Of what is said meanwhile nothing is sent.
  ASSERT_TRUE(agent.keep_mark({1, 10}).ok());
  say_driver_gone(true);
  EXPECT_EQ(next_mark(), "1.10");
}

}  // namespace
}  // namespace hvd::worker
