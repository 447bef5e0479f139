// The directory in which a job is kept for the hvdrun that comes next (--state).
#include "driver/journal/state_directory.h"

#include <atomic>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "base/versions.h"
#include "tests/support/other_user.h"
#include "tests/support/process.h"

namespace hvd::driver {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

class StateDirectoryTest : public testing::Test {
 protected:
  std::string path() const { return parent_.path() / "state"; }
  std::string job_file() const { return path() + "/job.json"; }
  StateDirectory opened() const {
    auto directory = StateDirectory::open(path(), false);
    EXPECT_TRUE(directory.ok()) << directory.status().to_string();
    return *std::move(directory);
  }
  static KeptJob job() { return {"a6cca56365eafafb", Token::random(), 1}; }
  static Json valid() {
    return {{"schema", 1},         {"job", "a6cca56365eafafb"},
            {"build", build_id()}, {"key", std::string(64, '7')},
            {"epoch", 4},          {"machine", "somewhere"}};
  }
  // The file of a job that was left, as somebody has written it.
  void leave(const std::string& text) const {
    std::ofstream(job_file(), std::ios::trunc) << text;
    fs::permissions(job_file(), fs::perms::owner_read | fs::perms::owner_write);
  }
  static mode_t mode_of(const std::string& file) {
    struct stat about {};
    EXPECT_EQ(::lstat(file.c_str(), &about), 0) << file;
    return about.st_mode & 07777U;
  }

