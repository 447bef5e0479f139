// Messages in memory that two processes share: they arrive whole and in order, and malformed ones
// are not read.
#include "runtime/shm/spsc_ring.h"

#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <thread>

#include "base/text.h"

namespace hvd::test {
namespace {

using runtime::SpscRing;

void expect_message(SpscRing& box, std::uint64_t after, std::string_view bytes) {
  const auto message = box.look();
  ASSERT_TRUE(message.has_value());
  EXPECT_EQ(message->after, after);
  EXPECT_EQ(message->bytes, bytes);
  box.take();
}

TEST(SpscRing, GivesMessagesInOrderHoweverOftenItIsFilled) {
  const auto box = std::make_unique<SpscRing>();
  EXPECT_FALSE(box->look().has_value());
  std::uint64_t put = 0;
  std::uint64_t taken = 0;
  // Each time it is left with another number of messages, up to all that there is room for.
  for (std::size_t round = 0; round < 10 * SpscRing::kSlots; ++round) {
    while (put - taken < SpscRing::kSlots) {
      ASSERT_TRUE(box->put(put, cat("message ", put)));
      ++put;
    }
    EXPECT_FALSE(box->put(put, "one more"));
    for (std::size_t i = 0; i <= round % SpscRing::kSlots; ++i, ++taken) {
      EXPECT_FALSE(box->all_read());
      expect_message(*box, taken, cat("message ", taken));
    }
    EXPECT_EQ(box->all_read(), put == taken);
  }
}

TEST(SpscRing, TakesTheLongestMessageAndAnEmptyOne) {
  const auto box = std::make_unique<SpscRing>();
  const std::string longest(SpscRing::kMaxBytes, 'x');
  EXPECT_FALSE(box->put(0, longest + 'x'));
  EXPECT_TRUE(box->all_read());
  EXPECT_TRUE(box->put(1, longest));
  EXPECT_TRUE(box->put(2, ""));
  expect_message(*box, 1, longest);
  expect_message(*box, 2, "");
}

TEST(SpscRing, AMessageWithAnImpossibleSizeIsReadAsEmpty) {
  const auto box = std::make_unique<SpscRing>();
  ASSERT_TRUE(box->put(7, "bytes"));
  // The size stands before the bytes.
  auto* const bytes = const_cast<char*>(box->look()->bytes.data());
  const std::uint32_t size = 1U << 31;
  std::memcpy(bytes - sizeof(size), &size, sizeof(size));
  expect_message(*box, 0, "");
}

TEST(SpscRing, AnImpossibleCountOfMessagesIsReadAsAnEmptyMessage) {
  const auto box = std::make_unique<SpscRing>();
  ASSERT_TRUE(box->put(7, "bytes"));
  const std::uint64_t written = 1ULL << 40;
  std::memcpy(static_cast<void*>(box.get()), &written, sizeof(written));
  expect_message(*box, 0, "");
}

TEST(SpscRing, OneWritesWhileTheOtherReads) {
  constexpr std::uint64_t kTimes = 20'000;
  const auto box = std::make_unique<SpscRing>();
  std::thread writer([&box] {
    for (std::uint64_t i = 0; i < kTimes; ++i) {
      const std::string bytes(i % (SpscRing::kMaxBytes + 1), static_cast<char>(i));
      while (!box->put(i, bytes)) std::this_thread::yield();
    }
  });
  for (std::uint64_t i = 0; i < kTimes; ++i) {
    while (!box->look()) std::this_thread::yield();
    expect_message(*box, i, std::string(i % (SpscRing::kMaxBytes + 1), static_cast<char>(i)));
  }
  writer.join();
  EXPECT_TRUE(box->all_read());
}

}  // namespace
}  // namespace hvd::test
