#include "base/machine/bulk_copy.h"

#include <algorithm>
#include <cstddef>
#include <gtest/gtest.h>
#include <vector>

namespace hvd {
namespace {

constexpr std::size_t kMargin = 256;
constexpr std::byte kUntouched{0xA5};

// Copies `bytes` between these distances from the beginning of a line, and looks at all around.
void expect_copied(CopyFunction copy, std::size_t bytes, std::size_t to, std::size_t from) {
  std::vector<std::byte> source(bytes + 2 * kMargin);
  for (std::size_t i = 0; i < source.size(); ++i)
    source[i] = static_cast<std::byte>(i * 7 + i / 251);
  std::vector<std::byte> target(bytes + 2 * kMargin, kUntouched);
  copy(target.data() + to, source.data() + from, bytes);

  std::vector<std::byte> expected(target.size(), kUntouched);
  std::copy_n(source.begin() + static_cast<std::ptrdiff_t>(from), bytes,
              expected.begin() + static_cast<std::ptrdiff_t>(to));
  ASSERT_EQ(target, expected) << bytes << " bytes from " << from << " to " << to;
}

class BulkCopy : public testing::TestWithParam<CopyFunction> {};
INSTANTIATE_TEST_SUITE_P(, BulkCopy, testing::Values(bulk_copy, stream_copy),
                         [](const auto& copy) { return copy.index == 0 ? "Cached" : "Streamed"; });

TEST_P(BulkCopy, CopiesAllThatIsAskedForAndNothingElse) {
  for (std::size_t bytes = 0; bytes < 300; ++bytes) expect_copied(GetParam(), bytes, 1, 2);
  for (std::size_t bytes = 2000; bytes < 2400; ++bytes) expect_copied(GetParam(), bytes, 16, 0);
}

TEST_P(BulkCopy, TakesAnyAlignment) {
  for (std::size_t to = 0; to <= 64; ++to) {
    for (std::size_t from = 0; from <= 64; ++from) expect_copied(GetParam(), 4099, to, from);
  }
}

TEST_P(BulkCopy, NothingMayBeCopiedFromNowhere) { GetParam()(nullptr, nullptr, 0); }

}  // namespace
}  // namespace hvd
