#include "base/protocol/state_memory.h"

#include <csignal>
#include <cstdint>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace hvd {
namespace {

StateMemory made() {
  auto made = StateMemory::make();
  if (!made.ok()) throw std::runtime_error(made.status().to_string());
  return std::move(*made);
}

std::uint64_t pages_of(const StateMemory& memory) {
  struct stat about {};
  EXPECT_EQ(::fstat(memory.region(0).file, &about), 0);
  return static_cast<std::uint64_t>(about.st_blocks);
}

TEST(StateMemory, HasTwoEntriesOfWhichTheNewestCounts) {
  const auto memory = made();
  EXPECT_TRUE(memory.newest().none());
  EXPECT_FALSE(memory.read(0));
  ASSERT_TRUE(memory.write(0, {{3, 7, 0}, 11, 12, {5, 0, 9}}).ok());
  ASSERT_TRUE(memory.write(1, {{3, 6, 0}, 11, 12, {}}).ok());
  EXPECT_EQ(memory.newest(), (CommitId{3, 7, 0}));
  const auto entry = memory.read(0);
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->shape, 11U);
  EXPECT_EQ(entry->step, 12U);
  EXPECT_EQ(entry->sizes, (std::vector<std::uint64_t>{5, 0, 9}));
  ASSERT_TRUE(memory.make_void(0).ok());
  EXPECT_EQ(memory.newest(), (CommitId{3, 6, 0}));
}

TEST(StateMemory, AnEntryThatIsDamagedIsVoid) {
  const auto memory = made();
  ASSERT_TRUE(memory.write(0, {{3, 7, 0}, 11, 12, {5, 6}}).ok());
  const int file = memory.region(0).file;
  constexpr off_t kEntryBytes = 68;
  for (off_t at = 0; at < kEntryBytes; ++at) {
    char byte = 0;
    ASSERT_EQ(::pread(file, &byte, 1, at), 1);
    const char other = static_cast<char>(byte ^ 1);
    ASSERT_EQ(::pwrite(file, &other, 1, at), 1);
    EXPECT_FALSE(memory.read(0)) << "byte " << at;
    ASSERT_EQ(::pwrite(file, &byte, 1, at), 1);
  }
  EXPECT_TRUE(memory.read(0));
}

// A worker may write there what no file has.
TEST(StateMemory, AnEntryWithMorePartsThanTheFileHasIsVoid) {
  const auto memory = made();
  const auto other = made();
  ASSERT_TRUE(memory.write(0, {{3, 7, 0}, 11, 12, std::vector<std::uint64_t>(1000, 1)}).ok());
  std::string head(68, '\0');
  ASSERT_EQ(::pread(memory.region(0).file, head.data(), head.size(), 0), 68);
  ASSERT_EQ(::pwrite(other.region(0).file, head.data(), head.size(), 0), 68);
  EXPECT_FALSE(other.read(0));
  EXPECT_EQ(other.newest(), (CommitId{3, 7, 0}));
}

TEST(StateMemory, OnlyWhatIsWrittenTakesPages) {
  const auto memory = made();
  ASSERT_TRUE(memory.write(0, {{1, 1, 0}, 0, 0, {1}}).ok());
  ASSERT_TRUE(memory.write(1, {{1, 2, 0}, 0, 0, {1}}).ok());
  constexpr std::uint64_t kBlocksOfSixteenPages = std::uint64_t{16} * 4096 / 512;
  EXPECT_LE(pages_of(memory), kBlocksOfSixteenPages);
}

TEST(StateMemory, OutlivesTheProcessThatHasWrittenIt) {
  const auto memory = made();
  const pid_t child = ::fork();
  if (child == 0) {
    auto same = StateMemory::open(memory.duplicate());
    if (same.ok()) (void)same->write(0, {{1, 5, 0}, 0, 0, {}});
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(memory.newest(), (CommitId{1, 5, 0}));
}

TEST(StateMemory, BecomesNoSmaller) {
  const auto memory = made();
  ASSERT_TRUE(memory.write(0, {{1, 5, 0}, 0, 0, {}}).ok());
  EXPECT_NE(::ftruncate(memory.region(0).file, 0), 0);
}

TEST(StateMemory, IsNoOtherFile) {
  EXPECT_FALSE(StateMemory::open(UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC))).ok());
  EXPECT_FALSE(StateMemory::open(UniqueFd(::memfd_create("other", MFD_CLOEXEC))).ok());
  EXPECT_TRUE(StateMemory::open(made().duplicate()).ok());
}

TEST(StateMemory, IsNotUsedWhereTheSizeOfFilesIsLimited) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit less{1 << 20, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &less), 0);
  const auto opened = StateMemory::open(made().duplicate());
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(opened.status().code(), Code::failed_precondition);
}

}  // namespace
}  // namespace hvd
