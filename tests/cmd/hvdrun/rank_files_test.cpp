#include "cmd/hvdrun/rank_files.h"

#include <atomic>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <future>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/descriptors.h"
#include "base/socket.h"
#include "tests/support/missing_calls.h"
#include "tests/support/process.h"

namespace hvd::cli {
namespace {

RankFilesOptions must_not_fail() {
  RankFilesOptions options;
  options.on_failure = [](const Status& why) { FAIL() << why.message(); };
  return options;
}

TEST(RankFiles, ARankIsPaddedToTheWidthOfTheHighest) {
  EXPECT_EQ(rank_folder(0, 1), "rank.0");
  EXPECT_EQ(rank_folder(9, 10), "rank.9");
  EXPECT_EQ(rank_folder(9, 11), "rank.09");
  EXPECT_EQ(rank_folder(10, 11), "rank.10");
  EXPECT_EQ(rank_folder(7, 1001), "rank.0007");
}

TEST(RankFiles, AMissingThreadIsAnErrorThatSaysItsPurpose) {
  const test::TemporaryDirectory directory;
  const int code = test::without_threads([&] {
    const auto files = RankFiles::open(directory.path().string(), 2, {});
    return files.status().message().starts_with("--output-filename: write the files: ") ? 0 : 1;
  });
  if (code == 77) GTEST_SKIP() << "this kernel takes no filter for system calls";
  EXPECT_EQ(code, 0);
}

TEST(RankFiles, EachStreamOfEachRankHasAFileWithItsBytes) {
  const test::TemporaryDirectory directory;
  const std::string where = (directory.path() / "logs/today").string();
  const std::string bytes("no\0line\xff end", 12);
  std::atomic<int> released = 0;
  {
    auto files = RankFiles::open(where, 11, must_not_fail());
    ASSERT_TRUE(files.ok()) << files.status().message();
    (*files)->write(0, false, "zero\n", make_credit([&] { ++released; }));
    (*files)->write(10, true, bytes, make_credit([&] { ++released; }));
    (*files)->write(10, true, bytes, {});
    (*files)->drain();
    EXPECT_EQ(released, 2);
  }
  EXPECT_EQ(test::read_file(where + "/rank.00/stdout"), "zero\n");
  EXPECT_EQ(test::read_file(where + "/rank.00/stderr"), "");
  EXPECT_EQ(test::read_file(where + "/rank.10/stderr"), bytes + bytes);
  EXPECT_TRUE(std::filesystem::exists(where + "/rank.05/stdout"));
}

TEST(RankFiles, AFullDiskIsReportedOnceWithTheFilesNameAndLosesNoCredit) {
  const test::TemporaryDirectory directory;
  std::filesystem::create_directory(directory.path() / "rank.0");
  std::filesystem::create_symlink("/dev/full", directory.path() / "rank.0/stdout");
  std::vector<std::string> failures;
  std::atomic<int> released = 0;
  RankFilesOptions options;
  options.on_failure = [&](const Status& why) { failures.push_back(why.message()); };
  auto files = RankFiles::open(directory.path().string(), 1, options);
  ASSERT_TRUE(files.ok()) << files.status().message();
  for (int i = 0; i < 10; ++i) {
    (*files)->write(0, false, std::string(3'000'000, 'x'), make_credit([&] { ++released; }));
  }
  (*files)->drain();
  files->reset();
  EXPECT_EQ(released, 10);
  ASSERT_EQ(failures.size(), 1U);
  EXPECT_NE(failures[0].find("rank.0/stdout: No space left on device"), std::string::npos)
      << failures[0];
}

// A disk that is slow is waited for, and so is the reader of a pipe, but not one that never comes.
TEST(RankFiles, APipeWithoutAReaderIsAnErrorAndOneThatIsReadGetsAll) {
  const test::TemporaryDirectory directory;
  std::filesystem::create_directory(directory.path() / "rank.0");
  const std::string pipe = directory.path() / "rank.0/stdout";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const auto refused = RankFiles::open(directory.path(), 1, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("rank.0/stdout: No such device or address"),
            std::string::npos)
      << refused.status().message();

  UniqueFd reader(::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  ASSERT_TRUE(reader);
  const std::string bytes(1'000'000, 'x');  // more than a pipe holds
  std::string read;
  {
    auto files = RankFiles::open(directory.path(), 1, must_not_fail());
    ASSERT_TRUE(files.ok()) << files.status().message();
    (*files)->write(0, false, bytes, {});
    ASSERT_TRUE(set_nonblocking(reader.get(), false).ok());
    std::string buffer(65'536, '\0');
    while (read.size() < bytes.size()) {
      const ssize_t got = ::read(reader.get(), buffer.data(), buffer.size());
      ASSERT_GT(got, 0);
      read.append(buffer, 0, static_cast<std::size_t>(got));
    }
  }
  EXPECT_EQ(read, bytes);
}

// As a file system that does not answer: the workers do not wait for it for ever.
TEST(RankFiles, AFileThatTakesNothingLosesOutputThatIsCountedAndNoCredit) {
  const test::TemporaryDirectory directory;
  std::filesystem::create_directory(directory.path() / "rank.0");
  const std::string pipe = directory.path() / "rank.0/stdout";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const UniqueFd reader(::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  ASSERT_TRUE(reader);

  std::promise<std::string> stalled;
  std::promise<std::uint64_t> resumed;
  RankFilesOptions options = must_not_fail();
  options.stall_timeout = std::chrono::milliseconds(100);
  options.on_stalled = [&](const std::string& file) { stalled.set_value(file); };
  options.on_resumed = [&](std::uint64_t left_out) { resumed.set_value(left_out); };
  constexpr int kPieces = 4;
  constexpr std::uint64_t kPiece = 3'000'000;
  std::atomic<int> released = 0;
  std::promise<void> all_released;
  auto files = RankFiles::open(directory.path(), 1, options);
  ASSERT_TRUE(files.ok()) << files.status().message();
  for (int i = 0; i < kPieces; ++i) {
    (*files)->write(0, false, std::string(kPiece, 'x'), make_credit([&] {
                      if (++released == kPieces) all_released.set_value();
                    }));
  }
  EXPECT_EQ(stalled.get_future().get(), pipe);
  EXPECT_EQ((*files)->drain(), kPieces * kPiece) << "none of it is known to be there";
  all_released.get_future().wait();
  (*files)->write(0, false, std::string(7, 'y'), {});

  std::string read(65'536, '\0');
  auto left_out = resumed.get_future();
  while (left_out.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
    [[maybe_unused]] const ssize_t got = ::read(reader.get(), read.data(), read.size());
  }
  EXPECT_EQ(left_out.get(), (kPieces - 1) * kPiece + 7);
}

TEST(RankFiles, TheEndDoesNotWaitForAFileThatTakesNothing) {
  const test::TemporaryDirectory directory;
  std::filesystem::create_directory(directory.path() / "rank.0");
  const std::string pipe = directory.path() / "rank.0/stdout";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  UniqueFd reader(::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  ASSERT_TRUE(reader);
  RankFilesOptions options;
  options.stall_timeout = std::chrono::milliseconds(100);
  {
    auto files = RankFiles::open(directory.path(), 1, options);
    ASSERT_TRUE(files.ok()) << files.status().message();
    (*files)->write(0, false, std::string(1'000'000, 'x'), {});
    EXPECT_EQ((*files)->drain(), 1'000'000U);
  }
  // The thread that was left behind ends with an error, of which nobody hears.
  const auto ignored = ::signal(SIGPIPE, SIG_IGN);
  reader.reset();
  ::signal(SIGPIPE, ignored);
}

TEST(RankFiles, AFolderThatCannotBeMadeIsNamed) {
  const test::TemporaryDirectory directory;
  directory.file("taken", "");
  const auto files = RankFiles::open((directory.path() / "taken/logs").string(), 1, {});
  ASSERT_FALSE(files.ok());
  EXPECT_NE(files.status().message().find("taken/logs/rank.0/stdout: Not a directory"),
            std::string::npos)
      << files.status().message();
}

}  // namespace
}  // namespace hvd::cli
