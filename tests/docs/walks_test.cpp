// Runs the commands of docs/getting_started.md and then docs/questions.md, and those of
// docs/libtorch.md, on two pretend hosts: a reader of the documents gets from a build to an elastic
// job, and to the answers about it.
#include <chrono>
#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/many_hosts/many_hosts_test.h"
#include "tests/support/pages.h"

namespace hvd::test {
namespace {

namespace fs = std::filesystem;

class Walks : public ManyHostsTest {
 protected:
  void SetUp() override {
    ManyHostsTest::SetUp();
    make_bed({.hosts = 2});
    // Stands for the clone, which the page builds into build/release.
    fs::create_directory(clone() / "build");
    fs::create_directory_symlink(HVD_BUILD_DIR, clone() / "build" / "release");
    fs::copy(HVD_SOURCE_DIR "/examples", clone() / "examples", fs::copy_options::recursive);
  }

  const fs::path& clone() const { return clone_.path(); }

  // Runs the commands of a page on the head, in the clone, and expects these texts.
  void follow(const std::string& page, const std::vector<std::string>& expected,
              const std::string& commands_before = "") {
    const auto commands = commands_of(fs::path(HVD_SOURCE_DIR) / "docs" / page);
    ProcessOptions options;
    options.environment = {{"HVD_RUNTIME_DIR", own_.path() / "jobs"},
                           {"HVD_EVENTS_DIR", own_.path() / "state"}};
    const auto walk = bed().head().start(
        {"bash", "-c", cat("set -eux\ncd ", clone().string(), "\n", commands_before, commands)},
        options);
    const ExitStatus end = walk->wait(std::chrono::minutes(8));
    EXPECT_EQ(end.code, 0) << end.out << end.err;
    for (const auto& text : expected) {
      EXPECT_NE(end.out.find(text), std::string::npos) << text << " is not in\n" << end.out;
    }
  }

 private:
  TemporaryDirectory own_;
  TemporaryDirectory clone_;
};

TEST_F(Walks, NightlyLeadFromABuildToTheAnswersAboutAJob) {
  // It compiles two programs, and trains for 20 s.
  follow("getting_started.md",
         {"[0]<stdout>:rank 0 of 2: the average is 1.5\n",
          "[1]<stdout>:rank 1 of 2: the average is 1.5\n",
          "[3]<stdout>:rank 3 of 4: the average is 2.5\n", "[0]<stdout>:step 2000, weight 2000\n",
          "[0]<stdout>:step 100, weight 100\n"});
  if (HasFailure()) return;

  follow("questions.md",
         {"at least 3 workers needed, 2 slots are ready on 1 of 1 host",
          "works at: ", "until hvdrun announced the new one, ",
          "slow: rank 2 on h2#0: ", "the job ended with 3\n",
          "hvdrun: the job has failed: rank 1 on h2#0 ", "    no such file: data\n",
          "1     h2#0    ", "waits for other ranks for ", "rank 1 on h2#0 has not asked for "});
}

TEST_F(Walks, NightlyLeadToJobsWithLibTorch) {
#ifdef HVD_HAS_LIBTORCH
  follow("libtorch.md", {"[0]<stdout>:epoch 2: ", "was killed by SIGKILL", "[0]<stdout>:epoch 3: "},
         "cmake --install build/release --prefix ~/hvd\n");
#else
  GTEST_SKIP() << "there is no LibTorch here";
#endif
}

}  // namespace
}  // namespace hvd::test
