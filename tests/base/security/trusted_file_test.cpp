#include "base/security/trusted_file.h"

#include <array>
#include <fcntl.h>
#include <filesystem>
#include <gtest/gtest.h>
#include <optional>
#include <unistd.h>

#include "base/text.h"
#include "tests/support/other_user.h"
#include "tests/support/process.h"

namespace hvd {
namespace {

constexpr gid_t kGroup = 2000;  // such as fsGroup

struct Row {
  FileTrust trust;
  uid_t user;
  uid_t owner;
  mode_t mode;
  bool in_group;
  bool fine;
};

// Of every kind of file: its own user, root, somebody else; what others may do with it.
TEST(TrustedFile, OwnerModeAndGroupDecide) {
  using enum FileTrust;
  constexpr auto kRows = std::to_array<Row>({
      {secret, 1000, 1000, 0600, false, true},
      {secret, 1000, 1000, 0400, false, true},
      {secret, 1000, 1000, 0640, true, false},
      {secret, 1000, 1000, 0604, false, false},
      {secret, 1000, 1000, 0602, false, false},
      {secret, 1000, 1001, 0600, false, false},
      {secret, 1000, 0, 0600, false, true},
      {secret, 0, 0, 0600, false, true},
      {secret, 0, 1000, 0600, false, false},
      // A Secret mounted with fsGroup.
      {secret, 1000, 0, 0440, true, true},
      {secret, 0, 0, 0440, true, true},
      {secret, 1000, 0, 0440, false, false},
      {secret, 1000, 0, 0444, true, false},
      {secret, 1000, 0, 0460, true, false},
      {secret, 1000, 0, 0640, true, true},
      {secret, 1000, 0, 0640, false, false},
      {secret, 1000, 0, 0450, true, false},
      {secret, 1000, 0, 0441, true, false},
      {secret, 1000, 0, 0442, true, false},
      {secret, 1000, 0, 0400, true, true},
      {secret, 1000, 1000, 0440, true, false},
      {secret, 1000, 1001, 0440, true, false},
      {private_key, 1000, 1000, 0600, false, true},
      {private_key, 1000, 1000, 0640, false, false},
      {private_key, 1000, 0, 0440, true, true},
      {private_key, 1000, 0, 0464, true, false},
      {private_key, 0, 0, 0644, false, false},
      {private_key, 0, 1000, 0600, false, false},
      {known_hosts, 1000, 1000, 0664, false, true},
      {known_hosts, 1000, 1000, 0666, false, false},
      {known_hosts, 1000, 0, 0644, false, true},
      {known_hosts, 1000, 1001, 0644, false, false},
      {configuration, 1000, 1000, 0644, false, true},
      {configuration, 1000, 1000, 0664, false, false},
      {configuration, 1000, 0, 0644, false, true},
      {configuration, 0, 1000, 0600, false, false},
  });
  for (const Row& row : kRows) {
    struct stat about {};
    about.st_mode = S_IFREG | row.mode;
    about.st_uid = row.owner;
    about.st_gid = kGroup;
    const FileUser user{row.user, row.in_group ? std::vector<gid_t>{kGroup} : std::vector<gid_t>{},
                        std::nullopt};
    const Status status =
        check_trusted_file(about, user, "/x", "token file", row.trust, FileKind::regular);
    EXPECT_EQ(status.ok(), row.fine)
        << "trust " << static_cast<int>(row.trust) << ", user " << row.user << ", owner "
        << row.owner << ", mode " << std::oct << row.mode << ": " << status.message();
    EXPECT_EQ(status.code(), row.fine ? Code::ok : Code::failed_precondition);
  }
}

// With umask 002 the group may write a file.
TEST(TrustedFile, AGroupWithoutOtherMembersMayWriteAConfigurationAndNothingSecret) {
  const auto error = [](FileTrust trust, mode_t mode, std::optional<gid_t> own_group) {
    struct stat about {};
    about.st_mode = S_IFREG | mode;
    about.st_uid = 1000;
    about.st_gid = kGroup;
    return check_trusted_file(about, {1000, {kGroup}, own_group}, "/x", "file", trust,
                              FileKind::regular)
        .message();
  };
  EXPECT_EQ(error(FileTrust::configuration, 0664, kGroup), "");
  EXPECT_EQ(error(FileTrust::configuration, 0664, {}),
            "file /x can be written by others than its owner; run: chmod go-w /x");
  EXPECT_NE(error(FileTrust::configuration, 0664, kGroup + 1), "");
  EXPECT_NE(error(FileTrust::configuration, 0666, kGroup), "");
  EXPECT_NE(error(FileTrust::secret, 0660, kGroup), "");
  EXPECT_NE(error(FileTrust::private_key, 0660, kGroup), "");
}

// Root's own group holds many a daemon that is not root.
TEST(TrustedFile, RootsGroupSharesNoSecret) {
  struct stat about {};
  about.st_mode = S_IFREG | 0440;
  const FileUser user{1000, {0}, std::nullopt};
  const Status status =
      check_trusted_file(about, user, "/x", "token file", FileTrust::secret, FileKind::regular);
  EXPECT_EQ(status.code(), Code::failed_precondition) << status.message();
}

TEST(TrustedFile, TheErrorSaysWhatIsWrongAndWhatHelps) {
  const auto error = [](uid_t owner, mode_t mode, const std::vector<gid_t>& groups) {
    struct stat about {};
    about.st_mode = S_IFREG | mode;
    about.st_uid = owner;
    about.st_gid = kGroup;
    return check_trusted_file(about, {1000, groups, std::nullopt}, "/token", "token file",
                              FileTrust::secret, FileKind::regular)
        .message();
  };
  EXPECT_EQ(error(1000, 0644, {}),
            "token file /token can be used by others than its owner; run: chmod 600 /token");
  EXPECT_EQ(error(0, 0440, {3000}),
            "token file /token is readable for group 2000, to which this process (user 1000) does "
            "not belong; run it with that group (in Kubernetes: fsGroup)");
  EXPECT_EQ(error(0, 0444, {kGroup}),
            "token file /token belongs to root and has mode 0444, but others may use it at most "
            "through its group, and only for reading; run: chmod 440 /token (in Kubernetes: "
            "defaultMode 0400 and fsGroup)");
}

class TrustedFileOnDisk : public testing::Test {
 protected:
  std::string place(const std::string& name, mode_t mode = 0600) {
    auto path = directory_.file(name, "text").string();
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);
    return path;
  }
  std::string link(const std::string& name, const std::string& target) {
    auto path = (directory_.path() / name).string();
    EXPECT_EQ(::symlink(target.c_str(), path.c_str()), 0);
    return path;
  }
  static Code open(const std::string& path) {
    return open_trusted_file(path, "token file", FileTrust::secret).status().code();
  }

