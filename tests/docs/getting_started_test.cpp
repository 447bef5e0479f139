// Does what docs/getting_started.md says, on two pretend hosts: somebody who has only the documents
// gets from a build to an elastic job.
#include <chrono>
#include <filesystem>
#include <gtest/gtest.h>
#include <string>

#include "base/text.h"
#include "tests/many_hosts/many_hosts_test.h"
#include "tests/support/pages.h"

namespace hvd::test {
namespace {

namespace fs = std::filesystem;

class GettingStarted : public ManyHostsTest {};

TEST_F(GettingStarted, LeadsFromABuildToAnElasticJobOnTwoHosts) {
  make_bed({.hosts = 2});
  // Stands for the clone, which the page builds into build/release.
  const TemporaryDirectory clone;
  fs::create_directory(clone.path() / "build");
  fs::create_directory_symlink(HVD_BUILD_DIR, clone.path() / "build" / "release");
  fs::copy(HVD_SOURCE_DIR "/examples", clone.path() / "examples", fs::copy_options::recursive);

  const auto commands = commands_of(HVD_SOURCE_DIR "/docs/getting_started.md");
  // It compiles two programs, and trains for 20 s.
  const auto walk = bed().head().start(
      {"bash", "-c", cat("set -eux\ncd ", clone.path().string(), "\n", commands)});
  const ExitStatus end = walk->wait(std::chrono::minutes(4));

  EXPECT_EQ(end.code, 0) << end.out << end.err;
  for (const char* const expected :
       {"[0]<stdout>:rank 0 of 2: the average is 1.5\n",
        "[1]<stdout>:rank 1 of 2: the average is 1.5\n",
        "[3]<stdout>:rank 3 of 4: the average is 2.5\n", "[0]<stdout>:step 2000, weight 2000\n",
        "[0]<stdout>:step 100, weight 100\n"}) {
    EXPECT_NE(end.out.find(expected), std::string::npos) << expected << " is not in\n" << end.out;
  }
}

}  // namespace
}  // namespace hvd::test
