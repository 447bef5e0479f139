// Events for a reader: the newest ones, and how many are gone.
#include "driver/status/event_buffer.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace hvd::driver {
namespace {

constexpr std::size_t kMuch = 1'000'000;

std::string sent(std::uint64_t id, const std::string& event) {
  return cat("id: ", id, "\ndata: ", event, "\n\n");
}

TEST(EventBuffer, GivesEachReaderWhatItLacks) {
  EventBuffer buffer;
  EXPECT_EQ(buffer.after(0, kMuch).text, "");
  buffer.add("a");
  buffer.add("b");
  const auto all = buffer.after(0, kMuch);
  EXPECT_EQ(all.text, sent(1, "a") + sent(2, "b"));
  EXPECT_EQ(all.last, 2U);
  EXPECT_EQ(all.missed, 0U);
  EXPECT_EQ(buffer.after(1, kMuch).text, sent(2, "b"));
  EXPECT_EQ(buffer.after(2, kMuch).text, "");
  EXPECT_EQ(buffer.after(2, kMuch).last, 2U);
  buffer.add("c");
  EXPECT_EQ(buffer.after(2, kMuch).text, sent(3, "c"));
}

TEST(EventBuffer, DropsTheOldestAndSaysHowManyAReaderMissed) {
  EventBuffer buffer({.events = 3, .bytes = kMuch});
  for (int i = 1; i <= 10; ++i) buffer.add(cat(i));
  EXPECT_EQ(buffer.size(), 3U);
  EXPECT_EQ(buffer.newest(), 10U);

  const auto from_begin = buffer.after(0, kMuch);
  EXPECT_EQ(from_begin.missed, 7U);
  EXPECT_EQ(from_begin.text, sent(8, "8") + sent(9, "9") + sent(10, "10"));
  EXPECT_EQ(buffer.after(5, kMuch).missed, 2U);
  EXPECT_EQ(buffer.after(7, kMuch).missed, 0U);
  EXPECT_EQ(buffer.after(7, kMuch).text, from_begin.text);
}

TEST(EventBuffer, HasALimitInBytes) {
  EventBuffer buffer({.events = 1'000, .bytes = 100});
  for (int i = 0; i < 50; ++i) buffer.add(std::string(30, 'x'));
  EXPECT_EQ(buffer.size(), 3U);
  EXPECT_EQ(buffer.bytes(), 90U);

  const std::string large(1'000, 'y');
  buffer.add(large);
  EXPECT_EQ(buffer.size(), 1U);
  const auto batch = buffer.after(50, kMuch);
  EXPECT_EQ(batch.missed, 0U);
  EXPECT_EQ(batch.text, sent(51, large));
  buffer.add("z");
  EXPECT_EQ(buffer.bytes(), 1U);
}

TEST(EventBuffer, CutsABatchBetweenEvents) {
  EventBuffer buffer;
  for (int i = 0; i < 10; ++i) buffer.add(std::string(100, 'x'));
  std::uint64_t last = 0;
  int batches = 0;
  while (last < buffer.newest()) {
    const auto batch = buffer.after(last, 250);
    ASSERT_GT(batch.last, last);
    EXPECT_LT(batch.text.size(), 350U);
    last = batch.last;
    ++batches;
  }
  EXPECT_EQ(batches, 5);
  // One event at least, however large.
  EXPECT_EQ(buffer.after(9, 1).text, sent(10, std::string(100, 'x')));
}

TEST(EventBuffer, AReaderOfAnotherJobGetsAll) {
  EventBuffer buffer;
  buffer.add("a");
  const auto batch = buffer.after(77, kMuch);
  EXPECT_EQ(batch.text, sent(1, "a"));
  EXPECT_EQ(batch.missed, 0U);
  EXPECT_EQ(EventBuffer().after(77, kMuch).last, 0U);
}

}  // namespace
}  // namespace hvd::driver
