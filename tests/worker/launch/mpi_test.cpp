// Collectives over MPI, in worlds that the launchers of Open MPI and MPICH start: the conformance
// tables, programs that use MPI besides, and the ends of jobs.
#include <fstream>
#include <iterator>

#include "base/text.h"
#include "tests/support/pages.h"
#include "tests/worker/launch/under_mpi.h"

namespace hvd::test {
namespace {

constexpr const char* kOperations[] = {"MPI_ALLREDUCE", "MPI_ALLGATHER", "MPI_BROADCAST",
                                       "MPI_ALLTOALL", "MPI_REDUCESCATTER"};

class MpiOperations : public UnderMpiTest {
 protected:
  void SetUp() override {
    UnderMpiTest::SetUp();
    options_.environment["HVD_CPU_OPERATIONS"] = "MPI";
    if (!std::filesystem::exists(module())) GTEST_SKIP() << module() << " was not built";
  }
  std::string module() const {
    return cat(HVD_MODULES, "/libhvd_", is_open_mpi() ? "openmpi" : "mpich", ".so");
  }
  ExitStatus lose_one_in_a_call() {
    options_.environment["DIRECTORY_OF_TEST"] = directory().string();
    return launch(3, {binary("hvd_worker_program"), "lost-in-a-call"});
  }
  std::string program() const {
    return binary(is_open_mpi() ? "hvd_openmpi_program" : "hvd_mpich_program");
  }
  // The tables on four ranks.
  void expect_conforming(const Words& arguments) {
    Words words{binary("conforms")};
    words.insert(words.end(), arguments.begin(), arguments.end());
    // MPI spins while it waits: where cores are few and busy, that takes long.
    const ExitStatus end = launch(4, words, 4 * kGenerous);
    EXPECT_EQ(end.code, 0) << end.out << end.err;
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_NE(end.out.find(cat("ok ", rank, ", ")), std::string::npos) << end.out << end.err;
    }
  }
};

TEST_P(MpiOperations, ABriefTableOfAllCollectivesIsRight) {
  const std::string timeline = (directory() / "timeline.json").string();
  options_.environment["HVD_TIMELINE"] = timeline;
  expect_conforming({"--brief"});
  std::ifstream in(timeline);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  for (const char* const operation : kOperations) {
    EXPECT_NE(text.find(operation), std::string::npos) << operation << " did not run";
  }
}

class MpiOperationsInFull : public MpiOperations {};

TEST_P(MpiOperationsInFull, TheTableOfAllTypesIsRight) { expect_conforming({"--every-type"}); }

TEST_P(MpiOperations, AWorldComesAndGoesAsOverGloo) {
  for (const char* const scenario : {"place", "again", "no-shutdown"}) {
    const ExitStatus end = launch(3, {binary("hvd_worker_program"), scenario});
    EXPECT_EQ(end.code, 0) << scenario << ": " << end.out << end.err;
    EXPECT_NE(end.out.find("rank 2 of 3, local 2 of 3, cross 0 of 1, homogeneous, sum 6\n"),
              std::string::npos)
        << scenario << ": " << end.out;
  }
}

TEST_P(MpiOperations, AProgramMayUseMpiBesides) {
  const ExitStatus both = launch(2, {program(), "both"});
  EXPECT_EQ(both.code, 0) << both.err;
  EXPECT_NE(both.out.find("hvd 2, MPI 2, enabled 1, threads 1\n"), std::string::npos) << both.out;

  const ExitStatus ended = launch(2, {program(), "ended-before"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.out.find("ended\n"), std::string::npos) << ended.out;

  const ExitStatus refused = launch(2, {program(), "one-thread"});
  EXPECT_NE(refused.code, 0) << refused.out;
  EXPECT_NE(refused.err.find("MPI_Init_thread() with MPI_THREAD_MULTIPLE is needed"),
            std::string::npos)
      << refused.err;
}

// The launchers mix what ranks write at the same time, and a print() may write piece by piece.
TEST_P(MpiOperations, APythonProgramMayUseMpi4pyBesides) {
  if (!is_open_mpi()) GTEST_SKIP() << "the mpi4py of the distribution is for Open MPI";
  if (run({"/usr/bin/python3", "-c", "import mpi4py"}).code != 0) GTEST_SKIP() << "no mpi4py";
  options_.environment["PYTHONPATH"] = HVD_PYTHON_DIR;
  const ExitStatus end =
      launch(2, {"/usr/bin/python3", "-c",
                 "from mpi4py import MPI; import numpy, hvd, sys; hvd.init();"
                 "sum = hvd.allreduce(numpy.ones(3, numpy.float32), op=hvd.Sum);"
                 "sys.stdout.write(f'{sum[0]} {MPI.COMM_WORLD.allreduce(1)} {hvd.mpi_built()} "
                 "{hvd.mpi_enabled()} {hvd.mpi_threads_supported()}\\n')"});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_NE(end.out.find("2.0 2 True True True\n"), std::string::npos) << end.out << end.err;
}

// The launcher may end the others before they have said who was lost; MPICH's then knows no rank.
TEST_P(MpiOperations, AKilledRankEndsTheJobWithItsName) {
  const ExitStatus end = lose_one_in_a_call();
  EXPECT_NE(end.code, 0) << end.out;
  const char* const by_launcher = is_open_mpi() ? "process rank 1 with PID" : "Killed (signal 9)";
  const std::string said = end.out + end.err;
  EXPECT_NE(said.find(by_launcher), std::string::npos) << said;
}

TEST_P(MpiOperations, WhereTheLauncherLeavesThemTheOthersEndByThemselves) {
  if (!is_open_mpi()) GTEST_SKIP() << "MPICH's always ends them";
  options_.environment["OMPI_MCA_orte_enable_recovery"] = "1";
  const ExitStatus end = lose_one_in_a_call();
  EXPECT_NE(end.err.find("the world has failed (rank 1 on "), std::string::npos) << end.err;
  EXPECT_NE(end.err.find("waits for a lost rank: this process ends"), std::string::npos) << end.err;
}

TEST_P(MpiOperations, AllRanksMustChooseIt) {
  const ExitStatus end =
      launch(2, {"sh", "-c",
                 cat("[ $", rank_variable(), " = 1 ] && unset HVD_CPU_OPERATIONS; exec ",
                     binary("hvd_worker_program"), " place")});
  EXPECT_NE(end.code, 0) << end.out;
  EXPECT_NE(end.err.find("has HVD_CPU_OPERATIONS=mpi, and rank 1 on "), std::string::npos)
      << end.err;
}

TEST_P(MpiOperations, TheModuleOfAnotherMpiIsNamed) {
  const std::string other =
      cat(HVD_MODULES, "/libhvd_", is_open_mpi() ? "mpich" : "openmpi", ".so");
  if (!std::filesystem::exists(other)) GTEST_SKIP() << other << " was not built";
  options_.environment["HVD_MPI_MODULE"] = other;
  // An Open MPI that finds no launcher makes its session directory below TMPDIR: two processes
  // that do so at once fail, so each has a TMPDIR of its own.
  const ExitStatus end =
      launch(2, {"sh", "-c",
                 cat("export TMPDIR=$TMPDIR/$", rank_variable(), "; mkdir $TMPDIR; exec ",
                     binary("hvd_worker_program"), " place")});
  EXPECT_NE(end.code, 0) << end.out;
  EXPECT_NE(end.err.find("takes this process for rank 0 of 1, and the launcher for rank "),
            std::string::npos)
      << end.err;
  options_.environment["HVD_MPI_MODULE"] = "/nowhere/module.so";
  const ExitStatus absent = launch(2, {binary("hvd_worker_program"), "place"});
  EXPECT_NE(absent.code, 0) << absent.out;
  EXPECT_NE(absent.err.find("/nowhere/module.so"), std::string::npos) << absent.err;
}

TEST_P(MpiOperations, WithoutTheChoiceNoMpiIsLoaded) {
  options_.environment["HVD_CPU_OPERATIONS"] = "gloo";
  options_.environment["PYTHONPATH"] = HVD_PYTHON_DIR;
  const ExitStatus end = launch(
      2, {"/usr/bin/python3", "-c",
          "import numpy, hvd, sys; hvd.init(); hvd.allreduce(numpy.ones(3, numpy.float32));"
          "maps = open('/proc/self/maps').read();"
          "sys.stdout.write(f'{hvd.mpi_built()} {hvd.mpi_enabled()} {\"libmpi\" in maps}\\n')"});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_NE(end.out.find("True False False\n"), std::string::npos) << end.out;
}

TEST_P(MpiOperations, ThePageLeadsToAProgramOverMpi) {
  if (!is_open_mpi()) GTEST_SKIP() << "the page calls mpirun, which is that of Open MPI";
  options_.working_directory = directory();
  options_.environment.erase("HVD_CPU_OPERATIONS");
  options_.environment.insert({{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                               {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                               {"PYTHONPATH", HVD_PYTHON_DIR}});
  const std::string tools = std::filesystem::path(binary("hvdrun")).parent_path().string();
  const ExitStatus end =
      run({"bash", "-c",
           cat("set -eu\nPATH=", tools, ":/usr/bin:$PATH\nmpirun() { mpirun.openmpi \"$@\"; }\n",
               commands_of(HVD_SOURCE_DIR "/docs/mpi.md"))},
          options_);
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_NE(end.out.find("    [X] MPI\n"), std::string::npos) << end.out;
  EXPECT_NE(end.out.find("rank 3 of 4: the average is 2.5, MPI: True"), std::string::npos)
      << end.out << end.err;
}

INSTANTIATE_TEST_SUITE_P(Mpi, MpiOperations, testing::ValuesIn(mpi_launchers()), name_of_launcher);
INSTANTIATE_TEST_SUITE_P(Nightly, MpiOperationsInFull, testing::ValuesIn(mpi_launchers()),
                         name_of_launcher);

class WithoutMpisLauncher : public JobTest {};

TEST_F(WithoutMpisLauncher, WorkersOfHvdrunCannotUseIt) {
  const std::string why = "Let the launcher of MPI start the program";
  const Words place{binary("hvd_worker_program"), "place"};
  const auto refused = [&](Words flags, const ProcessOptions& options, const std::string& named) {
    flags.insert(flags.end(), place.begin(), place.end());
    const ExitStatus end = run_job(flags, options);
    EXPECT_NE(end.code, 0) << end.out;
    EXPECT_NE(end.err.find(named), std::string::npos) << end.err;
    EXPECT_NE(end.err.find(why), std::string::npos) << end.err;
  };
  refused({"-np", "2", "--cpu-operations", "mpi"}, {}, "--cpu-operations mpi: MPI serves");
  refused({"-np", "2"}, {.environment = {{"HOROVOD_CPU_OPERATIONS", "MPI"}}},
          "HVD_CPU_OPERATIONS mpi: MPI serves");
  refused({"-np", "2", "--env", "HVD_CPU_OPERATIONS=mpi"}, {},
          "HVD_CPU_OPERATIONS=mpi: MPI serves");
  refused({"-np", "2", "--min-np", "1", "--env", "HVD_CPU_OPERATIONS=mpi"}, {},
          "HVD_CPU_OPERATIONS=mpi: MPI serves");
}

}  // namespace
}  // namespace hvd::test
