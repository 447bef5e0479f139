// Builds Debian's packages from this build, installs them where nothing else of hvd is, and does
// there what docs/packages.md says.
#include <filesystem>
#include <gtest/gtest.h>
#include <string>

#include "base/text.h"
#include "tests/support/pages.h"
#include "tests/support/texts.h"
#include "tests/testbed/hosts.h"

namespace hvd::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolder = HVD_SOURCE_DIR "/tests/packaging";

ExitStatus expect_success(const std::vector<std::string>& command) {
  ExitStatus end = run(command, {}, std::chrono::minutes(4));
  EXPECT_EQ(end.code, 0) << join(command, " ") << "\n" << end.out << end.err;
  return end;
}

class PackagesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto reason = HostBed::why_impossible()) GTEST_SKIP() << *reason;
    for (const char* const program :
         {"dpkg-shlibdeps", "lintian", "file", "man", "systemd-analyze"}) {
      if (run({"sh", "-c", cat("command -v ", program)}).code == 0) continue;
      GTEST_SKIP() << "the program " << program << " is missing: scripts/setup installs it";
    }
    packages_ = clone() / "build" / "packages";
    fs::create_directories(packages_);
    fs::copy(HVD_SOURCE_DIR "/examples", clone() / "examples", fs::copy_options::recursive);
    fs::copy(std::string(kFolder) + "/consumer", clone() / "consumer");
  }

  fs::path clone() const { return directory_.path() / "clone"; }

  std::string field(const std::string& package, const std::string& name) const {
    for (const auto& file : fs::directory_iterator(packages_)) {
      if (!file.path().filename().string().starts_with(package + "_")) continue;
      return expect_success({"dpkg-deb", "--field", file.path(), name}).out;
    }
    ADD_FAILURE() << "there is no package " << package;
    return {};
  }

  ExitStatus run_in_bare_root(const std::string& script) const {
    return run({"unshare", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child",
                "sh", std::string(kFolder) + "/bare_root.sh", directory_.path(), HVD_SOURCE_DIR,
                HVD_BUILD_DIR, "--", script},
               {}, std::chrono::minutes(4));
  }

  fs::path packages_;

 private:
  TemporaryDirectory directory_;
};

// One test, since the packages are built once.
TEST_F(PackagesTest, NightlyTheyDoWhatThePageSaysWhereNothingElseOfHvdIs) {
  expect_success({HVD_SOURCE_DIR "/scripts/package", HVD_BUILD_DIR, packages_});

  // NCCL is in no other package than that of the module.
  EXPECT_TRUE(contains(field("libhvd-dev", "Depends"), "libhvd0 (= " HVD_PROJECT_VERSION "-"));
  for (const char* const package : {"hvd", "libhvd0", "libhvd-dev"}) {
    const auto depends = field(package, "Depends");
    EXPECT_FALSE(contains(depends, "nccl") || contains(depends, "cuda")) << depends;
  }
  EXPECT_TRUE(contains(field("libhvd0", "Depends"), "libgloo0"));
  EXPECT_FALSE(contains(field("hvd", "Depends"), "libgloo0"));

  const auto page = commands_of(HVD_SOURCE_DIR "/docs/packages.md");
  const auto removal = page.find("apt-get purge");
  ASSERT_NE(removal, std::string::npos);
  const std::string list = "find /usr /etc /var/lib/dpkg/info -name '*hvd*' | sort";
  const auto end =
      run_in_bare_root(cat(list, " >before\n! command -v hvdrun\n", page.substr(0, removal),
                           read_file(std::string(kFolder) + "/installed.sh"), page.substr(removal),
                           list, " >after\ndiff before after\n"));

  EXPECT_EQ(end.code, 0) << end.out << end.err;
  for (const char* const expected :
       {"hvdrun " HVD_PROJECT_VERSION " (build ", "[1]<stdout>:rank 1 of 2: the average is 1.5\n",
        "[1]<stdout>:consumer 1 of 2\n", "[0]<stdout>:as alice\n",
        "libhvd0 (>= " HVD_PROJECT_VERSION "), libhvd0 (<< "}) {
    EXPECT_TRUE(contains(end.out, expected)) << expected << " is not in\n" << end.out << end.err;
  }
}

}  // namespace
}  // namespace hvd::test
