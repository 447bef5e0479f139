#include <functional>
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

TEST(Coordinator, RunsATensorOnceAllRanksHaveAskedForIt) {
  World world(3);
  ASSERT_TRUE(world.submit(2, tensor("a")).ok());
  ASSERT_TRUE(world.submit(0, tensor("a")).ok());
  EXPECT_TRUE(world.poll().empty());
  ASSERT_TRUE(world.submit(1, tensor("a")).ok());
  const auto response = world.only();
  EXPECT_EQ(names_of(response), Names{"a"});
  EXPECT_TRUE(response.error.ok());
  EXPECT_TRUE(world.poll().empty());
}

TEST(Coordinator, RunsASendOnceItsTwoRanksHaveAskedForIt) {
  World world(4);
  ASSERT_TRUE(world.submit(3, test::send_recv("s", 1, 3)).ok());
  EXPECT_TRUE(world.poll().empty());
  ASSERT_TRUE(world.submit(1, test::send_recv("s", 1, 3)).ok());
  const auto response = world.only();
  EXPECT_TRUE(response.error.ok());
  EXPECT_EQ(response.request().ranks, (std::vector<int>{1, 3}));
  EXPECT_TRUE(response.joined.empty());
}

TEST(Coordinator, ASendBetweenOtherRanksIsAViolation) {
  World world(4);
  EXPECT_EQ(world.submit(2, test::send_recv("s", 1, 3)).code(), Code::permission_denied);
}

TEST(Coordinator, ASendAndAReceiveThatDifferAreAnError) {
  World world(3);
  auto other = test::send_recv("s", 0, 2);
  other.shape = {5};
  ASSERT_TRUE(world.submit(0, test::send_recv("s", 0, 2)).ok());
  ASSERT_TRUE(world.submit(2, other).ok());
  says(world.only(), "Mismatched send_recv tensor shapes");

  // As if a collective had the name of a send: all ranks get the error.
  ASSERT_TRUE(world.submit(0, test::send_recv("s", 0, 2)).ok());
  ASSERT_TRUE(world.submit(1, tensor("s")).ok());
  EXPECT_TRUE(world.poll().empty());
  ASSERT_TRUE(world.submit(2, tensor("s")).ok());
  says(world.only(), "Mismatched collective operations");
}

TEST(Coordinator, ASendOutlivesTheEndOfRanksThatHaveNoPartInIt) {
  World world(4);
  ASSERT_TRUE(world.submit(0, test::send_recv("early", 0, 1)).ok());
  ASSERT_TRUE(world.leave(3).ok());
  EXPECT_TRUE(world.poll().empty());
  ASSERT_TRUE(world.submit(1, test::send_recv("early", 0, 1)).ok());
  EXPECT_TRUE(world.only().error.ok());
  ASSERT_TRUE(world.submit(0, test::send_recv("late", 0, 1)).ok());
  EXPECT_TRUE(world.poll().empty());
  ASSERT_TRUE(world.leave(1).ok());
  says(world.only(), "send_recv \"late\" cannot complete: rank 1");
  ASSERT_TRUE(world.submit(2, test::send_recv("later", 1, 2)).ok());
  says(world.only(), "rank 1");
}

TEST(Coordinator, ARankThatHasJoinedSendsNothing) {
  World world(3);
  ASSERT_TRUE(world.submit(0, test::send_recv("s", 2, 0)).ok());
  ASSERT_TRUE(world.join(1).ok());
  EXPECT_TRUE(world.poll().empty());
  ASSERT_TRUE(world.join(2).ok());
  says(world.only(), "has joined, and neither sends nor receives any more");
}

TEST(Coordinator, ASumAlongATreeLacksWhatARankHadThatHasJoined) {
  World world(3);
  auto sum = tensor("s");
  sum.tree = 5;
  for (const int rank : {0, 1}) ASSERT_TRUE(world.submit(rank, sum).ok());
  ASSERT_TRUE(world.join(2).ok());
  says(world.only(), "has joined, and what it has of the sum is missing");
}

