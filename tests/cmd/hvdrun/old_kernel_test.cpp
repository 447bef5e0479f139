// hvdrun on a kernel that lacks newer system calls, as the filter of an old container may, too.
#include <algorithm>
#include <gtest/gtest.h>

#include "base/text.h"
#include "tests/support/process.h"

namespace hvd::test {
namespace {

class OldKernel : public testing::TestWithParam<const char*> {
 protected:
  std::vector<std::string> hvdrun(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(),
                     {binary("hvd_without_calls"), GetParam(), binary("hvdrun")});
    return arguments;
  }
  ProcessOptions marked() const { return {.environment = {{"HVD_OLD_KERNEL", mark_}}}; }
  void TearDown() override { EXPECT_TRUE(wait_until_gone("HVD_OLD_KERNEL", mark_)); }

  TemporaryDirectory directory_;
  std::string mark_ = directory_.path();
};

TEST_P(OldKernel, AJobRunsAndLeavesNothing) {
  const auto status =
      run(hvdrun({"-np", "1", "sh", "-c", "sleep 1000 >/dev/null 2>&1 & exec ls /proc/self/fd"}),
          marked());
  if (status.code == 77) GTEST_SKIP() << "this kernel takes no filter for system calls";
  EXPECT_EQ(status.code, 0) << status.err;
  // Its three streams, the socket to its agent, the lock that says that it lives, and what ls has
  // opened; no forgotten descriptors.
  const auto& out = status.out;
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 6) << out;
}

TEST_P(OldKernel, AKilledWorkerAndADiscoveryScriptAreHandledAsEver) {
  const auto script = directory_.file("discover.sh", "#!/bin/sh\nsleep 1000 &\necho localhost:2\n");
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  const std::string once = directory_.path() / "once";
  const auto status = run(hvdrun({"--host-discovery-script", script.string(), "sh", "-c",
                                  cat("mkdir ", once, " 2>/dev/null && kill -9 $$; echo fine")}),
                          marked());
  if (status.code == 77) GTEST_SKIP() << "this kernel takes no filter for system calls";
  EXPECT_EQ(status.code, 0) << status.err;
  EXPECT_NE(status.err.find("was killed by SIGKILL"), std::string::npos) << status.err;
  EXPECT_NE(status.out.find("fine"), std::string::npos) << status.out;
}

INSTANTIATE_TEST_SUITE_P(Calls, OldKernel,
                         testing::Values("close_range", "pidfd_open", "getrandom",
                                         "close_range,pidfd_open,getrandom"),
                         [](const auto& calls) {
                           return calls.param ==
                                          std::string_view("close_range,pidfd_open,getrandom")
                                      ? std::string("All")
                                      : std::string(calls.param);
                         });

}  // namespace
}  // namespace hvd::test
