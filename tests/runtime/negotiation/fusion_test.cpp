#include "runtime/negotiation/fusion.h"

#include <gtest/gtest.h>

namespace hvd::runtime {
namespace {

ReadyTensor ready_one(std::string name, std::int64_t floats, DataType type = DataType::float32) {
  ResponseTensor tensor;
  tensor.request.name = std::move(name);
  tensor.request.type = type;
  tensor.request.shape = {floats};
  ReadyTensor ready;
  ready.tensor = std::make_shared<const ResponseTensor>(std::move(tensor));
  return ready;
}

// To be changed: tensors that ranks agreed about are not.
ResponseTensor& own(ReadyTensor& ready) {
  auto copy = std::make_shared<ResponseTensor>(*ready.tensor);
  ready.tensor = copy;
  return *copy;
}

std::vector<std::string> names(const std::vector<ReadyTensor>& batch) {
  std::vector<std::string> all;
  for (const auto& ready : batch) all.push_back(ready.request().name);
  return all;
}
using Names = std::vector<std::string>;

TEST(Fusion, FillsABatchUpToTheThresholdAndNotAByteMore) {
  std::deque<ReadyTensor> ready{ready_one("a", 4), ready_one("b", 4), ready_one("c", 2),
                                ready_one("d", 1)};
  EXPECT_EQ(names(take_batch(ready, 40)), (Names{"a", "b", "c"}));
  EXPECT_EQ(names(take_batch(ready, 40)), (Names{"d"}));
  EXPECT_TRUE(ready.empty());
}

TEST(Fusion, LooksPastTensorsOfAnotherTypeAndKeepsTheirOrder) {
  std::deque<ReadyTensor> ready{ready_one("f1", 1), ready_one("i1", 1, DataType::int32),
                                ready_one("f2", 1), ready_one("i2", 1, DataType::int32)};
  EXPECT_EQ(names(take_batch(ready, 64)), (Names{"f1", "f2"}));
  EXPECT_EQ(names(take_batch(ready, 64)), (Names{"i1", "i2"}));
}

TEST(Fusion, LooksNoFurtherThanTheThreshold) {
  std::deque<ReadyTensor> ready{ready_one("f1", 1), ready_one("i1", 15, DataType::int32),
                                ready_one("f2", 1)};
  EXPECT_EQ(names(take_batch(ready, 64)), (Names{"f1"}));
  EXPECT_EQ(names(take_batch(ready, 64)), (Names{"i1"}));
  EXPECT_EQ(names(take_batch(ready, 64)), (Names{"f2"}));
}

TEST(Fusion, ATensorAboveTheThresholdGoesAloneAndSoDoAllWithAThresholdOfZero) {
  std::deque<ReadyTensor> ready{ready_one("big", 100), ready_one("a", 1), ready_one("b", 0)};
  EXPECT_EQ(names(take_batch(ready, 64)), (Names{"big"}));
  EXPECT_EQ(names(take_batch(ready, 0)), (Names{"a"}));
  EXPECT_EQ(names(take_batch(ready, 0)), (Names{"b"}));
}

TEST(Fusion, OperationAndFactorsKeepTensorsApart) {
  std::deque<ReadyTensor> ready{ready_one("a", 1), ready_one("b", 1), ready_one("c", 1),
                                ready_one("d", 1)};
  own(ready[1]).request.op = ReduceOp::max;
  own(ready[2]).request.prescale = 2;
  own(ready[3]).request.postscale = 2;
  for (const auto* name : {"a", "b", "c", "d"})
    EXPECT_EQ(names(take_batch(ready, 64)), Names{name});
}

TEST(Fusion, BroadcastsBarriersAndErrorsGoAlone) {
  std::deque<ReadyTensor> ready{ready_one("a", 1), ready_one("b", 1), ready_one("c", 1),
                                ready_one("d", 1)};
  own(ready[0]).request.kind = Kind::broadcast;
  ready[1].error = Status(Code::invalid_argument, "x");
  own(ready[2]).request.kind = Kind::barrier;
  for (const auto* name : {"a", "b", "c", "d"})
    EXPECT_EQ(names(take_batch(ready, 64)), Names{name});
}

TEST(Fusion, EveryThingThatBatchesCannotShareKeepsTensorsApart) {
  const auto apart = [](auto change) {
    std::deque<ReadyTensor> ready{ready_one("a", 1), ready_one("b", 1)};
    change(ready[1]);
    return names(take_batch(ready, 64)) == Names{"a"};
  };
  EXPECT_TRUE(apart([](ReadyTensor& r) { own(r).request.process_set = 1; }));
  EXPECT_TRUE(apart([](ReadyTensor& r) { own(r).request.on_host = false; }));
  EXPECT_TRUE(apart([](ReadyTensor& r) { own(r).request.compression = Compression::float16; }));
  EXPECT_TRUE(apart([](ReadyTensor& r) { own(r).request.op = ReduceOp::adasum; }));
  EXPECT_TRUE(apart([](ReadyTensor& r) { own(r).request.tree = 1; }));
  EXPECT_TRUE(apart([](ReadyTensor& r) { r.joined = {1}; }));
  EXPECT_TRUE(apart([](ReadyTensor& r) { own(r).request.kind = Kind::reducescatter; }));
  EXPECT_FALSE(apart([](ReadyTensor& r) { own(r).request.shape = {2, 2}; }));
}

TEST(Fusion, ReducescattersAndAllgathersShareBatchesWithTheirLike) {
  for (const auto kind : {Kind::reducescatter, Kind::allgather}) {
    std::deque<ReadyTensor> ready{ready_one("a", 1), ready_one("b", 1)};
    for (auto& item : ready) own(item).request.kind = kind;
    EXPECT_EQ(names(take_batch(ready, 64)), (Names{"a", "b"}));
  }
}

TEST(Fusion, AnAllgatherCountsWithWhatAllRanksBring) {
  std::deque<ReadyTensor> ready{ready_one("a", 0), ready_one("b", 0)};
  for (auto& item : ready) {
    own(item).request.kind = Kind::allgather;
    own(item).request.shape = {0, 2};
    own(item).first_extents = {3, 1};  // 4 rows of 8 bytes
  }
  auto again = ready;
  EXPECT_EQ(names(take_batch(ready, 64)), (Names{"a", "b"}));
  EXPECT_EQ(names(take_batch(again, 63)), Names{"a"});
}

TEST(Fusion, OfGroupsOnlyLeavesAllOthersAlone) {
  std::deque<ReadyTensor> ready{ready_one("a", 1),  ready_one("b", 1),  ready_one("g1", 1),
                                ready_one("g2", 1), ready_one("h1", 1), ready_one("c", 1)};
  for (const int i : {2, 3}) own(ready[static_cast<std::size_t>(i)]).request.group = "g";
  own(ready[4]).request.group = "h";
  std::vector<Names> batches;
  while (!ready.empty()) batches.push_back(names(take_batch(ready, 64, Fusion::groups_only)));
  EXPECT_EQ(batches, (std::vector<Names>{{"a"}, {"b"}, {"g1", "g2"}, {"h1"}, {"c"}}));
}

}  // namespace
}  // namespace hvd::runtime
