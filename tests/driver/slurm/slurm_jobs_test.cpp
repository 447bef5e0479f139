// hvdrun in the allocations of a real Slurm of four nodes on this machine.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <memory>

#include "base/text.h"
#include "tests/e2e/elastic_job.h"
#include "tests/support/slurm_cluster.h"

namespace hvd::test {
namespace {

constexpr int kNodes = 4;

class SlurmJobs : public ElasticJobTest {
 protected:
  void SetUp() override {
    if (const auto why = SlurmCluster::why_not()) GTEST_SKIP() << *why;
    cluster_ = std::make_unique<SlurmCluster>(directory() / "slurm", kNodes, gpus());
  }
  virtual int gpus() const { return 0; }
  void TearDown() override {
    cluster_.reset();
    ElasticJobTest::TearDown();
  }

  // Blocks until the job has ended; its output.
  std::string run_batch(const Words& flags, const std::string& script) {
    const std::string job = slurm().submit(flags, script + "\necho the end");
    EXPECT_TRUE(slurm().wait_for_output(job, "the end\n")) << slurm().output(job);
    return slurm().output(job);
  }
  // A training that is told by say_enough() that it is enough.
  std::string hvdrun(const Words& flags) const {
    Words words{hvdrun_};
    words.insert(words.end(), flags.begin(), flags.end());
    words.insert(words.end(),
                 {binary("elastic_steps"), "--log", (directory() / "step_logs").string(), "--until",
                  (directory() / "enough").string(), "--verify", "--step", "5000"});
    std::string line = "exec";
    for (const auto& word : words) line += " " + shell_quote(word);
    return line;
  }
  void finish_batch(const std::string& job) {
    say_enough();
    EXPECT_TRUE(slurm().wait_for_state(job, "COMPLETED")) << slurm().output(job);
    EXPECT_EQ(step_logs().errors(), "") << slurm().output(job);
  }
  // A world of that many workers trains.
  void expect_world(int size, const std::string& job) {
    newest_ = step_logs().wait_for_world(size, newest_);
    ASSERT_NE(newest_, 0) << step_logs().summary() << slurm().output(job);
  }

  SlurmCluster& slurm() const { return *cluster_; }
  const std::string hvdrun_ = binary("hvdrun");

