// Collectives over oneCCL in jobs of hvdrun: the conformance tables, and the ends of jobs. Without
// its module there is nothing to test but what is said then.
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/text.h"
#include "tests/support/pages.h"
#include "tests/worker/launch/under_mpi.h"

namespace hvd::test {
namespace {

constexpr const char* kModule = HVD_MODULES "/libhvd_oneccl.so";

class OneCcl : public JobTest {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kModule)) GTEST_SKIP() << kModule << " was not built";
  }
  // `arguments` go behind the flags that choose oneCCL.
  ExitStatus run_over_it(int ranks, const Words& arguments, ProcessOptions options = {}) {
    // By itself it spins while it waits: where cores are few and busy, that takes long.
    options.environment["CCL_YIELD"] = "sched_yield";
    Words words{"-np", cat(ranks), "--cpu-operations", "ccl"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return run_job(words, options);
  }
  static void expect_conforming(const ExitStatus& end) {
    EXPECT_EQ(end.code, 0) << end.out << end.err;
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_NE(end.out.find(cat("ok ", rank, ", ")), std::string::npos) << end.out << end.err;
    }
  }
};

TEST_F(OneCcl, ABriefTableOfAllCollectivesIsRight) {
  const std::string timeline = (directory() / "timeline.json").string();
  expect_conforming(
      run_over_it(4, {"--timeline-filename", timeline, binary("conforms"), "--brief"}));
  std::ifstream in(timeline);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  for (const char* const operation :
       {"CCL_ALLREDUCE", "CCL_ALLGATHER", "CCL_BROADCAST", "CCL_ALLTOALL", "CCL_REDUCESCATTER"}) {
    EXPECT_NE(text.find(operation), std::string::npos) << operation << " did not run";
  }
}

class NightlyOneCcl : public OneCcl {};

TEST_F(NightlyOneCcl, TheTableOfAllTypesIsRight) {
  expect_conforming(run_over_it(4, {binary("conforms"), "--every-type"}));
}

TEST_F(OneCcl, AWorldComesAndGoesAsOverGloo) {
  for (const char* const scenario : {"place", "again", "no-shutdown"}) {
    const ExitStatus end =
        run_over_it(3, {"--log-level", "info", binary("hvd_worker_program"), scenario});
    EXPECT_EQ(end.code, 0) << scenario << ": " << end.out << end.err;
    EXPECT_NE(end.out.find("rank 2 of 3, local 2 of 3, cross 0 of 1, homogeneous, sum 6\n"),
              std::string::npos)
        << scenario << ": " << end.out;
    EXPECT_NE(end.err.find("oneCCL reduces tensors of the host"), std::string::npos) << end.err;
  }
}

TEST_F(OneCcl, AKilledRankEndsTheJobWithItsName) {
  const ExitStatus end =
      run_over_it(3, {binary("hvd_worker_program"), "lost-in-a-call"},
                  {.environment = {{"DIRECTORY_OF_TEST", directory().string()}}});
  EXPECT_EQ(end.code, 128 + SIGKILL) << end.out;
  EXPECT_NE(end.err.find("rank 1"), std::string::npos) << end.err;
}

TEST_F(OneCcl, AllRanksMustChooseIt) {
  const ExitStatus end =
      run_over_it(2, {"sh", "-c",
                      cat("[ $HVD_RANK = 1 ] && export HVD_CPU_OPERATIONS=gloo; exec ",
                          binary("hvd_worker_program"), " place")});
  EXPECT_NE(end.code, 0) << end.out;
  EXPECT_NE(end.err.find("has HVD_CPU_OPERATIONS=ccl, and rank 1 on "), std::string::npos)
      << end.err;
}

