#include "base/security/written_file.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <unistd.h>

#include "base/text.h"
#include "tests/support/other_user.h"
#include "tests/support/process.h"

namespace hvd {
namespace {

namespace fs = std::filesystem;

constexpr uid_t kUser = 1000;
constexpr uid_t kOther = 1001;

struct WrittenRow {
  mode_t type;
  uid_t owner;
  nlink_t names;
  uid_t directory_owner;
  mode_t directory_mode;
  bool fine;
};

TEST(FileToWrite, OwnerNamesAndDirectoryDecide) {
  constexpr auto kRows = std::to_array<WrittenRow>({
      // One's own, wherever it lies.
      {S_IFREG, kUser, 1, 0, 01777, true},
      {S_IFREG, kUser, 1, kOther, 0777, true},
      {S_IFREG, 0, 1, 0, 01777, true},
      {S_IFIFO, kUser, 1, 0, 01777, true},
      // Somebody else's, where everybody may have put it.
      {S_IFREG, kOther, 1, 0, 01777, false},
      {S_IFIFO, kOther, 1, 0, 01777, false},
      {S_IFSOCK, kOther, 1, 0, 01777, false},
      {S_IFREG, kOther, 1, kUser, 0777, false},
      // Somebody else's, in their own directory, or in one of a team.
      {S_IFREG, kOther, 1, kOther, 0755, true},
      {S_IFREG, kOther, 1, 0, 02775, true},
      // A second name of another file.
      {S_IFREG, kUser, 2, 0, 01777, false},
      {S_IFREG, 0, 2, kOther, 02775, false},
      {S_IFREG, kUser, 2, kUser, 0755, true},
      // A terminal.
      {S_IFCHR, kOther, 1, 0, 01777, true},
  });
  for (const WrittenRow& row : kRows) {
    struct stat about {};
    about.st_mode = row.type | 0600U;
    about.st_uid = row.owner;
    about.st_nlink = row.names;
    struct stat around {};
    around.st_mode = S_IFDIR | row.directory_mode;
    around.st_uid = row.directory_owner;
    const Status status = check_file_to_write(about, around, kUser, "/x", "events file");
    EXPECT_EQ(status.ok(), row.fine)
        << std::oct << row.type << " in " << row.directory_mode << std::dec << ", owner "
        << row.owner << ", names " << row.names << ": " << status.message();
    EXPECT_EQ(status.code(), row.fine ? Code::ok : Code::failed_precondition);
  }
}

class FileToWriteOnDisk : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (directory_.path() / name).string(); }
  static Status open(const std::string& path, int flags = O_WRONLY | O_CREAT | O_TRUNC) {
    return open_file_to_write(path, {.what = "output file", .flags = flags}).status();
  }
  static std::string content(const std::string& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // A directory in which all may make files, as /tmp.
  void share() { ASSERT_EQ(::chmod(directory_.path().c_str(), 01777), 0); }

  test::TemporaryDirectory directory_;
};

TEST_F(FileToWriteOnDisk, IsMadeWithItsModeAndItsDirectories) {
  EXPECT_EQ(open(path("a")).message(), "");
  EXPECT_EQ(fs::status(path("a")).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(open(path("below/b")).code(), Code::not_found);
  FileToWrite deep{.what = "output file"};
  deep.makes_directories = true;
  EXPECT_EQ(open_file_to_write(path("below/further/b"), deep).status().message(), "");
  EXPECT_EQ(open_file_to_write(path("below/further/b"), deep).status().message(), "");
  EXPECT_TRUE(fs::is_regular_file(path("below/further/b")));
  EXPECT_EQ(open_file_to_write(path("a/b"), deep).status().message(),
            cat("open output file ", path("a/b"), ": Not a directory"));
  EXPECT_EQ(open(path("a"), O_WRONLY | O_CREAT | O_EXCL).code(), Code::already_exists);
  EXPECT_NE(open(directory_.path().string()).code(), Code::ok);
}

TEST_F(FileToWriteOnDisk, ADirectoryIsMadeIfThatIsAskedFor) {
  const auto open_directory = [this](const std::string& name, WhenMissing when_missing) {
    return open_directory_to_write(path(name), "folder", when_missing).status();
  };
  EXPECT_EQ(open_directory("a/b", WhenMissing::fail).code(), Code::not_found);
  EXPECT_EQ(open_directory("a/b", WhenMissing::make).message(), "");
  EXPECT_EQ(open_directory("a/b", WhenMissing::make).message(), "");
  EXPECT_EQ(open_directory("a/b", WhenMissing::fail).message(), "");
  directory_.file("taken", "text");
  EXPECT_NE(open_directory("taken", WhenMissing::make).code(), Code::ok);
}

TEST_F(FileToWriteOnDisk, IsEmptiedOrAppendedTo) {
  directory_.file("a", "text");
  EXPECT_EQ(open(path("a"), O_WRONLY | O_CREAT | O_APPEND).message(), "");
  EXPECT_EQ(content(path("a")), "text");
  EXPECT_EQ(open(path("a")).message(), "");
  EXPECT_EQ(content(path("a")), "");
}

TEST_F(FileToWriteOnDisk, LinksOfOursAreFollowed) {
  directory_.file("a", "text");
  fs::create_symlink("a", path("link"));
  EXPECT_EQ(open(path("link")).message(), "");
  EXPECT_EQ(content(path("a")), "");
  fs::create_symlink("new", path("to_new"));
  EXPECT_EQ(open(path("to_new")).message(), "");
  EXPECT_TRUE(fs::exists(path("new")));
  EXPECT_NE(open(path("link"), O_WRONLY | O_CREAT | O_NOFOLLOW).code(), Code::ok);
  EXPECT_EQ(open(path("link"), O_WRONLY | O_CREAT | O_EXCL).code(), Code::already_exists);
  EXPECT_EQ(open("/dev/null").message(), "");
  EXPECT_EQ(open("/proc/self/fd/2").message(), "");
}

// A link of the stranger's leads to a file that only we may write.
TEST_F(FileToWriteOnDisk, ALinkOfAnotherUserDestroysNothing) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make a link of another user";
  share();
  const auto precious = directory_.file("precious", "text").string();
  ASSERT_TRUE(test::as_other_user({}, [&] {
    return ::symlink(precious.c_str(), path("events").c_str()) == 0 &&
           ::symlink("/", path("folder").c_str()) == 0;
  }));
  EXPECT_EQ(open(path("events")).message(), cat("output file ", path("events"),
                                                " is reached through the link \"events\", which "
                                                "belongs to user 65534; name the file itself"));
  EXPECT_EQ(open(cat(path("folder"), precious)).code(), Code::failed_precondition);
  FileToWrite deep{.what = "output file"};
  deep.makes_directories = true;
  EXPECT_EQ(open_file_to_write(cat(path("folder"), path("made/file")), deep).status().code(),
            Code::failed_precondition);
  EXPECT_EQ(
      open_directory_to_write(cat(path("folder"), path("made/below")), "folder", WhenMissing::make)
          .status()
          .code(),
      Code::failed_precondition);
  EXPECT_FALSE(fs::exists(path("made")));
  EXPECT_EQ(
      write_whole_file(path("events"), "new", WhenThere::replace, {.what = "report"}).message(),
      "");
  EXPECT_EQ(content(path("events")), "new") << "the link itself is replaced";
  EXPECT_EQ(content(precious), "text");
}

TEST_F(FileToWriteOnDisk, AFileOfAnotherUserThatWaitsForUsIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make a file of another user";
  share();
  ASSERT_TRUE(test::as_other_user({}, [&] {
    const UniqueFd planted(::open(path("events").c_str(), O_WRONLY | O_CREAT, 0644));
    return planted && ::write(planted.get(), "theirs", 6) == 6 &&
           ::mkfifo(path("pipe").c_str(), 0666) == 0;
  }));
  EXPECT_EQ(open(path("events")).code(), Code::failed_precondition);
  EXPECT_EQ(content(path("events")), "theirs");
  // Somebody has to read it, or it could not be opened.
  const UniqueFd reader(::open(path("pipe").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  EXPECT_EQ(open(path("pipe"), O_WRONLY | O_CREAT | O_NONBLOCK).code(), Code::failed_precondition);
}

TEST_F(FileToWriteOnDisk, ASecondNameOfAnotherFileIsRefusedWhereOthersMayMakeOne) {
  const auto precious = directory_.file("precious", "text").string();
  ASSERT_EQ(::link(precious.c_str(), path("events").c_str()), 0);
  share();
  EXPECT_EQ(open(path("events")).code(), Code::failed_precondition);
  EXPECT_EQ(content(precious), "text");
  ASSERT_EQ(::chmod(directory_.path().c_str(), 0755), 0);
  EXPECT_EQ(open(path("events")).message(), "");
}

TEST_F(FileToWriteOnDisk, AWholeFileReplacesOrKeepsWhatIsThere) {
  const FileToWrite options{.what = "token file", .is_synced = true};
  EXPECT_EQ(write_whole_file(path("a"), "one", WhenThere::keep, options).message(), "");
  EXPECT_EQ(write_whole_file(path("a"), "two", WhenThere::keep, options).code(),
            Code::already_exists);
  EXPECT_EQ(content(path("a")), "one");
  EXPECT_EQ(write_whole_file(path("a"), "two", WhenThere::replace, options).message(), "");
  EXPECT_EQ(content(path("a")), "two");
  EXPECT_EQ(write_whole_file(path("gone/a"), "x", WhenThere::keep, options).code(),
            Code::not_found);
  fs::create_directory(path("taken"));
  EXPECT_NE(write_whole_file(path("taken"), "x", WhenThere::replace, options).code(), Code::ok);
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_.path()), {}), 2)
      << "nothing else is left";
}

}  // namespace
}  // namespace hvd