 private:
  std::unique_ptr<SlurmCluster> cluster_;
  std::int64_t newest_ = 0;
};

TEST_F(SlurmJobs, AnAllocationIsUsedAsItIs) {
  const std::string out =
      run_batch({"--nodes=4", "--ntasks-per-node=2"},
                cat("export HF_TOKEN=of-the-driver\n", hvdrun_, " ", binary("hvd_worker_program"),
                    " place\n", hvdrun_, " -np 1 sh -c 'env' && echo all went well"));
  for (int rank = 0; rank < 2 * kNodes; ++rank) {
    const std::string place =
        cat("rank ", rank, " of 8, local ", rank % 2, " of 2, cross ", rank / 2, " of 4");
    EXPECT_NE(out.find(place), std::string::npos) << out;
  }
  EXPECT_NE(out.find("all went well"), std::string::npos) << out;
  EXPECT_NE(out.find(">:HVD_HOSTNAME=sn1\n"), std::string::npos) << out;
  EXPECT_NE(out.find(">:SLURM_JOB_ID="), std::string::npos) << out;
  // A program must not take itself for a task of srun, and a secret stays where it is.
  for (const auto* const variable :
       {"SLURM_PROCID=", "SLURM_NTASKS=", "SLURM_STEP_ID=", "HF_TOKEN="}) {
    EXPECT_EQ(out.find(cat(">:", variable)), std::string::npos) << out;
  }
  EXPECT_NE(out.find("not sent to other hosts, since they look like secrets: HF_TOKEN"),
            std::string::npos)
      << out;
}

TEST_F(SlurmJobs, SlotsFollowWhatWasAskedFor) {
  const std::string by_tasks = run_batch({"--nodes=2", "--ntasks=3"}, hvdrun_ + " --dry-run true");
  EXPECT_NE(by_tasks.find("2     sn2   0"), std::string::npos) << by_tasks;
  const std::string by_cores =
      run_batch({"--nodes=1", "--exclusive"}, hvdrun_ + " --dry-run true; " + hvdrun_ +
                                                  " --dry-run --slots-per-host 1 -np 1 true");
  EXPECT_NE(by_cores.find("3     sn1   3     3 of 4"), std::string::npos) << by_cores;
  EXPECT_NE(by_cores.find("0     sn1   0     0 of 1"), std::string::npos) << by_cores;
}

TEST_F(SlurmJobs, AllPortsAreOfTheRange) {
  const std::string out = run_batch(
      {"--nodes=2"}, cat(hvdrun_, " --port-range 33000-33099 ", binary("hvd_worker_program"),
                         " place; echo code $?; ", hvdrun_, " --port-range 33000-33001 ",
                         binary("hvd_worker_program"), " place; echo code $?"));
  EXPECT_NE(out.find("rank 1 of 2"), std::string::npos) << out;
  EXPECT_NE(out.find("code 0"), std::string::npos) << out;
  EXPECT_NE(out.find("33000-33001"), std::string::npos) << out;
  EXPECT_NE(out.find("code 1"), std::string::npos) << out;
}

TEST_F(SlurmJobs, TheCodeOfTheFirstFailureIsTheJobs) {
  const std::string out =
      run_batch({"--nodes=2"}, cat(hvdrun_,
                                   " sh -c '[ $HVD_RANK = 1 ] && exit 7; sleep 60'; echo "
                                   "code $?"));
  EXPECT_NE(out.find("rank 1 on sn2#0"), std::string::npos) << out;
  EXPECT_NE(out.find("code 7"), std::string::npos) << out;
}

TEST_F(SlurmJobs, WithoutMungeATokenFileServes) {
  const std::string out =
      run_batch({"--nodes=2"}, cat(hvdrun_, " --token-file ", (directory() / "token").string(), " ",
                                   binary("hvd_worker_program"), " place; echo code $?"));
  EXPECT_NE(out.find("rank 1 of 2"), std::string::npos) << out;
  EXPECT_NE(out.find("code 0"), std::string::npos) << out;
}

TEST_F(SlurmJobs, AStepThatSlurmRefusesIsReportedWithItsMessage) {
  // The job has another node.
  const std::string out =
      run_batch({"--nodes=1", "--nodelist=sn2"},
                cat("SLURM_JOB_NODELIST=sn1 ", hvdrun_, " --start-timeout 10 true; echo code $?"));
  EXPECT_NE(
      out.find("host sn1 cannot take part: start agent: Slurm could not start the agent: srun "
               "exited with code 1: "),
      std::string::npos)
      << out;
  EXPECT_NE(out.find("Requested node configuration is not available"), std::string::npos) << out;
  EXPECT_NE(out.find("code 1"), std::string::npos) << out;
}

TEST_F(SlurmJobs, AJobThatSlurmDoesNotKnowIsAnError) {
  const std::string out =
      run_batch({"--nodes=1"}, cat("SLURM_JOB_ID=999999 ", hvdrun_, " true; echo code $?"));
  EXPECT_NE(out.find("hvdrun: Slurm: scontrol --details show job 999999 exited with code 1: "),
            std::string::npos)
      << out;
  EXPECT_NE(out.find("Invalid job id specified"), std::string::npos) << out;
  EXPECT_NE(out.find("code 1"), std::string::npos) << out;
}

// The id of the last task is that of the array.
TEST_F(SlurmJobs, ATaskOfAnArrayHasItsOwnNodes) {
  const std::string output = (slurm().directory() / "job.task%a").string();
  slurm().submit({"--array=1-2", "--nodes=1", "--output=" + output},
                 hvdrun_ + " --print-slurm-hosts; echo $SLURMD_NODENAME; echo the end");
  for (const char* const task : {"task1", "task2"}) {
    ASSERT_TRUE(slurm().wait_for_output(task, "the end\n")) << slurm().output(task);
    const auto lines = split(slurm().output(task), '\n');
    ASSERT_GE(lines.size(), 3U) << slurm().output(task);
    EXPECT_EQ(lines[0], lines[1] + " slots=1");
  }
}

// Each of many tasks would run the whole job.
TEST_F(SlurmJobs, HvdrunIsNotToBeStartedBySrunManyTimes) {
  const std::string out = run_batch({"--nodes=2"}, cat("srun ", hvdrun_, " true; echo code $?"));
  EXPECT_NE(out.find("Slurm has started hvdrun as one of 2 processes"), std::string::npos) << out;
  EXPECT_NE(out.find("code 1"), std::string::npos) << out;
}

TEST_F(SlurmJobs, NodesThatDrainCrashAndComeBackChangeTheWorld) {
  const std::string job = slurm().submit({"--nodes=4", "--ntasks-per-node=2", "--no-kill"},
                                         hvdrun({"--min-np", "2", "--discovery-interval", "0.2"}));
  expect_world(8, job);
  slurm().command({"scontrol", "update", "nodename=sn3", "state=drain", "reason=test"});
  expect_world(6, job);
  EXPECT_EQ(step_logs().steps_done_again(), 0) << "they left at a commit";
  slurm().crash("sn2");
  expect_world(4, job);
  slurm().command({"scontrol", "update", "nodename=sn3", "state=resume"});
  expect_world(6, job);
  finish_batch(job);
}

TEST_F(SlurmJobs, AnAllocationThatGrowsAndShrinksChangesTheWorld) {
  const std::string job = slurm().submit({"--nodes=1", "--nodelist=sn1", "--ntasks-per-node=1"},
                                         hvdrun({"--min-np", "1", "--discovery-interval", "0.2"}));
  expect_world(1, job);
  // Another allocation, whose nodes this one takes over.
  slurm().command({"salloc", "--quiet", "--no-shell", "--nodes=1", "--nodelist=sn3",
                   "--job-name=more", "--dependency=expand:" + job});
  const std::string more = slurm().command({"squeue", "--noheader", "--name=more", "--format=%i"});
  slurm().command({"scontrol", "update", "jobid=" + more, "numnodes=0"});
  ASSERT_EQ(slurm().field(job, "NodeList"), "sn[1,3]");
  // How many tasks the new node has nobody has said: its agent counts what the step may use.
  ASSERT_TRUE(step_logs().wait([&] {
    step_logs().read();
    return step_logs().members().size() > 1;
  })) << slurm().output(job);
  finish_batch(job);
}

TEST_F(SlurmJobs, TheNoticeBeforeTheEndSuspendsAndRequeues) {
  const std::string state = (directory() / "state").string();
  const std::string job =
      slurm().submit({"--nodes=2", "--ntasks-per-node=2", "--requeue"},
                     "echo begin ${SLURM_RESTART_COUNT:-0}\n" +
                         hvdrun({"--min-np", "2", "--state-file", state, "--requeue"}));
  expect_world(4, job);
  ASSERT_TRUE(step_logs().wait_for_steps_more(10));
  // As --signal=B:USR1@60 does it.
  slurm().command({"scancel", "--batch", "--signal=USR1", job});
  // Slurm may end hvdrun before it can say that it has asked for that.
  ASSERT_TRUE(eventually([&] {
    const std::string output = slurm().output(job);
    return output.find("Slurm was asked to run the batch script again") != std::string::npos ||
           output.find("DUE TO JOB REQUEUE") != std::string::npos;
  })) << slurm().output(job);
  EXPECT_NE(slurm().output(job).find("the job was suspended at a commit, because of SIGUSR1"),
            std::string::npos)
      << slurm().output(job);
  EXPECT_TRUE(std::filesystem::exists(state));

  // Slurm lets a requeued job wait for two minutes. Within the same second its nodes would take it
  // for the run that was revoked.
  ASSERT_TRUE(slurm().wait_for_state(job, "PENDING")) << slurm().output(job);
  slurm().command({"scontrol", "update", "jobid=" + job, "starttime=now+3"});
  ASSERT_TRUE(slurm().wait_for_output(job, "begin 1")) << slurm().output(job);
  expect_world(4, job);
  finish_batch(job);
  EXPECT_EQ(step_logs().steps_done_again(), 0);
}

TEST_F(SlurmJobs, AJobThatIsCancelledIsNotRunAgain) {
  const std::string state = (directory() / "state").string();
  const std::string job =
      slurm().submit({"--nodes=2", "--ntasks-per-node=2", "--requeue"},
                     hvdrun({"--min-np", "2", "--state-file", state, "--requeue"}));
  expect_world(4, job);
  slurm().command({"scancel", job});
  ASSERT_TRUE(slurm().wait_for_output(job, "it was not asked to run the batch script again"))
      << slurm().output(job);
  EXPECT_TRUE(slurm().wait_for_state(job, "CANCELLED")) << slurm().output(job);
  EXPECT_EQ(slurm().field(job, "Restarts"), "0");
  EXPECT_TRUE(std::filesystem::exists(state));
}

// By its partition's rules Slurm would only cancel it.
TEST_F(SlurmJobs, AJobThatIsPreemptedIsRunAgain) {
  const std::string job = slurm().submit(
      {"--nodes=4", "--exclusive", "--ntasks-per-node=1", "--requeue"},
      hvdrun({"--min-np", "2", "--state-file", (directory() / "state").string(), "--requeue"}));
  expect_world(4, job);
  slurm().submit({"--partition=urgent", "--nodes=1", "--exclusive"}, "true");
  ASSERT_TRUE(slurm().wait_for_state(job, "PENDING")) << slurm().output(job);
  EXPECT_EQ(slurm().field(job, "Restarts"), "1");
  slurm().command({"scancel", job});
}

TEST_F(SlurmJobs, RequeueIsRefusedWhereSlurmWouldNotRunTheJobAgain) {
  const std::string line = hvdrun_ + " --requeue --min-np 1 true; echo code $?";
  const std::string out = run_batch({"--nodes=1", "--no-requeue"}, line);
  EXPECT_NE(out.find("give sbatch the flag --requeue, too\ncode 1"), std::string::npos) << out;
  const std::string by_salloc =
      slurm().command({"salloc", "--quiet", "--nodes=1", "sh", "-c", "exec 2>&1; " + line});
  EXPECT_NE(by_salloc.find("Slurm runs only batch scripts again"), std::string::npos) << by_salloc;
  EXPECT_NE(by_salloc.find("code 1"), std::string::npos) << by_salloc;
}

TEST_F(SlurmJobs, AJobThatIsCancelledKeepsItsState) {
  const std::string state = (directory() / "state").string();
  const std::string script = hvdrun({"--min-np", "2", "--state-file", state});
  const std::string job = slurm().submit({"--nodes=2", "--ntasks-per-node=2"}, script);
  expect_world(4, job);
  slurm().command({"scancel", job});
  ASSERT_TRUE(slurm().wait_for_state(job, "CANCELLED")) << slurm().output(job);
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(state); })) << slurm().output(job);
  ASSERT_TRUE(eventually([&] {
    return slurm().command({"squeue", "--noheader", "--jobs=" + job, "--format=%t"}).empty();
  }));

  const std::string again = slurm().submit({"--nodes=2", "--ntasks-per-node=2"}, script);
  expect_world(4, again);
  finish_batch(again);
  EXPECT_EQ(step_logs().steps_done_again(), 0);
}