 private:
  test::TemporaryDirectory parent_;
};

TEST_F(StateDirectoryTest, IsTheUsersAloneAndSoIsWhatItHolds) {
  auto directory = opened();
  ASSERT_TRUE(directory.keep(job()).ok());
  EXPECT_EQ(mode_of(path()), 0700U);
  EXPECT_EQ(mode_of(path() + "/lock"), 0600U);
  EXPECT_EQ(mode_of(job_file()), 0600U);
}

// On storage that machines share the lock may have gone over to another one.
TEST_F(StateDirectoryTest, ADriverSeesThatAnotherOneHasTakenItsPlace) {
  auto directory = opened();
  KeptJob kept = job();
  ASSERT_TRUE(directory.keep(kept).ok());
  EXPECT_TRUE(directory.is_ours());
  fs::remove(path() + "/lock");
  auto next = opened();
  EXPECT_TRUE(directory.is_ours());
  kept.epoch = 2;
  ASSERT_TRUE(next.keep(kept).ok());
  EXPECT_FALSE(directory.is_ours());
  EXPECT_TRUE(next.is_ours());
}

TEST_F(StateDirectoryTest, JoinTokensAreKeptWithTheirJob) {
  auto directory = opened();
  KeptJob kept = job();
  ASSERT_TRUE(directory.keep(kept).ok());
  EXPECT_EQ(*directory.join_tokens(), "");
  const std::string text(100'000, '7');
  ASSERT_TRUE(directory.keep_join_tokens(text).ok());
  EXPECT_EQ(mode_of(directory.tokens_file()), 0600U);
  kept.epoch = 2;
  ASSERT_TRUE(directory.keep(kept).ok());
  EXPECT_EQ(*directory.join_tokens(), text + "\n");
  ASSERT_TRUE(directory.keep(job()).ok());
  EXPECT_EQ(*directory.join_tokens(), "") << "another job has others";

  ASSERT_TRUE(directory.keep_join_tokens(text).ok());
  directory.forget();
  EXPECT_FALSE(fs::exists(directory.tokens_file()));
}

TEST_F(StateDirectoryTest, EachDriverOfAJobHasAGreaterEpoch) {
  const KeptJob first = job();
  {
    auto directory = opened();
    const auto left = directory.left();
    ASSERT_TRUE(left.ok()) << left.status().to_string();
    EXPECT_FALSE(*left);
    ASSERT_TRUE(directory.keep(first).ok());
  }
  for (std::uint64_t epoch = 2; epoch < 5; ++epoch) {
    auto directory = opened();
    const auto left = directory.left();
    ASSERT_TRUE(left.ok()) << left.status().to_string();
    ASSERT_TRUE(*left);
    EXPECT_EQ((*left)->id, first.id);
    EXPECT_EQ(to_hex((*left)->key.bytes()), to_hex(first.key.bytes()));
    EXPECT_EQ((*left)->epoch, epoch);
    ASSERT_TRUE(directory.keep(**left).ok());
  }
}

TEST_F(StateDirectoryTest, TheNextDriverKnowsThatThereWereCommits) {
  KeptJob first = job();
  {
    auto directory = opened();
    ASSERT_TRUE(directory.keep(first).ok());
    EXPECT_EQ(directory.commit(), "");
    directory.keep_commit("3.17");
    directory.keep_commit("4.2.1");
  }
  auto directory = opened();
  first.epoch = 2;
  ASSERT_TRUE(directory.keep(first).ok());
  EXPECT_EQ(directory.commit(), "4.2.1");
  // Another job has none, though the file of this one were still there.
  first.epoch = 1;
  ASSERT_TRUE(directory.keep(first).ok());
  EXPECT_EQ(directory.commit(), "");
}

// A driver that has looked, and ended before it could do anything, counts for nothing.
TEST_F(StateDirectoryTest, AnEpochIsTakenOnlyByWhoKeepsTheJob) {
  auto directory = opened();
  ASSERT_TRUE(directory.keep(job()).ok());
  EXPECT_EQ((*directory.left())->epoch, 2U);
  EXPECT_EQ((*directory.left())->epoch, 2U);
}

TEST_F(StateDirectoryTest, AJobThatIsOverIsForgotten) {
  auto directory = opened();
  directory.forget();
  ASSERT_TRUE(directory.keep(job()).ok());
  directory.forget();
  const auto left = directory.left();
  ASSERT_TRUE(left.ok()) << left.status().to_string();
  EXPECT_FALSE(*left);
}

TEST_F(StateDirectoryTest, OneOfTwoHasIt) {
  auto first = StateDirectory::open(path(), false);
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  const auto second = StateDirectory::open(path(), false);
  EXPECT_EQ(second.status().code(), Code::unavailable);
  EXPECT_NE(second.status().message().find("is in use: another hvdrun drives the job"),
            std::string::npos)
      << second.status().message();
  first = Status(Code::unavailable, "closed");
  EXPECT_TRUE(StateDirectory::open(path(), false).ok());
}

TEST_F(StateDirectoryTest, WhoWaitsHasItWhenTheOtherHasEnded) {
  auto first = StateDirectory::open(path(), false);
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  std::atomic<bool> has_it = false;
  std::thread waits([&] { has_it = StateDirectory::open(path(), true).ok(); });
  // The kernel lists those that wait for a lock: "1: -> FLOCK  ADVISORY  WRITE 7 fe:00:23 0 EOF".
  struct stat about {};
  ASSERT_EQ(::stat((path() + "/lock").c_str(), &about), 0);
  EXPECT_TRUE(test::eventually([inode = cat(":", about.st_ino, " ")] {
    std::istringstream locks(test::read_file("/proc/locks"));
    for (std::string line; std::getline(locks, line);) {
      if (line.find("-> FLOCK") != std::string::npos && line.find(inode) != std::string::npos) {
        return true;
      }
    }
    return false;
  }));
  EXPECT_FALSE(has_it);
  first = Status(Code::unavailable, "closed");
  waits.join();
  EXPECT_TRUE(has_it);
}

// A fork of hvdrun, such as a discovery script or an agent, must not hold the lock when that dies.
TEST_F(StateDirectoryTest, NoChildOfItsProcessHasTheLock) {
  auto directory = opened();
  const test::Process child({"sleep", "1000"});
  std::error_code unknown;
  for (const auto& fd : fs::directory_iterator(cat("/proc/", child.pid(), "/fd"))) {
    EXPECT_NE(fs::read_symlink(fd, unknown), path() + "/lock");
  }
}

TEST_F(StateDirectoryTest, OneThatIsOpenToOthersIsRefused) {
  for (const mode_t mode : {0750U, 0701U, 0777U, 01777U}) {
    fs::remove_all(path());
    ASSERT_EQ(::mkdir(path().c_str(), 0700), 0);
    ASSERT_EQ(::chmod(path().c_str(), mode), 0);
    const auto directory = StateDirectory::open(path(), false);
    EXPECT_EQ(directory.status().code(), Code::failed_precondition) << mode;
    EXPECT_NE(directory.status().message().find("closed to others (mode 0700); --state names"),
              std::string::npos)
        << directory.status().message();
    EXPECT_FALSE(fs::exists(path() + "/lock"));
  }
}

TEST_F(StateDirectoryTest, ALinkAFileOrSomebodyElsesDirectoryIsRefused) {
  ASSERT_EQ(::mkdir((path() + "-real").c_str(), 0700), 0);
  fs::create_directory_symlink(path() + "-real", path());
  EXPECT_EQ(StateDirectory::open(path(), false).status().code(), Code::failed_precondition);
  fs::remove(path());
  std::ofstream(path()) << "a file";
  EXPECT_EQ(StateDirectory::open(path(), false).status().code(), Code::failed_precondition);
  fs::remove(path());
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a directory away";
  ASSERT_EQ(::mkdir(path().c_str(), 0700), 0);
  ASSERT_EQ(::chown(path().c_str(), test::kOtherUser, test::kOtherUser), 0);
  EXPECT_EQ(StateDirectory::open(path(), false).status().code(), Code::failed_precondition);
}

TEST_F(StateDirectoryTest, WithoutParentIsAnErrorThatNamesIt) {
  const auto directory = StateDirectory::open(path() + "/state", false);
  ASSERT_FALSE(directory.ok());
  EXPECT_NE(directory.status().message().find(path()), std::string::npos)
      << directory.status().message();
}

TEST_F(StateDirectoryTest, AJobFileThatOthersCouldReadOrHaveWrittenIsRefused) {
  auto directory = opened();
  for (const mode_t mode : {0640U, 0604U, 0602U}) {
    leave(valid().dump());
    ASSERT_EQ(::chmod(job_file().c_str(), mode), 0);
    const auto left = directory.left();
    EXPECT_EQ(left.status().code(), Code::failed_precondition) << mode;
    EXPECT_NE(left.status().message().find("can be used by others than its owner"),
              std::string::npos)
        << left.status().message();
  }
  fs::remove(job_file());
  ASSERT_EQ(::mkfifo(job_file().c_str(), 0600), 0);
  EXPECT_NE(directory.left().status().message().find("is not a regular file"), std::string::npos);

  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  fs::remove(job_file());
  leave(valid().dump());
  ASSERT_EQ(::chown(job_file().c_str(), test::kOtherUser, test::kOtherUser), 0);
  EXPECT_EQ(directory.left().status().code(), Code::failed_precondition);
  // Nor does a link of somebody else lead to one of ours.
  fs::rename(job_file(), path() + "/elsewhere");
  ASSERT_EQ(::chown((path() + "/elsewhere").c_str(), 0, 0), 0);
  fs::create_symlink("elsewhere", job_file());
  ASSERT_EQ(::lchown(job_file().c_str(), test::kOtherUser, test::kOtherUser), 0);
  EXPECT_EQ(directory.left().status().code(), Code::failed_precondition);
}

// What keep() puts in its place is a file of its own: what a link leads to stays as it is.
TEST_F(StateDirectoryTest, AJobIsNotWrittenThroughALink) {
  auto directory = opened();
  std::ofstream(path() + "/elsewhere") << "precious";
  fs::create_symlink("elsewhere", job_file());
  ASSERT_TRUE(directory.keep(job()).ok());
  EXPECT_EQ(test::read_file(path() + "/elsewhere"), "precious");
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(job_file())));
}

