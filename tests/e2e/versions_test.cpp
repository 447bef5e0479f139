// Programs that are linked with another build of hvd than the hvdrun that starts them, or than the
// other workers of their job.
#include "base/versions.h"

#include "base/text.h"
#include "tests/e2e/job_test.h"

namespace hvd::test {
namespace {

class VersionsTest : public JobTest {
 protected:
  void expect_in(const std::string& text, const Words& parts) {
    for (const auto& part : parts) {
      EXPECT_NE(text.find(part), std::string::npos) << '"' << part << "\" is not in:\n" << text;
    }
  }
  // Slot 0 runs `first`, slot 1 `second`.
  Words both(const std::string& first, const std::string& second) const {
    return {"sh", "-c",
            cat("case $HVD_LOCAL_RANK in 0) exec ", binary(first), " --steps 3;; *) exec ",
                binary(second), " --steps 3;; esac")};
  }
  static Words join(Words flags, const Words& command) {
    flags.insert(flags.end(), command.begin(), command.end());
    return flags;
  }
};

TEST_F(VersionsTest, AnotherBuildWithTheSameVersionsWorks) {
  const ExitStatus end = run_job(join({"-np", "2"}, both("e2e_other_build", "e2e_other_build")));
  EXPECT_EQ(end.code, 0) << end.err;
}

TEST_F(VersionsTest, AProgramWithAnotherLinkToTheAgentIsRefusedWithBothBuildsNamed) {
  for (const Words& flags : {Words{"-np", "2"}, Words{"-np", "2", "--min-np", "1"}}) {
    const ExitStatus end = run_job(join(flags, both("e2e_other_link", "e2e_other_link")));
    EXPECT_NE(end.code, 0);
    expect_in(end.err, {"gave up: on host", "9.9.9-other_link (version 900",
                        cat("build ", build_id(), " (version ", HVD_OWN_WORKER_LINK)});
  }
}

TEST_F(VersionsTest, WorkersOfTwoVersionsRefuseEachOther) {
  const ExitStatus end = run_job(join({"-np", "2"}, both("e2e_other_build", "e2e_other_members")));
  EXPECT_NE(end.code, 0);
  expect_in(end.err, {"9.9.9-other_build", "9.9.9-other_members", "rank 0 on localhost#0",
                      "rank 1 on localhost#1"});
}

TEST_F(VersionsTest, AnElasticJobGoesOnWithoutTheWorkerOfAnotherVersion) {
  const ExitStatus end =
      run_job(join({"-np", "2", "--min-np", "1"}, both("e2e_other_build", "e2e_other_members")));
  expect_in(end.err, {"9.9.9-other_build", "9.9.9-other_members"});
  EXPECT_EQ(end.err.find("is started again"), std::string::npos) << end.err;
}

}  // namespace
}  // namespace hvd::test