TEST(Coordinator, ASendHasNoPlaceInTheOrderOfADeterministicWorld) {
  World world(3, {1024, milliseconds(5), true});
  ASSERT_TRUE(world.submit(0, test::send_recv("s", 1, 0)).ok());
  world.submit_everywhere(tensor("a"));
  EXPECT_EQ(names_of(world.only()), Names{"a"});
  ASSERT_TRUE(world.submit(1, test::send_recv("s", 1, 0)).ok());
  EXPECT_TRUE(world.only().error.ok());
}

TEST(Coordinator, GathersReadyTensorsWhileTheExecutorHasEnoughToDo) {
  World world(3);
  for (const auto* name : {"a", "b", "c"}) world.submit_everywhere(tensor(name));
  EXPECT_TRUE(world.poll(Coordinator::kEnoughAhead).empty());
  const auto responses = world.poll(Coordinator::kEnoughAhead - 1);
  ASSERT_EQ(responses.size(), 1U);
  EXPECT_EQ(names_of(responses[0]), (Names{"a", "b", "c"}));
}

TEST(Coordinator, ReleasesTensorsAfterTheCycleTimeButNotWithoutEnd) {
  World world(3);
  const auto start = world.now;
  world.submit_everywhere(tensor("a"));
  EXPECT_EQ(world.coordinator.next_at(Coordinator::kEnoughAhead), start + milliseconds(5));
  world.now = start + milliseconds(4);
  EXPECT_TRUE(world.poll(Coordinator::kEnoughAhead).empty());
  world.now = start + milliseconds(5);
  EXPECT_TRUE(world.poll(Coordinator::kMaxAhead).empty());
  EXPECT_EQ(world.coordinator.next_at(Coordinator::kMaxAhead), kNever);
  EXPECT_EQ(world.poll(Coordinator::kEnoughAhead).size(), 1U);
  EXPECT_EQ(world.coordinator.next_at(0), kNever);
}

TEST(Coordinator, TunedParametersHoldFromTheNextResponseOn) {
  World world(3);
  const auto run = [&world](Kind kind) {
    world.submit_everywhere(test::of_kind(kind, "x", {2}));
    return world.only().hierarchical;
  };
  EXPECT_FALSE(run(Kind::allreduce));
  Parameters parameters;
  parameters.hierarchical_allreduce = true;
  world.coordinator.tune(parameters);
  EXPECT_TRUE(run(Kind::allreduce));
  EXPECT_FALSE(run(Kind::allgather));
  parameters.hierarchical_allgather = true;
  parameters.fusion_threshold = 0;
  world.coordinator.tune(parameters);
  EXPECT_TRUE(run(Kind::allgather));
  EXPECT_FALSE(run(Kind::broadcast));
  for (const auto* name : {"a", "b"}) world.submit_everywhere(tensor(name));
  EXPECT_EQ(world.poll().size(), 2U) << "nothing is fused any more";
}

struct Disagreement {
  const char* what;
  Request first;
  std::function<void(Request&)> change;
  std::vector<std::string> said;  // must stand in the error
};

class DisagreementTest : public ::testing::TestWithParam<Disagreement> {};

TEST_P(DisagreementTest, IsAnErrorThatNamesBothSidesAndTheNextTensorIsFine) {
  World world(3);
  const Request right = GetParam().first;
  Request odd = right;
  GetParam().change(odd);
  ASSERT_TRUE(world.submit(0, right).ok());
  ASSERT_TRUE(world.submit(1, right).ok());
  ASSERT_TRUE(world.submit(2, odd).ok());
  const auto response = world.only();
  EXPECT_FALSE(response.error.ok());
  for (const auto& text : GetParam().said) says(response, text);
  says(response, "\"t\"");
  says(response, "rank 0 on host0");
  says(response, "rank 2 on host2");
  world.submit_everywhere(tensor("t"));
  EXPECT_TRUE(world.only().error.ok());
}

Request removal(int process_set) {
  auto request = of_kind(Kind::remove_process_set, "t", {0});
  request.process_set = process_set;
  return request;
}

