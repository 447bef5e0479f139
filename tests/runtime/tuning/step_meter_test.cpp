#include "runtime/tuning/step_meter.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "tests/runtime/negotiation/negotiation_tools.h"

namespace hvd::runtime {
namespace {

using std::chrono::milliseconds;

Response batch_of(const std::vector<std::string>& names, std::int64_t elements = 1'000,
                  int process_set = kGlobalSet) {
  Response response;
  response.process_set = process_set;
  for (const auto& name : names) {
    ResponseTensor tensor{test::of_kind(Kind::allreduce, name, {elements}), {}};
    tensor.request.process_set = process_set;
    response.tensors.push_back(std::make_shared<const ResponseTensor>(std::move(tensor)));
  }
  return response;
}

// A loop of steps that take 5 ms of time in flight each, in two batches.
class Loop {
 public:
  explicit Loop(StepMeter& meter) : meter_(meter) {}
  std::optional<Sample> step(milliseconds takes = milliseconds(5)) {
    auto sample = meter_.note(batch_of({"a", "b"}), now_);
    now_ += takes;
    const auto none = meter_.note(batch_of({"c"}), now_);
    EXPECT_FALSE(none.has_value());
    return sample;
  }
  // Runs until there is a sample; returns the number of steps.
  int steps_until(std::optional<Sample>& sample) {
    int steps = 0;
    for (; !sample && steps < 1'000; ++steps) sample = step();
    return steps;
  }

 private:
  StepMeter& meter_;
  milliseconds now_{0};
};

TEST(StepMeter, ASampleIsSoManyStepsFromAWholeOneOn) {
  StepMeter meter(10);
  Loop loop(meter);
  std::optional<Sample> sample;
  // The first step may have begun before; the second one settles; ten are measured.
  EXPECT_EQ(loop.steps_until(sample), 12);
  ASSERT_TRUE(sample);
  EXPECT_EQ(sample->steps, 10);
  EXPECT_EQ(sample->tensors, 30U);
  EXPECT_EQ(sample->bytes, 30U * 1'000 * size_of(DataType::float32));
  EXPECT_EQ(sample->largest_batch, 2U * 1'000 * size_of(DataType::float32));
  EXPECT_EQ(sample->time, milliseconds(50));
  EXPECT_TRUE(sample->has_allreduce);
  EXPECT_FALSE(sample->has_allgather);
  sample.reset();
  EXPECT_EQ(loop.steps_until(sample), 10) << "the next one follows at once";
}

TEST(StepMeter, OnlyTimeInWhichSomethingIsInFlightCounts) {
  StepMeter meter(4);
  // It is given the queue's time: time outside the queue is not in it at all.
  Loop loop(meter);
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(loop.step());
  std::optional<Sample> sample;
  loop.steps_until(sample);
  ASSERT_TRUE(sample);
  EXPECT_EQ(sample->time, milliseconds(20));
}

TEST(StepMeter, AfterAChangeOnlyWholeStepsCount) {
  StepMeter meter(10);
  Loop loop(meter);
  for (int i = 0; i < 7; ++i) EXPECT_FALSE(loop.step());
  meter.restart();
  std::optional<Sample> sample;
  EXPECT_EQ(loop.steps_until(sample), 12);
}

TEST(StepMeter, ShortStepsMakeALongerSample) {
  StepMeter meter(2);
  Duration now{0};
  int steps = 0;
  std::optional<Sample> sample;
  for (; !sample && steps < 1'000; ++steps) {
    sample = meter.note(batch_of({"a"}), now);
    now += milliseconds(1);
  }
  ASSERT_TRUE(sample);
  EXPECT_EQ(sample->steps, 20);
  EXPECT_EQ(sample->time, StepMeter::kShortest);
}

TEST(StepMeter, TensorsThatNeverComeAgainAreASampleEverySecond) {
  StepMeter meter(10);
  Duration now{0};
  std::vector<Sample> samples;
  for (int i = 0; i < 500; ++i) {
    if (const auto sample = meter.note(batch_of({cat("noname.", i)}), now)) {
      samples.push_back(*sample);
    }
    now += milliseconds(10);
  }
  ASSERT_GE(samples.size(), 3U);
  for (const auto& sample : samples) {
    EXPECT_EQ(sample.steps, 0);
    EXPECT_EQ(sample.tensors, 100U);
    EXPECT_EQ(sample.time, StepMeter::kLongest);
  }
}

TEST(StepMeter, ATensorOfAnotherProcessSetIsAnotherOne) {
  StepMeter meter(1);
  Duration now{0};
  const auto other = batch_of({"a"}, 1'000, 3);
  EXPECT_FALSE(meter.note(batch_of({"a"}), now));
  for (int i = 0; i < 30; ++i) EXPECT_FALSE(meter.note(other, now += milliseconds(10)));
}

TEST(StepMeter, ErrorsAreNotCounted) {
  StepMeter meter(1);
  Duration now{0};
  auto error = batch_of({"a"});
  error.error = Status(Code::invalid_argument, "they differ");
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(meter.note(error, now += milliseconds(50)));
}

TEST(StepMeter, OfAllgatherTheRowsOfAllRanksCount) {
  ResponseTensor tensor{test::of_kind(Kind::allgather, "rows", {0, 3}), {5, 7}};
  EXPECT_EQ(bytes_of(tensor), 12U * 3 * size_of(tensor.request.type));
}

}  // namespace
}  // namespace hvd::runtime
