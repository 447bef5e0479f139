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

std::string expanded(std::string_view text) {
  const auto names = expand_hostlist(text);
  return names.ok() ? join(*names, " ") : "error: " + names.status().message();
}

std::string nodes_of(const Variables& variables) {
  const auto allocation = slurm_allocation(lookup_in(variables));
  return allocation.ok() ? host_lines(allocation->nodes) : allocation.status().message();
}

TEST(SlurmHostlist, IsExpandedInItsOrder) {
  EXPECT_EQ(expanded("a"), "a");
  EXPECT_EQ(expanded("sn[1-3,7],gpu[08-11]-ib"),
            "sn1 sn2 sn3 sn7 gpu08-ib gpu09-ib gpu10-ib gpu11-ib");
  EXPECT_EQ(expanded("b,a"), "b a");
  EXPECT_EQ(expanded("r[1-2]n[01-02]"), "r1n01 r1n02 r2n01 r2n02");
  EXPECT_EQ(expanded("n[9-11]"), "n9 n10 n11");
  EXPECT_EQ(expanded("n[099-101]"), "n099 n100 n101");
}

TEST(SlurmHostlist, AMalformedOneIsRefused) {
  for (const auto* const text :
       {"", ",", "a,,b", "a[1", "a1]", "a[1-", "a[2-1]", "a[x]", "a[1-2x]", "a[[1]]", "a[]",
        "a[1-99999999999]", "a[0-999999]", "a[1-1000][1-1000]", "a[-1]"}) {
    EXPECT_TRUE(expanded(text).starts_with("error: list of nodes"))
        << text << ": " << expanded(text);
  }
}

TEST(SlurmCounts, AreOneForEachNode) {
  const auto counts = expand_counts("2(x3),1");
  ASSERT_TRUE(counts.ok());
  EXPECT_EQ(*counts, (std::vector<int>{2, 2, 2, 1}));
  for (const auto* const text : {"x", "2(x)", "2(x3", "0", "-1", "2,,1", "1(x999999999)"}) {
    EXPECT_FALSE(expand_counts(text).ok()) << text;
  }
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

TEST(SlurmAllocations, GpusAreCountedByTheAgents) {
  EXPECT_EQ(nodes_of({{"SLURM_JOB_ID", "7"},
                      {"SLURM_JOB_NODELIST", "sn[1-2]"},
                      {"SLURM_GPUS_PER_NODE", "4"},
                      {"SLURM_JOB_CPUS_PER_NODE", "8(x2)"}}),
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
  std::string now(std::string_view nodes, std::string_view states, int least = 1) const {
    const auto hosts = slurm_nodes(allocation_, nodes, states, least);
    return hosts.ok() ? host_lines(*hosts) : hosts.status().message();
  }
  const SlurmAllocation allocation_{
      .job_id = "7", .nodes = {{"sn1", 2}, {"sn2", 2}, {"sn3", 1}}, .slots_of_newcomer = 0};
};

TEST_F(SlurmNodes, AreThoseThatSlurmStillNames) {
  EXPECT_EQ(now("sn[1,3]\n", "sn1 allocated\nsn3 mixed\n"), "sn1 slots=2\nsn3 slots=1\n");
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
