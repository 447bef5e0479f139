// Letters in memory that two share: that they come whole and in order, and what is no letter.
#include "runtime/shm/letter_box.h"

#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <thread>

#include "base/text.h"

namespace hvd::test {
namespace {

using runtime::LetterBox;

void expect_letter(LetterBox& box, std::uint64_t after, std::string_view bytes) {
  const auto letter = box.look();
  ASSERT_TRUE(letter.has_value());
  EXPECT_EQ(letter->after, after);
  EXPECT_EQ(letter->bytes, bytes);
  box.take();
}

TEST(LetterBox, GivesWhatWasPutInItsOrderHoweverOftenItIsFilled) {
  const auto box = std::make_unique<LetterBox>();
  EXPECT_FALSE(box->look().has_value());
  std::uint64_t put = 0;
  std::uint64_t taken = 0;
  // Each time it is left with another number of letters, up to all that there is room for.
  for (std::size_t round = 0; round < 10 * LetterBox::kLetters; ++round) {
    while (put - taken < LetterBox::kLetters) {
      ASSERT_TRUE(box->put(put, cat("letter ", put)));
      ++put;
    }
    EXPECT_FALSE(box->put(put, "one more"));
    for (std::size_t i = 0; i <= round % LetterBox::kLetters; ++i, ++taken) {
      EXPECT_FALSE(box->all_read());
      expect_letter(*box, taken, cat("letter ", taken));
    }
    EXPECT_EQ(box->all_read(), put == taken);
  }
}

TEST(LetterBox, TakesWhatIsJustShortEnoughAndWhatIsEmpty) {
  const auto box = std::make_unique<LetterBox>();
  const std::string longest(LetterBox::kMostBytes, 'x');
  EXPECT_FALSE(box->put(0, longest + 'x'));
  EXPECT_TRUE(box->all_read());
  EXPECT_TRUE(box->put(1, longest));
  EXPECT_TRUE(box->put(2, ""));
  expect_letter(*box, 1, longest);
  expect_letter(*box, 2, "");
}

TEST(LetterBox, OfASizeThatNoLetterHasNothingIsRead) {
  const auto box = std::make_unique<LetterBox>();
  ASSERT_TRUE(box->put(7, "bytes"));
  // The size stands before the bytes.
  auto* const bytes = const_cast<char*>(box->look()->bytes.data());
  const std::uint32_t size = 1U << 31;
  std::memcpy(bytes - sizeof(size), &size, sizeof(size));
  expect_letter(*box, 0, "");
}

TEST(LetterBox, OfMoreLettersThanThereIsRoomForNoneIsRead) {
  const auto box = std::make_unique<LetterBox>();
  ASSERT_TRUE(box->put(7, "bytes"));
  const std::uint64_t written = 1ULL << 40;
  std::memcpy(static_cast<void*>(box.get()), &written, sizeof(written));
  expect_letter(*box, 0, "");
}

TEST(LetterBox, OneWritesWhileTheOtherReads) {
  constexpr std::uint64_t kTimes = 100'000;
  const auto box = std::make_unique<LetterBox>();
  std::thread writer([&box] {
    for (std::uint64_t i = 0; i < kTimes; ++i) {
      const std::string bytes(i % (LetterBox::kMostBytes + 1), static_cast<char>(i));
      while (!box->put(i, bytes)) std::this_thread::yield();
    }
  });
  for (std::uint64_t i = 0; i < kTimes; ++i) {
    while (!box->look()) std::this_thread::yield();
    expect_letter(*box, i, std::string(i % (LetterBox::kMostBytes + 1), static_cast<char>(i)));
  }
  writer.join();
  EXPECT_TRUE(box->all_read());
}

}  // namespace
}  // namespace hvd::test
