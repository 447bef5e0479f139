// Tests of every Copier: for GPUs in the memory of the host and, where there is one, for a GPU.
#include <cstring>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "runtime/gpu/digest.h"
#include "runtime/gpu/module.h"
#include "tests/runtime/gpu/hidden_memory.h"
#include "tests/runtime/gpu/host_copier.h"

namespace hvd::test {
namespace {

using runtime::gpu::Copier;
using runtime::gpu::KeptIn;

constexpr std::size_t kMany = (std::size_t{1} << 20) + 3;

class CopierTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (GetParam() == std::string("Host")) {
      copier_ = make_host_copier({&memory_, &stream_});
      return;
    }
    const auto module = runtime::gpu::module();
    if (!module.ok()) GTEST_SKIP() << module.status().message();
    const auto count = (*module)->device_count();
    if (!count.ok()) GTEST_SKIP() << count.status().message();
    auto opened = (*module)->open_copier(0);
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    copier_ = std::move(*opened);
  }
  void TearDown() override {
    for (const auto& [where, memory] : allocated_) copier_->release(where, memory);
  }
  std::byte* allocate(KeptIn where) {
    auto memory = copier_->allocate(where, kMany);
    EXPECT_TRUE(memory.ok()) << memory.status().to_string();
    allocated_.emplace_back(where, *memory);
    return static_cast<std::byte*>(*memory);
  }
  static void fill(std::byte* memory) {
    for (std::size_t i = 0; i < kMany; ++i) memory[i] = static_cast<std::byte>(i * 31 % 251);
  }

  HiddenMemory memory_{std::size_t{1} << 24};
  HostLane stream_;
  std::unique_ptr<Copier> copier_;
  std::vector<std::pair<KeptIn, void*>> allocated_;
};

INSTANTIATE_TEST_SUITE_P(Every, CopierTest, testing::Values("Host", "Device"),
                         [](const auto& which) { return std::string(which.param); });

TEST_P(CopierTest, CopiesBetweenTheDeviceAndPinnedMemoryInTheOrderInWhichTheyWereBegun) {
  auto* const from = allocate(KeptIn::pinned);
  auto* const to = allocate(KeptIn::pinned);
  auto* const first = allocate(KeptIn::device);
  auto* const second = allocate(KeptIn::device);
  ASSERT_TRUE(copier_->wait().ok());
  EXPECT_EQ(std::vector(from, from + kMany), std::vector<std::byte>(kMany)) << "all zeros";
  fill(from);
  ASSERT_TRUE(copier_->follow(nullptr).ok());
  ASSERT_TRUE(copier_->copy(first, from, kMany).ok());
  ASSERT_TRUE(copier_->copy(second, first, kMany).ok());
  ASSERT_TRUE(copier_->copy(to, second, kMany).ok());
  ASSERT_TRUE(copier_->copy(second, from, 0).ok());
  ASSERT_TRUE(copier_->lead(nullptr).ok());
  ASSERT_TRUE(copier_->health().ok());
  ASSERT_TRUE(copier_->wait().ok());
  EXPECT_EQ(std::memcmp(to, from, kMany), 0);
  EXPECT_GT(*copier_->free_bytes(), 0U);
}

TEST_P(CopierTest, DigestsAreThoseOfTheHostOfEitherKindOfMemoryAndAnyLength) {
  auto* const pinned = allocate(KeptIn::pinned);
  auto* const device = allocate(KeptIn::device);
  ASSERT_TRUE(copier_->wait().ok());
  fill(pinned);
  ASSERT_TRUE(copier_->copy(device, pinned, kMany).ok());
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{8},
                                  std::size_t{9}, std::size_t{4096}, kMany - 4, kMany}) {
    const auto expected = runtime::gpu::digest_on_host(pinned, bytes);
    EXPECT_EQ(*copier_->digest(device, bytes), expected) << bytes;
    EXPECT_EQ(*copier_->digest(pinned, bytes), expected) << bytes;
  }
}

TEST_P(CopierTest, AnAllocationBeyondTheDevicesMemoryIsAnErrorAndHarmsNothingElse) {
  const auto refused = copier_->allocate(KeptIn::device, std::size_t{1} << 50);
  EXPECT_EQ(refused.status().code(), Code::resource_exhausted) << refused.status().to_string();
  EXPECT_TRUE(copier_->health().ok());
}

}  // namespace
}  // namespace hvd::test
