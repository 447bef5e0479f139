// Joins, groups, process sets, and deterministic mode.
#include <gtest/gtest.h>

#include "tests/runtime/negotiation/coordinated_world.h"

namespace hvd::runtime {
namespace {

using std::chrono::milliseconds;
using test::in_group;
using test::in_set;
using test::names_of;
using test::of_kind;
using test::says;
using test::tensor;
using Names = std::vector<std::string>;
using World = test::CoordinatedWorld;

TEST(CoordinatorJoin, CountsAsReadyForEverythingAndTheLastOneIsNamed) {
  World world(3);
  ASSERT_TRUE(world.submit(0, of_kind(Kind::allgather, "a", {2, 3})).ok());
  ASSERT_TRUE(world.submit(2, of_kind(Kind::allgather, "a", {4, 3})).ok());
  ASSERT_TRUE(world.join(1).ok());
  auto response = world.only();
  EXPECT_EQ(response.joined, std::vector<int>{1});
  EXPECT_EQ(response.tensors.front()->first_extents, (std::vector<std::int64_t>{2, 0, 4}));
  ASSERT_TRUE(world.submit(2, of_kind(Kind::barrier, "b")).ok());
  ASSERT_TRUE(world.join(0).ok());
  response = world.only();
  EXPECT_EQ(response.kind, Kind::barrier);
  EXPECT_EQ(response.joined, (std::vector<int>{0, 1}));
  ASSERT_TRUE(world.join(2).ok());
  response = world.only();
  EXPECT_EQ(response.kind, Kind::join);
  EXPECT_EQ(response.last_joined, 2);
  world.submit_everywhere(tensor("c"));  // all are there again
  EXPECT_TRUE(world.only().joined.empty());
}

TEST(CoordinatorJoin, ATensorThatARankRequestedBeforeItJoinedIsItsOwn) {
  World world(2);
  ASSERT_TRUE(world.submit(1, tensor("a")).ok());
  ASSERT_TRUE(world.join(1).ok());
  ASSERT_TRUE(world.submit(0, tensor("a")).ok());
  EXPECT_TRUE(world.only().joined.empty());
}

TEST(CoordinatorJoin, ARootThatJoinedHasNothingToSend) {
  World world(3);
  ASSERT_TRUE(world.join(1).ok());
  auto request = of_kind(Kind::broadcast, "b");
  request.root = 1;
  ASSERT_TRUE(world.submit(0, request).ok());
  ASSERT_TRUE(world.submit(2, request).ok());
  says(world.only(), "the root, rank 1 on host1, has joined");
}

TEST(CoordinatorJoin, TwiceIsAgainstTheProtocol) {
  World world(2);
  ASSERT_TRUE(world.join(1).ok());
  EXPECT_EQ(world.join(1).code(), Code::already_exists);
}

TEST(CoordinatorJoin, FailsWhenARankLeavesInstead) {
  World world(2);
  ASSERT_TRUE(world.join(1).ok());
  ASSERT_TRUE(world.leave(0).ok());
  const auto response = world.only();
  EXPECT_EQ(response.kind, Kind::join);
  says(response, "rank 0 on host0 has already called shutdown()");
}

TEST(CoordinatorGroups, NoneRunsBeforeAllAreReadyAndThenAllDo) {
  World world(2);
  for (const auto* name : {"b", "a"}) {
    world.submit_everywhere(in_group(tensor(name), "g", 3));
    EXPECT_TRUE(world.poll().empty());
  }
  world.submit_everywhere(tensor("alone"));
  EXPECT_EQ(names_of(world.only()), Names{"alone"});
  world.submit_everywhere(in_group(tensor("c"), "g", 3));
  EXPECT_EQ(names_of(world.only()), (Names{"a", "b", "c"}));
}

TEST(CoordinatorGroups, IfOneTensorFailsAllDoAndTheGroupMayBeUsedAgain) {
  World world(2);
  world.submit_everywhere(in_group(tensor("a"), "g", 3));
  ASSERT_TRUE(world.submit(0, in_group(tensor("b"), "g", 3)).ok());
  ASSERT_TRUE(world.submit(1, in_group(tensor("b", 9), "g", 3)).ok());
  auto responses = world.poll();
  ASSERT_EQ(responses.size(), 2U);
  for (const auto& response : responses) says(response, "Mismatched allreduce tensor shapes");
  says(responses[0], "group \"g\" of 3");
  world.submit_everywhere(in_group(tensor("c"), "g", 3));
  says(world.only(), "Mismatched allreduce tensor shapes");
  for (const auto* name : {"a", "b", "c"}) world.submit_everywhere(in_group(tensor(name), "g", 3));
  EXPECT_EQ(names_of(world.only()), (Names{"a", "b", "c"}));
}

TEST(CoordinatorGroups, DisagreementAboutAGroupFailsBoth) {
  World world(2);
  // Rank 0: one group of a and b. Rank 1: a and c, and b alone.
  ASSERT_TRUE(world.submit(0, in_group(tensor("a"), "g", 2)).ok());
  ASSERT_TRUE(world.submit(0, in_group(tensor("b"), "g", 2)).ok());
  ASSERT_TRUE(world.submit(1, in_group(tensor("a"), "h", 2)).ok());
  ASSERT_TRUE(world.submit(1, in_group(tensor("c"), "h", 2)).ok());
  says(world.only(), "Mismatched groups");
  ASSERT_TRUE(world.submit(1, tensor("b")).ok());
  ASSERT_TRUE(world.submit(0, tensor("c")).ok());
  EXPECT_EQ(world.poll().size(), 2U);
  for (const auto* name : {"a", "b"}) world.submit_everywhere(in_group(tensor(name), "g", 2));
  EXPECT_EQ(names_of(world.only()), (Names{"a", "b"}));
}

TEST(CoordinatorGroups, OfOneNameAndDifferentSizesFailOnAllRanksWhenAllHaveAsked) {
  World world(3);
  const auto group = [](int size) {
    std::vector<runtime::Request> requests;
    for (int i = 1; i <= size; ++i) {
      requests.push_back(in_group(tensor(cat("g_", i, "of", size)), "g", size));
    }
    return requests;
  };
  for (const auto& request : group(2)) ASSERT_TRUE(world.submit(0, request).ok());
  for (const auto& request : group(3)) ASSERT_TRUE(world.submit(1, request).ok());
  world.now += 3 * runtime::Coordinator::kGroupTimeout;
  EXPECT_TRUE(world.poll().empty()) << "rank 2 may still come, and be late";
  for (const auto& request : group(2)) ASSERT_TRUE(world.submit(2, request).ok());
  EXPECT_LE(world.coordinator.next_at(0), world.now + runtime::Coordinator::kGroupTimeout);
  world.now += runtime::Coordinator::kGroupTimeout;
  const auto responses = world.poll();
  ASSERT_EQ(responses.size(), 5U);
  for (const auto& response : responses) {
    EXPECT_EQ(response.error.message(), responses.front().error.message());
    says(response, "Mismatched groups");
    says(response, "group \"g\" of 2");
    says(response, "group \"g\" of 3");
    says(response, "rank 0 on host0 and rank 1 on host1");
  }
  EXPECT_EQ(world.coordinator.next_at(0), kNever);
  for (const auto& request : group(3)) world.submit_everywhere(request);
  EXPECT_EQ(names_of(world.only()), (Names{"g_1of3", "g_2of3", "g_3of3"}));
}

TEST(CoordinatorGroups, OfOneNameAndDifferentMembersFailToo) {
  World world(2);
  // Rank 0: a and b. Rank 1: a and c; then the whole again, where rank 1 has one more.
  for (const auto* name : {"a", "b"}) {
    ASSERT_TRUE(world.submit(0, in_group(tensor(name), "g", 2)).ok());
  }
  for (const auto* name : {"a", "c"}) {
    ASSERT_TRUE(world.submit(1, in_group(tensor(name), "g", 2)).ok());
  }
  EXPECT_TRUE(world.poll().empty());
  world.now += runtime::Coordinator::kGroupTimeout;
  auto responses = world.poll();
  ASSERT_EQ(responses.size(), 3U);
  for (const auto& response : responses) says(response, "with the tensor \"b\"");

  for (const auto* name : {"a", "b"}) {
    ASSERT_TRUE(world.submit(0, in_group(tensor(name), "g", 2)).ok());
  }
  for (const auto* name : {"a", "b", "c"}) {
    ASSERT_TRUE(world.submit(1, in_group(tensor(name), "g", 3)).ok());
  }
  EXPECT_EQ(world.poll().size(), 2U);  // a and b, about which they differ
  world.now += runtime::Coordinator::kGroupTimeout;
  says(world.only(), "Mismatched groups");
  for (const auto* name : {"a", "b"}) world.submit_everywhere(in_group(tensor(name), "g", 2));
  EXPECT_EQ(names_of(world.only()), (Names{"a", "b"}));
}

TEST(CoordinatorGroups, FailWithTheRankThatLeft) {
  World world(2);
  world.submit_everywhere(in_group(tensor("a"), "g", 2));
  ASSERT_TRUE(world.submit(0, in_group(tensor("b"), "g", 2)).ok());
  ASSERT_TRUE(world.leave(1).ok());
  const auto responses = world.poll();
  ASSERT_EQ(responses.size(), 2U);
  for (const auto& response : responses) {
    says(response, "rank 1 on host1 has already called shutdown()");
  }
}

TEST(CoordinatorSets, AreMadeByAllRanksAndHaveNamesOfTheirOwn) {
  World world(4);
  world.submit_everywhere(test::add_set("s", {1, 3}));
  auto response = world.only();
  EXPECT_EQ(response.new_set, 1);
  ASSERT_TRUE(world.submit(0, tensor("t")).ok());
  ASSERT_TRUE(world.submit(1, in_set(tensor("t", 9), 1)).ok());
  ASSERT_TRUE(world.submit(3, in_set(tensor("t", 9), 1)).ok());
  response = world.only();
  EXPECT_EQ(response.process_set, 1);
  EXPECT_TRUE(response.error.ok());
}

TEST(CoordinatorSets, ASecondOneOfTheSameRanksIsAnErrorThatNamesTheFirst) {
  World world(3);
  world.submit_everywhere(test::add_set("s", {0, 1}));
  world.submit_everywhere(test::add_set("again", {0, 1}));  // before the first is answered
  const auto responses = world.poll();
  ASSERT_EQ(responses.size(), 2U);
  EXPECT_EQ(responses[0].new_set, 1);
  EXPECT_EQ(responses[1].error.code(), Code::already_exists);
  says(responses[1], "process set 1 already consists of ranks 0 to 1");
  world.submit_everywhere(test::add_set("all", {0, 1, 2}));
  says(world.only(), "process set 0 (the global one)");
}

TEST(CoordinatorSets, RemovalForgetsPendingTensorsAndTheNumber) {
  World world(3);
  world.submit_everywhere(test::add_set("s", {0, 1}));
  world.only();
  ASSERT_TRUE(world.submit(0, in_set(tensor("t"), 1)).ok());
  auto remove = of_kind(Kind::remove_process_set, "r", {0});
  remove.process_set = 1;
  world.submit_everywhere(remove);
  EXPECT_TRUE(world.only().error.ok());
  EXPECT_TRUE(world.coordinator.table().rows().empty());
  EXPECT_TRUE(world.submit(1, in_set(tensor("t"), 1)).ok());  // it was under way
  EXPECT_TRUE(world.poll().empty());
  world.submit_everywhere(remove);
  says(world.only(), "there is no process set 1 any more");
  world.submit_everywhere(test::add_set("s", {0, 1}));
  EXPECT_EQ(world.only().new_set, 2);
}

// The removal as the members of the set ask for it.
Request own_removal(int process_set, std::vector<int> ranks) {
  auto request = test::by_members(test::remove_set("r", process_set));
  request.ranks = std::move(ranks);
  return request;
}

TEST(CoordinatorSets, MembersAddAndRemoveTheirsWithoutTheOthers) {
  for (const bool deterministic : {false, true}) {
    World world(4, {1024, milliseconds(5), deterministic});
    const auto add = test::by_members(test::add_set("s", {1, 3}));
    ASSERT_TRUE(world.submit(0, tensor("of all")).ok());
    ASSERT_TRUE(world.submit(1, add).ok());
    EXPECT_TRUE(world.poll().empty());
    ASSERT_TRUE(world.submit(3, add).ok());
    EXPECT_EQ(world.only().new_set, 1);
    EXPECT_TRUE(world.sets.is_by_members(1));
    if (!deterministic) {  // else it would come after what rank 0 has asked for before
      world.submit_everywhere(test::remove_set("all", 1));
      says(world.only(), "process set 1 was added by its members alone, who remove it");
    }
    ASSERT_TRUE(world.submit(3, in_set(tensor("t"), 1)).ok());
    for (const int rank : {3, 1}) {
      EXPECT_TRUE(world.poll().empty());
      ASSERT_TRUE(world.submit(rank, own_removal(1, {1, 3})).ok());
    }
    EXPECT_TRUE(world.only().error.ok());
    EXPECT_FALSE(world.sets.contains(1) || world.sets.is_by_members(1));
    for (const int rank : {1, 2, 3}) ASSERT_TRUE(world.submit(rank, tensor("of all")).ok());
    EXPECT_EQ(names_of(world.only()), Names{"of all"});
  }
}

TEST(CoordinatorSets, OfAllRanksIsRemovedByAllRanks) {
  World world(2);
  world.submit_everywhere(test::add_set("s", {0}));
  world.only();
  ASSERT_TRUE(world.submit(0, own_removal(1, {0})).ok());
  says(world.only(), "process set 1 was added by all ranks, who remove it");
}

TEST(CoordinatorSets, OfTheSameRanksMembersMayHaveSeveralAndAllRanksOne) {
  World world(2);
  const auto own = test::by_members(test::add_set("own", {1}));
  ASSERT_TRUE(world.submit(1, own).ok());
  EXPECT_EQ(world.only().new_set, 1);
  world.submit_everywhere(test::add_set("s", {1}));
  EXPECT_EQ(world.only().new_set, 2);
  ASSERT_TRUE(world.submit(1, own).ok());
  EXPECT_EQ(world.only().new_set, 3);
  world.submit_everywhere(test::add_set("again", {1}));
  says(world.only(), "process set 2 already consists of ranks 1");
}

TEST(CoordinatorSets, MembersWhoDisagreeAreToldAndStrangersViolateTheProtocol) {
  World world(4);
  ASSERT_TRUE(world.submit(1, test::by_members(test::add_set("s", {1, 2}))).ok());
  ASSERT_TRUE(world.submit(2, test::by_members(test::add_set("s", {2, 3}))).ok());
  EXPECT_TRUE(world.poll().empty()) << "rank 3 may be on its way";
  ASSERT_TRUE(world.submit(3, test::by_members(test::add_set("s", {2, 3}))).ok());
  says(world.only(), "One rank specified ranks [1, 2], but another rank specified ranks [2, 3]");
  EXPECT_EQ(world.submit(0, test::by_members(test::add_set("s", {2, 3}))).code(),
            Code::permission_denied);
}

TEST(CoordinatorSets, MembersDoNotMindRanksThatHaveLeftOrJoined) {
  World world(4);
  const auto add = [](const char* name, std::vector<int> ranks) {
    return test::by_members(test::add_set(name, std::move(ranks)));
  };
  ASSERT_TRUE(world.join(3).ok());
  for (const int rank : {1, 2}) ASSERT_TRUE(world.submit(rank, add("s", {1, 2})).ok());
  const auto added = world.only();
  EXPECT_TRUE(added.error.ok() && added.joined.empty());
  ASSERT_TRUE(world.leave(0).ok());
  world.poll();
  for (const int rank : {1, 2}) ASSERT_TRUE(world.submit(rank, add("t", {1, 2})).ok());
  EXPECT_EQ(world.only().new_set, 2);
  ASSERT_TRUE(world.submit(1, add("u", {0, 1})).ok());
  says(world.only(), "rank 0 on host0 has already called shutdown()");
}

TEST(CoordinatorDeterministic, RunsTensorsInTheOrderOfRankZeroAndFusesGroupsOnly) {
  World world(2, {1024, milliseconds(5), true});
  for (const auto* name : {"a", "b", "c"}) ASSERT_TRUE(world.submit(0, tensor(name)).ok());
  for (const auto* name : {"x", "w"}) {
    ASSERT_TRUE(world.submit(0, in_group(tensor(name), "g", 2)).ok());
  }
  for (const auto* name : {"w", "x"}) {
    ASSERT_TRUE(world.submit(1, in_group(tensor(name), "g", 2)).ok());
  }
  for (const auto* name : {"c", "b"}) ASSERT_TRUE(world.submit(1, tensor(name)).ok());
  EXPECT_TRUE(world.poll(-10).empty());
  ASSERT_TRUE(world.submit(1, tensor("a")).ok());
  std::vector<Names> batches;
  for (const auto& response : world.poll(-10)) batches.push_back(names_of(response));
  EXPECT_EQ(batches, (std::vector<Names>{{"a"}, {"b"}, {"c"}, {"w", "x"}}));
}

TEST(CoordinatorDeterministic, GivesUpAnOrderThatCannotBeKept) {
  World world(2, {1024, milliseconds(5), true});
  const auto start = world.now;
  ASSERT_TRUE(world.submit(0, tensor("first")).ok());
  world.submit_everywhere(tensor("second"));
  EXPECT_TRUE(world.poll().empty());
  EXPECT_EQ(world.coordinator.next_at(0), start + Coordinator::kOrderTimeout);
  world.now = start + Coordinator::kOrderTimeout;
  EXPECT_EQ(names_of(world.only()), Names{"second"});
  ASSERT_TRUE(world.submit(1, tensor("first")).ok());
  EXPECT_EQ(names_of(world.only()), Names{"first"});
}

TEST(CoordinatorDeterministic, PendingTensorsOfARemovedSetDelayNothing) {
  World world(3, {1024, milliseconds(5), true});
  world.submit_everywhere(test::add_set("s", {0, 1}));
  world.only();
  ASSERT_TRUE(world.submit(0, in_set(tensor("t"), 1)).ok());  // and rank 1 never does
  auto remove = of_kind(Kind::remove_process_set, "r", {0});
  remove.process_set = 1;
  world.submit_everywhere(remove);
  world.poll();
  world.now += std::chrono::minutes(1);  // what was held up by then is let go
  world.poll();
  world.submit_everywhere(tensor("after"));
  EXPECT_EQ(names_of(world.only()), Names{"after"});
}

TEST(ProcessSets, OfALaterWorldKeepTheirNumbersAndOthersAreRefused) {
  const auto sets = ProcessSets::restored({{1, {{0}}}, {2, {{0, 1}, true}}}, 3, 3);
  ASSERT_TRUE(sets.ok()) << sets.status().to_string();
  EXPECT_EQ(sets->next(), 3);
  EXPECT_EQ(sets->members(2), test::ranks({0, 1}));
  EXPECT_TRUE(sets->is_by_members(2) && !sets->is_by_members(1));
  EXPECT_FALSE(ProcessSets::restored({{3, {{0}}}}, 3, 2).ok()) << "of a number to come";
  EXPECT_FALSE(ProcessSets::restored({{1, {{5}}}}, 3, 2).ok()) << "of no such rank";
  EXPECT_FALSE(ProcessSets::restored({{kGlobalSet, {{0}}}}, 3, 2).ok()) << "of the global set";
}

}  // namespace
}  // namespace hvd::runtime
