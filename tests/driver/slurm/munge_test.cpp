// The job's token on its way to an agent that srun starts: sealed with MUNGE, by a real munged.
#include "base/security/munge.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <memory>
#include <unistd.h>

#include "base/security/random.h"
#include "base/text.h"
#include "tests/support/other_user.h"
#include "tests/support/process.h"

namespace hvd::test {
namespace {

constexpr const char* kDaemon = "/usr/sbin/munged";

class SealedToken : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
    if (!std::filesystem::exists(kDaemon)) GTEST_SKIP() << kDaemon << " is not installed";

    // Every user of a node reaches its munged.
    std::filesystem::permissions(directory_.path(), std::filesystem::perms{0711});
    std::string key(128, '\0');
    fill_random(key.data(), key.size());
    const auto key_file = directory_.file("key", key);
    std::filesystem::permissions(key_file, std::filesystem::perms{0400});
    const auto option = [this](const char* name, const char* file) {
      return cat(name, (directory_.path() / file).string());
    };
    daemon_ = std::make_unique<Process>(
        std::vector<std::string>{kDaemon, "--foreground", "--force", option("--key-file=", "key"),
                                 option("--socket=", "socket"), option("--pid-file=", "pid"),
                                 option("--log-file=", "log"), option("--seed-file=", "seed")});

    const Status sealed = seal_with_munge("x", socket()).status();
    if (sealed.code() == Code::failed_precondition) GTEST_SKIP() << sealed.message();
    ASSERT_TRUE(eventually([this] { return seal_with_munge("x", socket()).ok(); }))
        << daemon_->err();
  }
  std::string socket() const { return directory_.path() / "socket"; }

 private:
  TemporaryDirectory directory_;
  std::unique_ptr<Process> daemon_;
};

TEST_F(SealedToken, IsForItsOwnUserAlone) {
  const auto sealed = seal_with_munge("the token", socket());
  ASSERT_TRUE(sealed.ok()) << sealed.status().to_string();
  const auto opened = open_sealed_with_munge(*sealed);
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  EXPECT_EQ(*opened, "the token");

  EXPECT_TRUE(as_other_user({}, [&sealed] {
    const auto stolen = open_sealed_with_munge(*sealed);
    return !stolen.ok() && stolen.status().message().find("Unauthorized") != std::string::npos;
  }));
}

// The agent would let in whoever knows that token.
TEST_F(SealedToken, OfAnotherUserIsRefused) {
  const ExitStatus planted = run({"setpriv", cat("--reuid=", kOtherUser), "--clear-groups", "munge",
                                  cat("--socket=", socket()), "--string=another token"});
  ASSERT_EQ(planted.code, 0) << planted.err;
  const auto opened = open_sealed_with_munge(cat("munge,", socket(), ",", trim(planted.out)));
  EXPECT_EQ(opened.status().code(), Code::permission_denied) << opened.status().to_string();
  EXPECT_NE(opened.status().message().find(cat("user ", kOtherUser, " has sealed this secret")),
            std::string::npos)
      << opened.status().message();
}

}  // namespace
}  // namespace hvd::test