INSTANTIATE_TEST_SUITE_P(
    All, DisagreementTest,
    ::testing::Values(
        Disagreement{"Type",
                     tensor("t"),
                     [](Request& r) { r.type = DataType::float64; },
                     {"Mismatched data types: One rank had type float32, but another rank had type "
                      "float64."}},
        Disagreement{"Shape",
                     tensor("t"),
                     [](Request& r) {
                       r.shape = {2, 2};
                     },
                     {"Mismatched allreduce tensor shapes", "[4]", "[2, 2]"}},
        Disagreement{"Op",
                     tensor("t"),
                     [](Request& r) { r.op = ReduceOp::max; },
                     {"Mismatched reduce operations", "sum", "max"}},
        Disagreement{"Kind",
                     tensor("t"),
                     [](Request& r) { r.kind = Kind::broadcast; },
                     {"Mismatched collective operations", "an allreduce", "a broadcast"}},
        Disagreement{"Root",
                     of_kind(Kind::broadcast, "t"),
                     [](Request& r) { r.root = 2; },
                     {"Mismatched broadcast root ranks", "root rank 0", "root rank 2"}},
        Disagreement{"Prescale",
                     tensor("t"),
                     [](Request& r) { r.prescale = 0.5; },
                     {"Mismatched prescale factors", "0.5"}},
        Disagreement{"Postscale",
                     tensor("t"),
                     [](Request& r) { r.postscale = 3; },
                     {"Mismatched postscale factors", "3"}},
        Disagreement{"Device",
                     tensor("t"),
                     [](Request& r) { r.on_host = false; },
                     {"Mismatched allreduce CPU/GPU device selection: One rank specified device "
                      "CPU, but another rank specified device GPU."}},
        Disagreement{"Compression",
                     tensor("t"),
                     [](Request& r) { r.compression = Compression::bfloat16; },
                     {"Mismatched compressions", "none", "bfloat16"}},
        Disagreement{"Group",
                     tensor("t"),
                     [](Request& r) { r = in_group(r, "g", 1); },
                     {"Mismatched groups", "no group", "group \"g\" of 1"}},
        Disagreement{"AllgatherDimensions",
                     of_kind(Kind::allgather, "t", {3, 2}),
                     [](Request& r) {
                       r.shape = {5, 7};
                     },
                     {"Mismatched allgather tensor shapes: One rank sent a tensor of shape [3, 2], "
                      "but another rank sent a tensor of shape [5, 7]."}},
        Disagreement{"AlltoallRank",
                     of_kind(Kind::alltoall, "t", {3}),
                     [](Request& r) {
                       r.shape = {3, 1};
                     },
                     {"Mismatched alltoall tensor shapes", "[3]", "[3, 1]"}},
        Disagreement{"ProcessSetRanks",
                     test::add_set("t", {0, 1}),
                     [](Request& r) {
                       r.ranks = {0, 2};
                     },
                     {"Mismatched process sets", "[0, 1]", "[0, 2]"}},
        Disagreement{"RemovedProcessSet",
                     removal(1),
                     [](Request& r) { r.process_set = 2; },
                     {"Mismatched process sets: One rank specified process set 1, but another rank "
                      "specified process set 2."}}),
    [](const auto& test_info) { return std::string(test_info.param.what); });

TEST(Coordinator, AMismatchWithACachedTensorNamesBothSides) {
  World world(3);
  std::vector<EvictedTensor> evicted;
  world.cache.agreed(std::make_shared<const ResponseTensor>(ResponseTensor{tensor("t"), {}}),
                     evicted);
  ASSERT_TRUE(world.submit(1, tensor("t", 9)).ok());
  ASSERT_TRUE(world.submit_known({0}, 0).ok());
  ASSERT_TRUE(world.submit_known({2}, 0).ok());
  const auto response = world.only();
  says(response,
       "One rank sent a tensor of shape [4], but another rank sent a tensor of shape [9]");
  says(response, "rank 0 on host0 and rank 1 on host1");
}

TEST(Coordinator, AllgatherAndAlltoallKnowTheFirstExtentOfEachRank) {
  for (const auto kind : {Kind::allgather, Kind::alltoall}) {
    World world(3);
    for (int rank = 0; rank < 3; ++rank) {
      ASSERT_TRUE(world.submit(rank, of_kind(kind, "t", {rank * 2, 7})).ok());
    }
    const auto response = world.only();
    ASSERT_TRUE(response.error.ok()) << response.error.to_string();
    EXPECT_EQ(response.tensors.front()->first_extents, (std::vector<std::int64_t>{0, 2, 4}));
    EXPECT_EQ(response.request().shape, (std::vector<std::int64_t>{0, 7}));
  }
}

