#include "discovery/slurm.h"

#include <gtest/gtest.h>
#include <map>

#include "base/text.h"

namespace hvd::discovery {
namespace {

using Variables = std::map<std::string, std::string, std::less<>>;

VariableLookup lookup_in(const Variables& variables) {
  return [&variables](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

SlurmJob job_with(std::map<std::string, std::vector<SlurmResource>> resources) {
  SlurmJob job;
  job.resources = std::move(resources);
  return job;
}

std::string nodes_of(const Variables& variables, const SlurmJob& job = {}) {
  const auto id = slurm_job_id(lookup_in(variables));
  if (!id.ok()) return id.status().message();
  const auto allocation = slurm_allocation(lookup_in(variables), job);
  return allocation.ok() ? host_lines(allocation->nodes) : allocation.status().message();
}

TEST(SlurmAllocations, SlotsAreTheTasksThatWereAskedFor) {
  EXPECT_EQ(nodes_of({{"SLURM_JOB_ID", "7"},
                      {"SLURM_JOB_NODELIST", "sn[1-3]"},
                      {"SLURM_NTASKS", "5"},
                      {"SLURM_TASKS_PER_NODE", "2(x2),1"},
                      {"SLURM_JOB_CPUS_PER_NODE", "8(x3)"}}),
            "sn1 slots=2\nsn2 slots=2\nsn3 slots=1\n");
}

TEST(SlurmAllocations, SlotsAreProcessorsIfNobodyAskedForTasks) {
  EXPECT_EQ(nodes_of({{"SLURM_JOB_ID", "7"},
                      {"SLURM_JOB_NODELIST", "sn[1-2]"},
                      {"SLURM_TASKS_PER_NODE", "1(x2)"},
                      {"SLURM_CPUS_PER_TASK", "3"},
                      {"SLURM_JOB_CPUS_PER_NODE", "8,2"}}),
            "sn1 slots=2\nsn2 slots=1\n");
}

TEST(SlurmAllocations, SlotsAreTheGpusOfEachNodeIfNobodyAskedForTasks) {
  const Variables variables{{"SLURM_JOB_ID", "7"},
                            {"SLURM_JOB_NODELIST", "sn[1-3]"},
                            {"SLURM_JOB_CPUS_PER_NODE", "8(x3)"}};
  const SlurmJob job =
      job_with({{"sn1", {{"gpu", 2}}}, {"sn2", {{"gpu:a100", 1}, {"gpu:v100", 3}, {"nic", 2}}}});
  EXPECT_EQ(nodes_of(variables, job), "sn1 slots=2\nsn2 slots=4\nsn3\n");
  auto with_tasks = variables;
  with_tasks.insert({{"SLURM_NTASKS", "3"}, {"SLURM_TASKS_PER_NODE", "1(x3)"}});
  EXPECT_EQ(nodes_of(with_tasks, job), "sn1 slots=1\nsn2 slots=1\nsn3 slots=1\n");
}

TEST(SlurmAllocations, SharesOfGpusAreCountedByTheAgents) {
  EXPECT_EQ(nodes_of({{"SLURM_JOB_ID", "7"},
                      {"SLURM_JOB_NODELIST", "sn[1-2]"},
                      {"SLURM_JOB_CPUS_PER_NODE", "8(x2)"}},
                     job_with({{"sn1", {{"shard", 4}}}, {"sn2", {{"shard", 4}}}})),
            "sn1\nsn2\n");
}

// In a step the numbers of tasks are those of the step.
TEST(SlurmAllocations, NumbersOfAnotherListOfNodesAreNotTaken) {
  EXPECT_EQ(nodes_of({{"SLURM_JOB_ID", "7"},
                      {"SLURM_JOB_NODELIST", "sn[1-2]"},
                      {"SLURM_STEP_ID", "0"},
                      {"SLURM_STEP_NUM_TASKS", "1"},
                      {"SLURM_NTASKS", "1"},
                      {"SLURM_TASKS_PER_NODE", "1"}}),
            "sn1\nsn2\n");
}

TEST(SlurmAllocations, AnEnvironmentWithoutAUsableAllocationIsRefusedWithTheReason) {
  EXPECT_FALSE(is_in_slurm_allocation(lookup_in({})));
  EXPECT_EQ(nodes_of({}),
            "this is not an allocation of Slurm: SLURM_JOB_ID is not set; start hvdrun in a batch "
            "script, or after salloc");
  EXPECT_TRUE(
      nodes_of({{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NODELIST", "sn1"}, {"SLURM_HET_SIZE", "2"}})
          .starts_with("this is a heterogeneous job of Slurm, which hvdrun cannot use"));
  EXPECT_EQ(nodes_of({{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NODELIST", "sn[1"}}),
            "SLURM_JOB_NODELIST: list of nodes \"sn[1\": a bracket is not closed");
  EXPECT_EQ(nodes_of({{"SLURM_JOB_ID", "7"},
                      {"SLURM_JOB_NODELIST", "sn1"},
                      {"SLURM_NTASKS", "2"},
                      {"SLURM_TASKS_PER_NODE", "two"}}),
            "SLURM_TASKS_PER_NODE: \"two\": must be numbers such as 2(x3),1");
}

class SlurmNodes : public testing::Test {
 protected:
  static std::string now(const std::string& nodes, std::string_view states, int least = 1) {
    SlurmAllocation allocation{.job = {}, .nodes = {{"sn1", 2}, {"sn2", 2}, {"sn3", 1}}};
    allocation.job.nodes = nodes;
    const auto hosts = slurm_nodes(allocation, states, least);
    return hosts.ok() ? host_lines(*hosts) : hosts.status().message();
  }
};

TEST_F(SlurmNodes, AreThoseThatSlurmStillNames) {
  EXPECT_EQ(now("sn[1,3]", "sn1 allocated\nsn3 mixed\n"), "sn1 slots=2\nsn3 slots=1\n");
  EXPECT_EQ(now("sn[1,3-4]", ""), "sn1 slots=2\nsn3 slots=1\nsn4\n");
}

TEST_F(SlurmNodes, ANodeThatIsDownDoesNotCount) {
  EXPECT_EQ(now("sn[1-3]", "sn1 allocated\nsn2 down*\nsn3 allocated\n"),
            "sn1 slots=2\nsn3 slots=1\n");
  // In one of its partitions it looks well.
  EXPECT_EQ(now("sn[1-2]", "sn1 allocated\nsn2 allocated\nsn2 down\n"), "sn1 slots=2\n");
}

TEST_F(SlurmNodes, ANodeThatDrainsGoesUnlessItIsNeeded) {
  const auto* const states = "sn1 allocated\nsn2 draining@\nsn3 allocated\n";
  EXPECT_EQ(now("sn[1-3]", states, 3), "sn1 slots=2\nsn3 slots=1\n");
  EXPECT_EQ(now("sn[1-3]", states, 4), "sn1 slots=2\nsn2 slots=2\nsn3 slots=1\n");
  EXPECT_EQ(now("sn[1-2]", "sn1 draining\nsn2 drained\n"), "sn1 slots=2\n");
}

}  // namespace
}  // namespace hvd::discovery
