// Programs that srun has started, under a real Slurm of three nodes on this machine.
#include <memory>

#include "base/text.h"
#include "tests/e2e/job_test.h"
#include "tests/support/slurm_cluster.h"

namespace hvd::test {
namespace {

constexpr int kNodes = 3;

class UnderSlurm : public JobTest {
 protected:
  void SetUp() override {
    if (const auto why = SlurmCluster::why_not()) GTEST_SKIP() << *why;
    cluster_ = std::make_unique<SlurmCluster>(directory() / "slurm", kNodes);
    options_.environment = cluster_->environment();
  }
  void TearDown() override {
    cluster_.reset();
    JobTest::TearDown();
  }

  // Two processes on each node.
  ExitStatus srun(const std::string& mpi, const Words& command) {
    Words words{"srun", "--mpi=" + mpi, cat("--nodes=", kNodes), "--ntasks-per-node=2"};
    words.insert(words.end(), command.begin(), command.end());
    return run(words, options_);
  }

  const std::string program_ = binary("hvd_worker_program");
  ProcessOptions options_;

 private:
  std::unique_ptr<SlurmCluster> cluster_;
};

TEST_F(UnderSlurm, TheProcessesOfAStepAreOneWorld) {
  for (const char* const mpi : {"pmix", "pmi2"}) {
    const ExitStatus end =
        srun(mpi, {"unshare", "--uts", "sh", "-c",
                   cat("hostname $SLURMD_NODENAME && exec ", program_, " again")});
    EXPECT_EQ(end.code, 0) << mpi << ": " << end.err;
    for (int rank = 0; rank < 2 * kNodes; ++rank) {
      const std::string place = cat("rank ", rank, " of 6, local ", rank % 2, " of 2, cross ",
                                    rank / 2, " of 3, homogeneous, sum 21\n");
      EXPECT_NE(end.out.find(place), std::string::npos) << mpi << ": " << end.out;
    }
  }
}

TEST_F(UnderSlurm, AStepWithPmixMayReduceOverMpi) {
  options_.environment["HVD_CPU_OPERATIONS"] = "mpi";
  // The three nodes share one /dev/shm and one name, in which Open MPI's own segments would
  // collide.
  options_.environment["OMPI_MCA_btl"] = "self,tcp";
  options_.environment["HVD_LOG_LEVEL"] = "info";
  const ExitStatus refused = srun("pmi2", {program_, "place"});
  EXPECT_NE(refused.code, 0) << refused.out;
  EXPECT_NE(refused.err.find("through PMI a process can connect to Slurm once"), std::string::npos)
      << refused.err;

  const std::string built = run({binary("hvdrun"), "--check-build"}).out;
  if (built.find("[X] libhvd_openmpi") == std::string::npos) GTEST_SKIP() << "no Open MPI";
  const ExitStatus end = srun("pmix", {program_, "place"});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_NE(end.out.find("rank 5 of 6, "), std::string::npos) << end.out;
  EXPECT_NE(end.err.find("MPI reduces tensors of the host"), std::string::npos) << end.err;
}

TEST_F(UnderSlurm, TheOthersAreToldOfALostProcess) {
  const ExitStatus end = srun("pmix", {program_, "loss"});
  EXPECT_EQ(end.code, 9) << end.err;
  EXPECT_NE(end.out.find("lost rank 1 on host "), std::string::npos) << end.out << end.err;
}

TEST_F(UnderSlurm, AStepWithoutMpiIsToldHowToMeet) {
  const ExitStatus end = srun("none", {program_, "place"});
  EXPECT_NE(end.code, 0) << end.out;
  EXPECT_NE(end.err.find("or by srun --mpi=pmix or --mpi=pmi2, through which"), std::string::npos)
      << end.err;
}

TEST_F(UnderSlurm, AStepWithoutMpiMeetsAtARendezvous) {
  const std::string token = (directory() / "token").string();
  Process service({binary("hvdrun"), "rendezvous", "--bind", "127.0.0.1:0", "--token-file", token});
  ASSERT_TRUE(service.wait_for_output("\n")) << service.err();
  const std::string said(trim(service.out()));
  options_.environment["HVD_RENDEZVOUS"] = said.substr(said.find("http://") + 7);
  options_.environment["HVD_TOKEN_FILE"] = token;
  for (int step = 0; step < 2; ++step) {
    const ExitStatus end = srun("none", {program_, "place"});
    EXPECT_EQ(end.code, 0) << end.err;
    EXPECT_NE(end.out.find("rank 5 of 6, "), std::string::npos) << end.out;
  }
}

}  // namespace
}  // namespace hvd::test