TEST(Coordinator, ExtentsFromTheCacheAndNewOnesMakeOneResponse) {
  World world(3);
  std::vector<EvictedTensor> evicted;
  ResponseTensor known{of_kind(Kind::allgather, "t", {0, 2}), {5, 6, 7}};
  world.cache.agreed(std::make_shared<const ResponseTensor>(known), evicted);
  ASSERT_TRUE(world.submit_known({0, 2}, 0).ok());
  ASSERT_TRUE(world.submit(1, of_kind(Kind::allgather, "t", {9, 2})).ok());
  const auto response = world.only();
  ASSERT_TRUE(response.error.ok()) << response.error.to_string();
  EXPECT_EQ(response.tensors.front()->first_extents, (std::vector<std::int64_t>{5, 9, 7}));
}

TEST(MessageTable, AnIdThatDiesTakesNothingFromTheRowOfANewerOne) {
  const auto agreed = [](std::int64_t extent) {
    return std::make_shared<const ResponseTensor>(ResponseTensor{tensor("t", extent), {}});
  };
  ResponseCache cache{4};
  std::vector<EvictedTensor> evicted;
  cache.agreed(agreed(4), evicted);
  cache.agreed(agreed(9), evicted);  // under the next id, since it has another shape now
  ASSERT_EQ(evicted.size(), 1U);

  const ProcessSets sets(2);
  MessageTable table(cache, sets, test::ranks({0, 1}));
  table.only_rows();
  MessageTable::Touched touched;
  const CacheId newer = evicted.front().id + 1;
  ASSERT_TRUE(
      table.add(CachedRequests{test::ranks({0}), IntervalSet::of(newer)}, {}, touched).ok());
  table.evicted(evicted);
  ASSERT_EQ(table.rows().size(), 1U);
  const auto& row = table.rows().begin()->second;
  EXPECT_EQ(row.id, newer);
  EXPECT_EQ(row.by_id, test::ranks({0}));
}

TEST(CoordinatorLeave, TensorsThatNeedARankThatLeftFailAtOnce) {
  World world(3);
  ASSERT_TRUE(world.submit(0, tensor("a")).ok());
  ASSERT_TRUE(world.leave(1).ok());
  ASSERT_TRUE(world.submit(2, tensor("b")).ok());
  const auto responses = world.poll();
  ASSERT_EQ(responses.size(), 2U);
  for (const auto& response : responses) {
    EXPECT_EQ(response.error.code(), Code::failed_precondition);
    says(response, "rank 1 on host1 has already called shutdown()");
  }
  EXPECT_TRUE(world.coordinator.table().rows().empty());
  EXPECT_FALSE(world.coordinator.all_left());
  ASSERT_TRUE(world.leave(0).ok());
  ASSERT_TRUE(world.leave(2).ok());
  EXPECT_TRUE(world.coordinator.all_left());
}

TEST(CoordinatorLeave, AJoinFailsAtOnceAndSaysWhichCallItWas) {
  World world(2);
  ASSERT_TRUE(world.leave(1).ok());
  ASSERT_TRUE(world.join(0).ok());
  const auto response = world.only();
  EXPECT_EQ(response.error.code(), Code::failed_precondition);
  says(response, "join \"join\" cannot complete: rank 1 on host1 has already called shutdown()");
}

TEST(CoordinatorLeave, ProcessSetsWithoutTheRankThatLeftGoOn) {
  World world(3);
  world.sets.add(test::ranks({0, 2}));
  ASSERT_TRUE(world.leave(1).ok());
  ASSERT_TRUE(world.submit(0, in_set(tensor("a"), 1)).ok());
  ASSERT_TRUE(world.submit(2, in_set(tensor("a"), 1)).ok());
  EXPECT_TRUE(world.only().error.ok());
}

