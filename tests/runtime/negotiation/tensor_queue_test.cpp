// The life of entries in the queue, over several steps.
#include "runtime/negotiation/tensor_queue.h"

#include <algorithm>
#include <gtest/gtest.h>

#include "base/text.h"

namespace hvd::runtime {
namespace {

Entry entry_of(const std::string& name, std::int64_t elements = 8) {
  Entry entry;
  entry.request.name = name;
  entry.request.type = DataType::float32;
  entry.request.shape = {elements};
  return entry;
}

std::vector<std::string> names_up_to(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back(cat("tensor.", i));
  return names;
}

// A queue whose requests are answered in the order in which they come.
class AgreeingQueue {
 public:
  Failure push(Entry entry) {
    bool first = false;
    return queue_.push({&entry, 1}, first);
  }
  void push_all(const std::vector<std::string>& names) {
    for (const auto& name : names) {
      const Failure refused = push(entry_of(name));
      ASSERT_TRUE(refused.ok()) << refused.status.to_string();
    }
  }
  // The requests, "by its id" or "in full"; all of them are agreed on, in this order.
  std::vector<std::string> agree() {
    std::vector<std::string> said;
    drained_.clear();
    for (auto& request : queue_.drain()) {
      if (request.cached) {
        said.push_back(cat(request.cached->request.name, " by its id"));
        drained_.push_back(request.cached);
      } else {
        said.push_back(cat(request.full->name, " in full"));
        auto tensor = std::make_shared<ResponseTensor>(ResponseTensor{std::move(*request.full)});
        tensor->cache_id = next_id_++;
        drained_.push_back(std::move(tensor));
      }
    }
    return said;
  }
  // Runs the agreed tensors, in this order; returns the names of the entries.
  std::vector<std::string> run() { return run(drained_); }
  std::vector<std::string> run(const std::vector<SharedTensor>& tensors) {
    TensorQueue::Slots slots;
    queue_.take(tensors, 1, 2, slots);
    std::vector<std::string> names;
    for (const auto* const slot : slots) names.push_back(slot->entry.request.name);
    queue_.finish(slots);
    return names;
  }
  void step(const std::vector<std::string>& names) {
    push_all(names);
    agree();
    ASSERT_EQ(run(), names);
  }
  const std::vector<SharedTensor>& wanted() const { return drained_; }
  TensorQueue& queue() { return queue_; }
  WorkMeter& meter() { return meter_; }