TEST_F(OneCcl, ThePageLeadsToAProgramOverIt) {
  const std::string tools = std::filesystem::path(binary("hvdrun")).parent_path().string();
  const ExitStatus end =
      run({"bash", "-c",
           cat("set -eu\nPATH=", tools, ":/usr/bin:$PATH\n",
               commands_of(HVD_SOURCE_DIR "/docs/oneccl.md"))},
          {.environment = {{"PYTHONPATH", HVD_PYTHON_DIR}, {"CCL_YIELD", "sched_yield"}},
           .working_directory = directory()},
          kGenerous);
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_NE(end.out.find("    [X] CCL\n"), std::string::npos) << end.out;
  EXPECT_NE(end.out.find("rank 3 of 4: the average is 2.5, oneCCL: True"), std::string::npos)
      << end.out << end.err;
}

class OneCclUnderMpi : public UnderMpiTest {
 protected:
  void SetUp() override {
    UnderMpiTest::SetUp();
    if (!std::filesystem::exists(kModule)) GTEST_SKIP() << kModule << " was not built";
    options_.environment.insert({{"HVD_CPU_OPERATIONS", "ccl"},
                                 {"HVD_LOG_LEVEL", "info"},
                                 {"CCL_YIELD", "sched_yield"},
                                 {"DIRECTORY_OF_TEST", directory().string()}});
  }
};

TEST_P(OneCclUnderMpi, TheProcessesOfItsLauncherMayUseOneCcl) {
  const ExitStatus end = launch(3, {binary("hvd_worker_program"), "place"});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_NE(end.out.find("rank 2 of 3, local 2 of 3, cross 0 of 1, homogeneous, sum 6\n"),
            std::string::npos)
      << end.out;
  EXPECT_NE(end.err.find("oneCCL reduces tensors of the host"), std::string::npos) << end.err;
}

TEST_P(OneCclUnderMpi, WhereTheLauncherLeavesThemTheOthersEndByThemselves) {
  if (!is_open_mpi()) GTEST_SKIP() << "MPICH's always ends them";
  options_.environment["OMPI_MCA_orte_enable_recovery"] = "1";
  const ExitStatus end = launch(3, {binary("hvd_worker_program"), "lost-in-a-call"});
  EXPECT_NE(end.err.find("the world has failed (rank 1 on "), std::string::npos) << end.err;
  EXPECT_NE(end.err.find("the call of oneCCL waits for a lost rank: this process ends"),
            std::string::npos)
      << end.err;
}

INSTANTIATE_TEST_SUITE_P(Mpi, OneCclUnderMpi, testing::ValuesIn(mpi_launchers()), name_of_launcher);

class WithoutOneCcl : public JobTest {};

TEST_F(WithoutOneCcl, AModuleThatIsNotThereIsNamed) {
  const ExitStatus end =
      run_job({"-np", "2", "--cpu-operations", "CCL", "sh", "-c",
               // The other rank may end first, and this one has to say why all the same.
               "trap '' TERM; exec \"$0\" place", binary("hvd_worker_program")},
              {.environment = {{"HVD_CCL_MODULE", "/nowhere/module.so"}}});
  EXPECT_NE(end.code, 0) << end.out;
  EXPECT_NE(end.err.find("HVD_CPU_OPERATIONS=ccl needs hvd's module for oneCCL"), std::string::npos)
      << end.err;
  EXPECT_NE(end.err.find("/nowhere/module.so"), std::string::npos) << end.err;
}

TEST_F(WithoutOneCcl, WorkersOfElasticJobsCannotUseIt) {
  const std::string why = "a worker that waits in oneCCL for a lost one cannot be interrupted";
  const Words place{binary("hvd_worker_program"), "place"};
  for (const Words& flags :
       {Words{"-np", "2", "--min-np", "1", "--cpu-operations", "ccl"},
        Words{"-np", "2", "--min-np", "1", "--env", "HVD_CPU_OPERATIONS=ccl"}}) {
    Words words = flags;
    words.insert(words.end(), place.begin(), place.end());
    const ExitStatus end = run_job(words);
    EXPECT_NE(end.code, 0) << end.out;
    EXPECT_NE(end.err.find(why), std::string::npos) << end.err;
  }
}

}  // namespace
}  // namespace hvd::test