TEST(CoordinatorClose, OnlyWhatAClosingRankHasNotRequestedFails) {
  World world(3);
  ASSERT_TRUE(world.submit(0, tensor("of all")).ok());
  ASSERT_TRUE(world.submit(1, tensor("of all")).ok());
  ASSERT_TRUE(world.submit(1, tensor("only 1's")).ok());
  ASSERT_TRUE(world.submit(2, tensor("not 1's")).ok());
  ASSERT_TRUE(world.close(1).ok());
  says(world.only(), "\"not 1's\" cannot complete: rank 1 on host1 has already called shutdown()");
  ASSERT_TRUE(world.submit(2, tensor("of all")).ok());
  EXPECT_TRUE(world.only().error.ok());
  ASSERT_TRUE(world.submit(2, tensor("later")).ok());
  says(world.only(), "\"later\" cannot complete: rank 1");
  ASSERT_TRUE(world.close(0).ok());
  says(world.only(), "\"only 1's\" cannot complete: rank 0");
  EXPECT_EQ(world.submit(1, tensor("too late")).code(), Code::failed_precondition);
  EXPECT_FALSE(world.coordinator.all_left());
}

TEST(CoordinatorClose, AGroupFailsAsAWholeAlsoWhatIsDecidedLater) {
  World world(2);
  const auto grouped = [](const char* name) { return test::in_group(tensor(name), "g", 2); };
  for (const auto* name : {"a", "b"}) ASSERT_TRUE(world.submit(0, grouped(name)).ok());
  ASSERT_TRUE(world.close(0).ok());
  ASSERT_TRUE(world.submit(1, grouped("c")).ok());
  says(world.only(), "\"c\" cannot complete: rank 0");
  ASSERT_TRUE(world.submit(1, grouped("a")).ok());
  says(world.only(), "group \"g\" of 2: allreduce \"c\" cannot complete");
  ASSERT_TRUE(world.close(1).ok());
  says(world.only(), "\"b\" cannot complete: rank 1");
}

TEST(CoordinatorClose, RanksThatHaveJoinedCountAsReadyUntilTheirJoinFails) {
  World world(3);
  ASSERT_TRUE(world.submit(2, tensor("of 1 and 2")).ok());
  ASSERT_TRUE(world.join(0).ok());
  ASSERT_TRUE(world.close(0).ok());
  EXPECT_TRUE(world.poll().empty());
  ASSERT_TRUE(world.submit(1, tensor("of 1 and 2")).ok());
  EXPECT_EQ(world.only().joined, std::vector<int>{0});
  ASSERT_TRUE(world.submit(2, tensor("only 2's")).ok());
  ASSERT_TRUE(world.close(1).ok());
  const auto responses = world.poll();
  ASSERT_EQ(responses.size(), 2U);
  says(responses[0], "join \"join\" cannot complete: rank 1");
  says(responses[1], "\"only 2's\" cannot complete: rank 0");
  ASSERT_TRUE(world.join(2).ok());
  says(world.only(), "join \"join\" cannot complete: rank 0");
}

TEST(CoordinatorClose, AJoinThatAllRanksHaveCalledCompletes) {
  World world(2);
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(world.join(rank).ok());
    ASSERT_TRUE(world.close(rank).ok());
  }
  EXPECT_TRUE(world.only().error.ok());
}

TEST(Coordinator, RefusesARankThatDoesNotKeepToTheProtocol) {
  World world(3);
  world.sets.add(test::ranks({0, 2}));
  ASSERT_TRUE(world.submit(1, tensor("a")).ok());
  EXPECT_EQ(world.submit(1, tensor("a")).code(), Code::already_exists);
  EXPECT_EQ(world.submit(1, tensor("")).code(), Code::invalid_argument);
  EXPECT_EQ(world.submit(1, tensor("b", -1)).code(), Code::invalid_argument);
  EXPECT_EQ(world.submit(1, in_set(tensor("b"), 1)).code(), Code::permission_denied);
  EXPECT_EQ(world.submit(1, in_set(tensor("b"), 2)).code(), Code::not_found);
  EXPECT_EQ(world.submit_known({1}, 7).code(), Code::data_loss);
  EXPECT_EQ(world.submit_known({1}, world.cache.next_id()).code(), Code::data_loss);
  ASSERT_TRUE(world.join(0).ok());
  EXPECT_EQ(world.submit(0, tensor("c")).code(), Code::failed_precondition);
  ASSERT_TRUE(world.leave(2).ok());
  EXPECT_EQ(world.submit(2, tensor("a")).code(), Code::failed_precondition);
}

}  // namespace
}  // namespace hvd::runtime
