#include "driver/work/work_book.h"

#include <gtest/gtest.h>

namespace hvd::driver {
namespace {

using std::chrono::seconds;

constexpr std::uint64_t kNanoseconds = 1'000'000'000;

// Of a worker that does ten steps of two operations a second, and waits for half of its time.
WorkReading after(std::uint64_t seconds_of_work) {
  WorkReading reading;
  reading.time_ns = 7 * kNanoseconds + seconds_of_work * kNanoseconds;
  reading.steps = 10 * seconds_of_work;
  reading.waited_ns = seconds_of_work * kNanoseconds / 2;
  reading.collectives = {{Collective::allreduce, 20 * seconds_of_work, 2000 * seconds_of_work}};
  return reading;
}

const WorkBook::Total& allreduces(const WorkBook::Totals& totals) {
  return totals[static_cast<std::size_t>(Collective::allreduce)];
}

TEST(WorkBook, HasNoRateBeforeTheSecondReading) {
  WorkBook book;
  const TimePoint start{};
  EXPECT_EQ(book.newest(1), nullptr);
  EXPECT_FALSE(book.rate(1, start));
  book.add(1, after(1), start);
  EXPECT_FALSE(book.rate(1, start));
  book.add(1, after(2), start + seconds(1));
  EXPECT_TRUE(book.rate(1, start + seconds(1)));
}

TEST(WorkBook, RatesAreByTheClockOfTheWorker) {
  WorkBook book;
  const TimePoint start{};
  book.add(1, after(1), start);
  // The second reading was held up on its way.
  book.add(1, after(2), start + seconds(3));
  const auto rate = book.rate(1, start + seconds(3));
  ASSERT_TRUE(rate);
  EXPECT_DOUBLE_EQ(rate->steps, 10);
  EXPECT_DOUBLE_EQ(rate->operations, 20);
  EXPECT_DOUBLE_EQ(rate->bytes, 2000);
  EXPECT_DOUBLE_EQ(rate->waited, 0.5);
}

WorkReading receiving(std::uint64_t second, std::uint64_t generation, std::uint64_t received) {
  WorkReading reading;
  reading.time_ns = second * kNanoseconds;
  reading.entry.generation = generation;
  reading.entry.expected_bytes = generation == 0 ? 0 : 1000;
  reading.entry.received_bytes = received;
  return reading;
}

// A newcomer does not end any step while it receives the state.
TEST(WorkBook, TheRateOfAStateIsThatOfThisTransfer) {
  WorkBook book;
  const TimePoint start{};
  EXPECT_EQ(book.received_per_second(1), 0);
  std::uint64_t second = 1;
  for (; second <= 3; ++second) book.add(1, receiving(second, 0, 0), start + seconds(second));
  EXPECT_EQ(book.received_per_second(1), 0);
  book.add(1, receiving(4, 2, 0), start + seconds(4));
  EXPECT_EQ(book.received_per_second(1), 0);
  book.add(1, receiving(6, 2, 200), start + seconds(6));
  EXPECT_DOUBLE_EQ(book.received_per_second(1), 100);
  for (second = 7; second <= 12; ++second) {
    book.add(1, receiving(second, 2, 200 + 10 * (second - 6)), start + seconds(second));
  }
  EXPECT_DOUBLE_EQ(book.received_per_second(1), 10) << "of the last five seconds";
  book.add(1, receiving(13, 3, 0), start + seconds(13));
  EXPECT_EQ(book.received_per_second(1), 0) << "another world";
}

TEST(WorkBook, OldWorkLeavesTheWindow) {
  WorkBook book;
  const TimePoint start{};
  for (std::uint64_t second = 1; second <= 20; ++second) {
    book.add(1, after(second), start + seconds(second));
  }
  // The worker works twice as fast from now on.
  for (std::uint64_t second = 21; second <= 30; ++second) {
    WorkReading fast = after(second);
    fast.steps = 200 + 20 * (second - 20);
    book.add(1, fast, start + seconds(second));
  }
  EXPECT_DOUBLE_EQ(book.rate(1, start + seconds(30))->steps, 20);
}

TEST(WorkBook, AWorkerThatFellSilentHasNoRateAndKeepsItsTotals) {
  WorkBook book;
  const TimePoint start{};
  book.add(1, after(1), start);
  book.add(1, after(2), start + seconds(1));
  EXPECT_FALSE(book.rate(1, start + seconds(60)));
  EXPECT_EQ(book.newest(1)->steps, 20U);
  EXPECT_EQ(allreduces(book.totals()).operations, 40U);
}

TEST(WorkBook, CountersThatGoBackStay) {
  WorkBook book;
  const TimePoint start{};
  book.add(1, after(5), start);
  book.add(1, after(4), start + seconds(1));
  WorkReading fewer = after(6);
  fewer.collectives.clear();
  book.add(1, fewer, start + seconds(2));
  WorkReading same_time = after(6);
  same_time.time_ns = after(5).time_ns;
  book.add(1, same_time, start + seconds(2));
  const WorkReading& newest = *book.newest(1);
  EXPECT_EQ(newest.time_ns, after(6).time_ns);
  EXPECT_EQ(newest.steps, after(6).steps);
  EXPECT_EQ(newest.collectives, after(5).collectives);

  WorkReading less = after(7);
  less.waited_ns = 0;
  less.collectives = {{Collective::broadcast, 1, 1}, {Collective::allreduce, 1, 1}};
  book.add(1, less, start + seconds(3));
  EXPECT_EQ(book.newest(1)->waited_ns, after(6).waited_ns);
  EXPECT_EQ(book.newest(1)->operations(), after(5).operations() + 1);
}

TEST(WorkBook, TheRateOfLongStepsIsThatOfSomeSteps) {
  WorkBook book;
  const TimePoint start{};
  // A step takes eight seconds.
  for (std::uint64_t second = 0; second < 60; ++second) {
    WorkReading reading = after(second);
    reading.steps = second / 8;
    book.add(1, reading, start + seconds(second));
    if (second < 24) continue;
    // Two steps, from somewhere within the first one.
    EXPECT_GE(book.rate(1, start + seconds(second))->steps, 2.0 / 24) << second;
    EXPECT_LE(book.rate(1, start + seconds(second))->steps, 2.0 / 8) << second;
  }
}

TEST(WorkBook, KeepsFewSamplesHoweverManyComeIn) {
  WorkBook book;
  WorkReading reading = after(1);
  for (int i = 0; i < 100'000; ++i) {
    ++reading.time_ns;
    book.add(1, reading, TimePoint{});
  }
  EXPECT_EQ(book.newest(1)->time_ns, reading.time_ns);
}

TEST(WorkBook, TotalsKeepWhatEndedWorkersDid) {
  WorkBook book;
  const TimePoint start{};
  book.add(1, after(3), start);
  book.add(2, after(4), start);
  book.end(1);
  book.end(1);
  book.end(99);
  EXPECT_EQ(book.newest(1), nullptr);
  book.add(3, after(1), start);
  EXPECT_EQ(allreduces(book.totals()).operations, 20U * (3 + 4 + 1));
  EXPECT_EQ(allreduces(book.totals()).bytes, 2000U * (3 + 4 + 1));
}

}  // namespace
}  // namespace hvd::driver
