#include "runtime/fusion.h"

#include <gtest/gtest.h>

namespace hvd::runtime {
namespace {

Ready tensor(std::string name, std::int64_t floats, DataType type = DataType::float32) {
  Ready ready;
  ready.request.name = std::move(name);
  ready.request.type = type;
  ready.request.shape = {floats};
  return ready;
}

std::vector<std::string> names(const std::vector<Ready>& batch) {
  std::vector<std::string> all;
  for (const auto& ready : batch) all.push_back(ready.request.name);
  return all;
}
using Names = std::vector<std::string>;

TEST(Fusion, TakesWhatFitsUpToTheThresholdAndNotAByteMore) {
  std::deque<Ready> ready{tensor("a", 4), tensor("b", 4), tensor("c", 2), tensor("d", 1)};
  EXPECT_EQ(names(take_batch(ready, 40)), (Names{"a", "b", "c"}));
  EXPECT_EQ(names(take_batch(ready, 40)), (Names{"d"}));
  EXPECT_TRUE(ready.empty());
}

TEST(Fusion, LooksPastTensorsOfAnotherTypeAndKeepsTheirOrder) {
  std::deque<Ready> ready{tensor("f1", 1), tensor("i1", 1, DataType::int32), tensor("f2", 1),
                          tensor("i2", 1, DataType::int32)};
  EXPECT_EQ(names(take_batch(ready, 64)), (Names{"f1", "f2"}));
  EXPECT_EQ(names(take_batch(ready, 64)), (Names{"i1", "i2"}));
}

TEST(Fusion, LooksNoFurtherThanTheThreshold) {
  std::deque<Ready> ready{tensor("f1", 1), tensor("i1", 15, DataType::int32), tensor("f2", 1)};
  EXPECT_EQ(names(take_batch(ready, 64)), (Names{"f1"}));
  EXPECT_EQ(names(take_batch(ready, 64)), (Names{"i1"}));
  EXPECT_EQ(names(take_batch(ready, 64)), (Names{"f2"}));
}

TEST(Fusion, ATensorAboveTheThresholdGoesAloneAndSoDoAllWithAThresholdOfZero) {
  std::deque<Ready> ready{tensor("big", 100), tensor("a", 1), tensor("b", 0)};
  EXPECT_EQ(names(take_batch(ready, 64)), (Names{"big"}));
  EXPECT_EQ(names(take_batch(ready, 0)), (Names{"a"}));
  EXPECT_EQ(names(take_batch(ready, 0)), (Names{"b"}));
}

TEST(Fusion, OperationAndFactorsKeepTensorsApart) {
  std::deque<Ready> ready{tensor("a", 1), tensor("b", 1), tensor("c", 1), tensor("d", 1)};
  ready[1].request.op = ReduceOp::max;
  ready[2].request.prescale = 2;
  ready[3].request.postscale = 2;
  for (const auto* name : {"a", "b", "c", "d"})
    EXPECT_EQ(names(take_batch(ready, 64)), Names{name});
}

TEST(Fusion, BroadcastsBarriersAndErrorsGoAlone) {
  std::deque<Ready> ready{tensor("a", 1), tensor("b", 1), tensor("c", 1), tensor("d", 1)};
  ready[0].request.kind = Kind::broadcast;
  ready[1].error = Status(Code::invalid_argument, "x");
  ready[2].request.kind = Kind::barrier;
  for (const auto* name : {"a", "b", "c", "d"})
    EXPECT_EQ(names(take_batch(ready, 64)), Names{name});
}

}  // namespace
}  // namespace hvd::runtime