 private:
  WorkMeter meter_;
  TensorQueue queue_{0, ProcessSets(1), meter_};
  std::vector<SharedTensor> drained_;
  CacheId next_id_ = 0;
};

std::vector<std::string> with(std::vector<std::string> names, const std::string& what) {
  for (auto& name : names) name += what;
  return names;
}

TEST(TensorQueue, KnowsAgreedTensorsInWhateverOrderTheyReturn) {
  AgreeingQueue queue;
  auto names = names_up_to(20);
  queue.push_all(names);
  EXPECT_EQ(queue.agree(), with(names, " in full"));
  EXPECT_EQ(queue.run(), names);
  const auto expect_step = [&] {
    queue.push_all(names);
    EXPECT_EQ(queue.agree(), with(names, " by its id"));
    EXPECT_EQ(queue.run(), names);
  };
  expect_step();
  std::reverse(names.begin(), names.end());
  expect_step();
  expect_step();
  std::rotate(names.begin(), names.begin() + 7, names.end());
  expect_step();
  names.erase(names.begin() + 3, names.begin() + 9);
  expect_step();
}

TEST(TensorQueue, ATensorThatRunsOutOfOrderIsFound) {
  AgreeingQueue queue;
  const auto names = names_up_to(12);
  queue.step(names);
  for (int round = 0; round < 3; ++round) {
    queue.push_all(names);
    queue.agree();
    auto tensors = queue.wanted();
    std::swap(tensors[2], tensors[9]);
    std::reverse(tensors.begin() + 4, tensors.end());
    std::vector<std::string> order;
    for (const auto& tensor : tensors) order.push_back(tensor->request.name);
    const std::vector<SharedTensor> first(tensors.begin(), tensors.begin() + 5);
    const std::vector<SharedTensor> rest(tensors.begin() + 5, tensors.end());
    auto ran = queue.run(first);
    for (auto& name : queue.run(rest)) ran.push_back(std::move(name));
    EXPECT_EQ(ran, order);
    EXPECT_EQ(queue.run(rest), std::vector<std::string>{}) << "they have ended";
  }
}

TEST(TensorQueue, AStepBeginsWhenANameIsUsedAgain) {
  AgreeingQueue queue;
  const auto steps = [&] { return queue.meter().read(0).steps; };
  queue.step({"a", "b", "c"});
  EXPECT_EQ(steps(), 0U);
  queue.step({"b", "a", "c"});
  EXPECT_EQ(steps(), 1U);
  queue.step({"new", "c"});
  EXPECT_EQ(steps(), 2U);
  queue.step({"a"});
  EXPECT_EQ(steps(), 2U) << "a was in none of this step";
}

TEST(TensorQueue, TransfersOfAStateByHvdItselfAreNoSteps) {
  AgreeingQueue queue;
  for (int chunk = 0; chunk < 5; ++chunk) queue.step({"hvd.elastic.chunk"});
  EXPECT_EQ(queue.meter().read(0).steps, 0U);
}

TEST(TensorQueue, CountsOperationsAndBytesOfEachCollective) {
  AgreeingQueue queue;
  const auto work_of = [&](Kind kind) {
    return queue.meter().read(0).works[static_cast<std::size_t>(kind)];
  };
  queue.step({"a", "b"});
  EXPECT_EQ(work_of(Kind::allreduce).operations, 2U);
  EXPECT_EQ(work_of(Kind::allreduce).bytes, 2 * 8 * sizeof(float));

  Entry barrier = entry_of("barrier", 0);
  barrier.request.kind = Kind::barrier;
  ASSERT_TRUE(queue.push(std::move(barrier)).ok());
  queue.agree();
  EXPECT_EQ(work_of(Kind::barrier).operations, 0U) << "it has not ended";
  queue.run();
  EXPECT_EQ(work_of(Kind::barrier).operations, 1U);
  EXPECT_EQ(work_of(Kind::allreduce).operations, 2U);
}

TEST(TensorQueue, TheWaitForOthersEndsWhenAResponseIsThereForAll) {
  WorkMeter meter;
  TensorQueue queue(0, ProcessSets(1), meter);
  const auto since = trace::nanoseconds_now();
  bool first = false;
  std::vector<Entry> entries{entry_of("a"), entry_of("b")};
  ASSERT_TRUE(queue.push(entries, first).ok());
  std::vector<SharedTensor> tensors;
  for (auto& request : queue.drain()) {
    tensors.push_back(std::make_shared<ResponseTensor>(ResponseTensor{*request.full}));
  }

  // The times of responses are handed in.
  const auto later = trace::nanoseconds_now() + 5'000'000'000;
  TensorQueue::Slots slots;
  queue.take({tensors[0]}, later, later, slots);
  const auto before = meter.read(later + 1'000'000'000).waited;
  EXPECT_GE(before, 6'000'000'000) << "for b";
  queue.take({tensors[1]}, later + 2'000'000'000, later, slots);
  const auto waited = meter.read(later + 9'000'000'000).waited;
  EXPECT_GE(waited, 7'000'000'000);
  EXPECT_LE(waited, later + 2'000'000'000 - since);
  queue.finish(slots);
  EXPECT_EQ(meter.read(later + 9'000'000'000).waited, waited);
}

TEST(TensorQueue, NobodyWaitsAfterTheEnd) {
  WorkMeter meter;
  bool first = false;
  for (const bool closes : {true, false}) {
    TensorQueue queue(0, ProcessSets(1), meter);
    Entry entry = entry_of("a");
    ASSERT_TRUE(queue.push({&entry, 1}, first).ok());
    const std::size_t ended = closes ? queue.close(Status(Code::aborted, "enough")).size() : 1;
    EXPECT_EQ(ended, 1U);
  }
  EXPECT_LT(meter.read(trace::nanoseconds_now() + 3'600'000'000'000).waited, 3'000'000'000'000);
}

TEST(TensorQueue, AWaitThatWasReadNeverShrinks) {
  WorkMeter meter;
  const auto since = trace::nanoseconds_now();
  meter.begin_wait(since);
  EXPECT_EQ(meter.read(since + 3'000).waited, 3'000);
  meter.end_wait(since + 1'000);
  EXPECT_EQ(meter.read(since + 4'000).waited, 3'000);
  meter.begin_wait(since + 5'000);
  EXPECT_EQ(meter.read(since + 8'000).waited, 4'000);
}

TEST(TensorQueue, NewNamesMayComeBetweenTheOldOnes) {
  AgreeingQueue queue;
  queue.step({"a", "b", "c", "d"});
  queue.push_all({"a", "new", "b", "newer", "c", "d"});
  EXPECT_EQ(queue.agree(),
            (std::vector<std::string>{"a by its id", "new in full", "b by its id", "newer in full",
                                      "c by its id", "d by its id"}));
  EXPECT_EQ(queue.run(), (std::vector<std::string>{"a", "new", "b", "newer", "c", "d"}));
}

TEST(TensorQueue, ADifferentRequestUnderTheSameNameIsSentInFull) {
  AgreeingQueue queue;
  queue.step({"a", "b"});
  const auto expect = [&queue](std::int64_t elements, const std::string& how) {
    ASSERT_TRUE(queue.push(entry_of("a", elements)).ok());
    EXPECT_EQ(queue.agree(), std::vector<std::string>{"a " + how});
    EXPECT_EQ(queue.wanted().front()->request.shape, std::vector<std::int64_t>{elements});
    EXPECT_EQ(queue.run(), std::vector<std::string>{"a"});
  };
  expect(8, "by its id");
  expect(9, "in full");
  expect(9, "by its id");
  expect(8, "in full");
  expect(8, "by its id");
}

TEST(TensorQueue, ATensorThatFailedIsStillAgreedInItsFormerShape) {
  AgreeingQueue queue;
  queue.step({"a"});
  const auto agreed = queue.wanted();
  ASSERT_TRUE(queue.push(entry_of("a", 9)).ok());
  EXPECT_EQ(queue.agree(), std::vector<std::string>{"a in full"});
  // An error is delivered with one rank's request, which is not cached.
  auto refused = std::make_shared<ResponseTensor>(*queue.wanted().front());
  refused->cache_id = ResponseTensor::kNotCached;
  EXPECT_EQ(queue.run({refused}), std::vector<std::string>{"a"});
  ASSERT_TRUE(queue.push(entry_of("a", 8)).ok());
  EXPECT_EQ(queue.agree(), std::vector<std::string>{"a in full"}) << "or by its id";
  EXPECT_EQ(queue.run(agreed), std::vector<std::string>{"a"}) << "the same object as before";
  ASSERT_TRUE(queue.push(entry_of("a", 8)).ok());
  EXPECT_EQ(queue.agree(), std::vector<std::string>{"a by its id"});
}

TEST(TensorQueue, ARefusedEntryGoesBackAndLeavesNothing) {
  AgreeingQueue queue;
  queue.step({"a", "b", "c"});
  ASSERT_TRUE(queue.push(entry_of("c")).ok());
  std::vector<Entry> entries;
  entries.push_back(entry_of("a"));
  entries.push_back(entry_of("b", 6));
  entries.push_back(entry_of("c", 7));
  bool first = false;
  const Failure refused = queue.queue().push(entries, first);
  EXPECT_EQ(refused.status.code(), Code::invalid_argument);
  EXPECT_EQ(entries[0].request.name, "a");
  EXPECT_EQ(entries[1].request.shape, std::vector<std::int64_t>{6});
  EXPECT_EQ(queue.agree(), std::vector<std::string>{"c by its id"});
  EXPECT_EQ(queue.run(), std::vector<std::string>{"c"});
  // The next entries are not confused with these.
  Entry scalar = entry_of("a");
  scalar.request.shape.clear();
  ASSERT_TRUE(queue.push(std::move(scalar)).ok());
  EXPECT_EQ(queue.agree(), std::vector<std::string>{"a in full"});
  EXPECT_EQ(queue.run(), std::vector<std::string>{"a"});
  ASSERT_TRUE(queue.push(entry_of("b", 6)).ok());
  EXPECT_EQ(queue.agree(), std::vector<std::string>{"b in full"});
  EXPECT_EQ(queue.run(), std::vector<std::string>{"b"});
  queue.step({"a", "b", "c"});
}

TEST(TensorQueue, UnusedNamesAreDroppedAndReturnAsNewOnes) {
  AgreeingQueue queue;
  const auto many = names_up_to(static_cast<int>(TensorQueue::kMaxIdle) + 2);
  const std::vector<std::string> few{"tensor.0", "tensor.1", "tensor.2"};
  queue.step(few);
  // All at once, and then one by one, so that old slots are dropped while lookups use their
  // neighbours.
  queue.step(many);
  for (int i = 0; i < 50; ++i) queue.step({cat("other.", i), "tensor.3", cat("another.", i)});
  queue.push_all(few);
  EXPECT_EQ(queue.agree(), with(few, " in full"));
  EXPECT_EQ(queue.run(), few);
  queue.step(many);
}

}  // namespace
}  // namespace hvd::runtime