  test::TemporaryDirectory directory_;
};

TEST_F(TrustedFileOnDisk, LinksOfOursAreFollowed) {
  const auto file = place("file");
  EXPECT_EQ(open(file), Code::ok);
  EXPECT_EQ(open(link("absolute", file)), Code::ok);
  EXPECT_EQ(open(link("relative", "./file")), Code::ok);
  std::filesystem::create_directory(directory_.path() / "below");
  EXPECT_EQ(open(link("below/up", "../relative")), Code::ok);
  EXPECT_EQ(open(directory_.path() / "below/../below/up"), Code::ok);
  EXPECT_EQ(open(link("gone", "nothing")), Code::not_found);
  EXPECT_NE(open(link("loop", "loop")), Code::ok);
  EXPECT_EQ(open(directory_.path()), Code::invalid_argument);
  // As a shell gives with <(...).
  const UniqueFd held(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(open(cat("/proc/self/fd/", held.get())), Code::ok);
  const auto fifo = (directory_.path() / "pipe").string();
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(open(fifo), Code::invalid_argument) << "and nobody waits for a writer";
  const auto open_or_null = [](const std::string& path) {
    return open_trusted_file(path, "file", FileTrust::known_hosts, FileKind::regular_or_null)
        .status()
        .code();
  };
  EXPECT_EQ(open_or_null(fifo), Code::invalid_argument);
  EXPECT_EQ(open_or_null("/dev/zero"), Code::invalid_argument);
  EXPECT_EQ(open_or_null("/dev/null"), Code::ok);
  EXPECT_EQ(open("/dev/null"), Code::invalid_argument);
}

TEST_F(TrustedFileOnDisk, ALinkInADirectoryThatEverybodyMayWriteHasToLieInASticky) {
  const auto file = place("file");
  const auto path = link("link", file);
  ASSERT_EQ(::chmod(directory_.path().c_str(), 0777), 0);
  EXPECT_EQ(open(path), Code::failed_precondition);
  EXPECT_EQ(open(file), Code::ok) << "the file itself is ours, wherever it lies";
  ASSERT_EQ(::chmod(directory_.path().c_str(), 01777), 0);
  EXPECT_EQ(open(path), Code::ok);
}

TEST_F(TrustedFileOnDisk, FilesAndLinksOfAnotherUserAreRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make a file of another user";
  const auto file = place("file");
  ASSERT_EQ(::chmod(directory_.path().c_str(), 01777), 0);
  const auto own = place("own");
  std::filesystem::path theirs = directory_.path() / "theirs";
  const bool made = test::as_other_user({}, [&] {
    const UniqueFd planted(
        ::open((directory_.path() / "planted").c_str(), O_WRONLY | O_CREAT, 0600));
    return planted && ::symlink(own.c_str(), (directory_.path() / "link").c_str()) == 0 &&
           ::mkdir(theirs.c_str(), 0755) == 0;
  });
  ASSERT_TRUE(made);
  EXPECT_EQ(open(directory_.path() / "planted"), Code::failed_precondition);
  EXPECT_EQ(open(directory_.path() / "link"), Code::failed_precondition);
  // A link of ours in their directory may be gone in a moment.
  EXPECT_EQ(open(link("theirs/ours", own)), Code::failed_precondition);
  EXPECT_EQ(open(own), Code::ok);
}

// /var/run/secrets/token -> ..data/token, ..data -> ..2026_01_01, all root's, and its group reads.
TEST_F(TrustedFileOnDisk, ASecretThatKubernetesHasMountedIsTaken) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can share a file with a group";
  ASSERT_EQ(::chmod(directory_.path().c_str(), 0755), 0);
  const auto mount = directory_.path() / "mount";
  std::filesystem::create_directories(mount / "..2026_01_01");
  place("mount/..2026_01_01/token", 0440);
  ASSERT_EQ(::chown((mount / "..2026_01_01/token").c_str(), 0, kGroup), 0);
  ASSERT_EQ(::chown(mount.c_str(), 0, kGroup), 0);
  ASSERT_EQ(::chmod(mount.c_str(), 03777), 0);
  link("mount/..data", "..2026_01_01");
  const auto token = link("mount/token", "..data/token");
  EXPECT_TRUE(test::as_other_user({kGroup}, [&] { return open(token) == Code::ok; }));
  EXPECT_TRUE(test::as_other_user({}, [&] { return open(token) == Code::permission_denied; }));
  EXPECT_TRUE(test::as_other_user({}, [&] {
    const auto refused = open_trusted_file(token, "token file", FileTrust::secret);
    return refused.status().message() ==
           cat("token file ", token, " is readable for group ", kGroup,
               ", to which this process (user ", test::kOtherUser,
               ") does not belong; run it with that group (in Kubernetes: fsGroup)");
  }));
}

}  // namespace
}  // namespace hvd
