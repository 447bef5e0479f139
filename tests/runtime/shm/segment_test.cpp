#include "runtime/shm/segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace hvd::test {
namespace {

using runtime::Segment;

TEST(ShmSegment, IsTheSameMemoryForEachProcessThatAdoptsIt) {
  auto made = Segment::create(1 << 20);
  ASSERT_TRUE(made.ok());
  ASSERT_TRUE((*made)->reserve(0, 8192).ok());
  (*made)->data()[5000] = std::byte{7};
  auto adopted = Segment::adopt(UniqueFd(::dup((*made)->fd())), 1 << 20);
  ASSERT_TRUE(adopted.ok()) << adopted.status().to_string();
  EXPECT_EQ((*adopted)->data()[5000], std::byte{7});
}

TEST(ShmSegment, OfAnotherSizeIsRefused) {
  auto made = Segment::create(1 << 20);
  ASSERT_TRUE(made.ok());
  const auto adopted = Segment::adopt(UniqueFd(::dup((*made)->fd())), 2 << 20);
  EXPECT_EQ(adopted.status().code(), Code::failed_precondition);
  EXPECT_EQ(adopted.status().message(), "the shared memory has 1048576 bytes, not 2097152");
}

TEST(ShmSegment, WithoutASealOnItsSizeIsRefused) {
  UniqueFd fd(::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(fd.get(), 4096), 0);
  const auto adopted = Segment::adopt(std::move(fd), 4096);
  EXPECT_EQ(adopted.status().message(), "the size of the shared memory is not sealed");
}

// Whoever opened it by a name would need no handshake.
TEST(ShmSegment, HasNoNameUnderWhichOthersCouldOpenIt) {
  const auto made = Segment::create(4096);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  struct stat what {};
  ASSERT_EQ(::fstat((*made)->fd(), &what), 0);
  EXPECT_EQ(what.st_nlink, 0U);
}

TEST(ShmSegment, RefusesDescriptorsThatAreNoMemory) {
  EXPECT_FALSE(Segment::adopt(UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC)), 4096).ok());
  EXPECT_FALSE(Segment::adopt(UniqueFd(), 4096).ok());
}

TEST(ShmSegment, AReservationThatFailsIsAnErrorAndNoSignal) {
  auto made = Segment::create(1 << 20);
  ASSERT_TRUE(made.ok());
  const Status reserved = (*made)->reserve(1 << 20, 4096);
  EXPECT_EQ(reserved.code(), Code::resource_exhausted) << reserved.to_string();
}

// Its size is sealed: the second piece of memory lies beyond its end.
TEST(ShmSegment, AReservationThatFailsHalfWayKeepsNothing) {
  constexpr std::size_t kBytes = std::size_t{12} << 20;
  auto made = Segment::create(kBytes);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ((*made)->reserve(0, 2 * kBytes).code(), Code::resource_exhausted);
  struct stat what {};
  ASSERT_EQ(::fstat((*made)->fd(), &what), 0);
  EXPECT_EQ(what.st_blocks, 0);
}

TEST(ShmSegment, BeyondTheLimitOfTheSizeOfFilesIsAnErrorAndNoSignal) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit little{1 << 20, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &little), 0);
  EXPECT_TRUE(Segment::create(1 << 20).ok());
  const Status beyond = Segment::create(2 << 20).status();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(beyond.code(), Code::resource_exhausted);
  EXPECT_EQ(
      beyond.message(),
      "shared memory of 2097152 bytes is beyond the limit of the size of files, 1048576 bytes "
      "(ulimit -f)");
}

TEST(ShmSegment, MoreThanAnyMachineHasIsAnError) {
  EXPECT_FALSE(Segment::create(std::size_t{1} << 62).ok());
}

}  // namespace
}  // namespace hvd::test
