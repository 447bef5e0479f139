#include "cmd/hvdrun/rank_files.h"

#include <atomic>
#include <filesystem>
#include <gtest/gtest.h>

#include "tests/support/process.h"

namespace hvd::cli {
namespace {

TEST(RankFiles, ARankIsPaddedToTheWidthOfTheHighest) {
  EXPECT_EQ(rank_folder(0, 1), "rank.0");
  EXPECT_EQ(rank_folder(9, 10), "rank.9");
  EXPECT_EQ(rank_folder(9, 11), "rank.09");
  EXPECT_EQ(rank_folder(10, 11), "rank.10");
  EXPECT_EQ(rank_folder(7, 1001), "rank.0007");
}

TEST(RankFiles, EachStreamOfEachRankHasAFileWithItsBytes) {
  const test::TemporaryDirectory directory;
  const std::string where = (directory.path() / "logs/today").string();
  const std::string bytes("no\0line\xff end", 12);
  std::atomic<int> released = 0;
  {
    auto files = RankFiles::open(where, 11, [](const Status& why) { FAIL() << why.message(); });
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
  auto files = RankFiles::open(directory.path().string(), 1,
                               [&](const Status& why) { failures.push_back(why.message()); });
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

TEST(RankFiles, AFolderThatCannotBeMadeIsNamed) {
  const test::TemporaryDirectory directory;
  directory.file("taken", "");
  const auto files = RankFiles::open((directory.path() / "taken/logs").string(), 1, nullptr);
  ASSERT_FALSE(files.ok());
  EXPECT_NE(files.status().message().find("taken/logs/rank.0: Not a directory"), std::string::npos)
      << files.status().message();
}

}  // namespace
}  // namespace hvd::cli
