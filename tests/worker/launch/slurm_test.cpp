// Programs that srun has started, under a real Slurm of three nodes on this machine.
#include <filesystem>
#include <memory>
#include <unistd.h>

#include "base/socket.h"
#include "base/text.h"
#include "tests/e2e/job_test.h"

namespace hvd::test {
namespace {

constexpr const char* kCluster = HVD_SOURCE_DIR "/tests/worker/launch/slurm_cluster.sh";
constexpr int kNodes = 3;

// The first of so many ports in a row that are free now, below those that the kernel gives away.
int free_ports(int count) {
  for (int first = 20'000 + ::getpid() % 10'000; first < 32'000; first += count) {
    int taken = 0;
    for (int port = first; port < first + count; ++port) {
      if (!listen_tcp({"0.0.0.0", static_cast<std::uint16_t>(port)}).ok()) ++taken;
    }
    if (taken == 0) return first;
  }
  return 0;
}

class UnderSlurm : public JobTest {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can make a process namespace for Slurm";
    for (const char* const program :
         {"/usr/sbin/slurmctld", "/usr/sbin/slurmd", "/usr/bin/srun", "/usr/sbin/munged"}) {
      if (!std::filesystem::exists(program)) GTEST_SKIP() << program << " is not installed";
    }
    cluster_ = std::make_unique<Process>(Words{"unshare", "--pid", "--fork", "--kill-child",
                                               "--mount-proc", kCluster, directory().string(),
                                               cat(kNodes), cat(free_ports(kNodes + 1))});
    ASSERT_TRUE(cluster_->wait_for_output("ready")) << cluster_->err();
    options_.environment = {{"SLURM_CONF", (directory() / "slurm.conf").string()}};
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
  std::unique_ptr<Process> cluster_;
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

TEST_F(UnderSlurm, TheOthersHearOfALostProcess) {
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