// Each node has four GPUs.
class SlurmGpuJobs : public SlurmJobs {
 protected:
  int gpus() const override { return 4; }
  // The GPUs that each worker sees, in lines "sn1 0,1" in order.
  std::vector<std::string> seen(const Words& flags) {
    const std::string out =
        run_batch(flags, hvdrun_ +
                             " --tag-output=none sh -c "
                             "'echo see $HVD_HOSTNAME $CUDA_VISIBLE_DEVICES'; echo code $?");
    EXPECT_NE(out.find("code 0"), std::string::npos) << join(flags, " ") << ": " << out;
    std::vector<std::string> lines;
    for (const auto& line : split(out, '\n')) {
      if (line.starts_with("see ")) lines.push_back(line.substr(4));
    }
    std::sort(lines.begin(), lines.end());
    return lines;
  }
};

TEST_F(SlurmGpuJobs, AgentsGetAllGpusOfTheirNodeHoweverTheyWereAskedFor) {
  const Words two_each{"sn1 0,1", "sn1 0,1", "sn2 0,1", "sn2 0,1"};
  const std::vector<Words> requests{
      {"--gpus=4", "--gpus-per-node=2"},
      {"--gpus-per-node=2"},
      {"--gres=gpu:2"},
      {"--ntasks-per-node=2", "--gpus-per-task=1"},
      {"--ntasks-per-node=2", "--gpus-per-node=2", "--gpu-bind=single:1"}};
  for (Words flags : requests) {
    flags.emplace_back("--nodelist=sn1,sn2");
    EXPECT_EQ(seen(flags), two_each) << join(flags, " ");
  }
  const auto three = seen({"--nodes=2", "--gpus=3"});
  EXPECT_EQ(three.size(), 3U) << join(three, ";");
}

TEST_F(SlurmGpuJobs, SlotsAreTheGpusOfEachNodeAlsoAfterSalloc) {
  for (const char* const gpus : {"--gres=gpu:2", "--gpus-per-node=2"}) {
    for (const char* const processors : {"--cpus-per-task=1", "--cpus-per-task=2"}) {
      EXPECT_EQ(slurm().command({"salloc", "--quiet", "--nodelist=sn1,sn2", gpus, processors,
                                 hvdrun_, "--print-slurm-hosts"}),
                "sn1 slots=2\nsn2 slots=2")
          << gpus << " " << processors;
    }
  }
  // Slurm divides them as it likes.
  const std::string divided = slurm().command(
      {"salloc", "--quiet", "--nodelist=sn1,sn2", "--gpus=4", hvdrun_, "--print-slurm-hosts"});
  EXPECT_TRUE(divided == "sn1 slots=3\nsn2 slots=1" || divided == "sn1 slots=2\nsn2 slots=2" ||
              divided == "sn1 slots=1\nsn2 slots=3")
      << divided;
}

}  // namespace
}  // namespace hvd::test