TEST_F(StateDirectoryTest, ADamagedJobFileIsNamedWithWhatIsWrong) {
  auto directory = opened();
  const auto changed = [](const char* field, const Json& value) {
    Json json = valid();
    json[field] = value;
    return json.dump();
  };
  const std::string not_it = "it is not the file of a job that was left";
  std::vector<std::pair<std::string, std::string>> cases{
      {"", not_it},
      {"hello", not_it},
      {"[]", not_it},
      {"7", not_it},
      {valid().dump() + "}", not_it},
      {std::string(5'000, ' ') + valid().dump(), not_it},
      {std::string(4'000, '['), not_it},
      {changed("schema", "1"), not_it},
      {changed("schema", -1), not_it},
      {changed("schema", 2), "it is of schema 2; this hvdrun reads schema 1"},
      {changed("epoch", -4), not_it},
      {changed("epoch", 1.5), not_it},
      {changed("job", 7), not_it},
      {changed("job", "../../etc/passw"), "is no number of a job"},
      {changed("job", "a6cca56365eafaf"), "is no number of a job"},
      {changed("job", "A6CCA56365EAFAFB"), "is no number of a job"},
      {changed("key", Json::array()), not_it},
      {changed("key", std::string(63, '7')), "a token is 64 hexadecimal digits"},
      {changed("key", std::string(64, 'x')), "a token is 64 hexadecimal digits"},
      {changed("build", nullptr), not_it},
      {changed("build", "older\n1"), "its job runs with hvd \"older\\n1\", and this is hvd "},
  };
  for (const char* const field : {"schema", "job", "key", "epoch", "build", "machine"}) {
    Json json = valid();
    json.erase(field);
    cases.emplace_back(json.dump(), not_it);
  }
  for (const auto& [text, error] : cases) {
    leave(text);
    const auto left = directory.left();
    ASSERT_FALSE(left.ok()) << text;
    const std::string message = left.status().message();
    EXPECT_TRUE(message.starts_with(job_file() + " (without that file a new job begins): "))
        << message;
    EXPECT_NE(message.find(error), std::string::npos) << text << "\n" << message;
    EXPECT_EQ(message.find(std::string(63, '7')), std::string::npos) << "the key is shown";
  }
}

// A power cut or a full disk may have left any part of it.
TEST_F(StateDirectoryTest, AJobFileMayBeCutAnywhere) {
  auto directory = opened();
  const std::string text = valid().dump();
  for (std::size_t size = 0; size < text.size(); ++size) {
    leave(text.substr(0, size));
    EXPECT_EQ(directory.left().status().code(), Code::data_loss) << size;
  }
  leave(text);
  EXPECT_EQ((*directory.left())->epoch, 5U);
}

}  // namespace
}  // namespace hvd::driver
