// Hosts that are named without slots: real hvdrun, whose agents say how many there are. The GPUs of
// the machine, should it have any, are hidden; and the cores are those that the test leaves.
#include <gtest/gtest.h>
#include <sched.h>
#include <set>

#include "base/machine/capacity.h"
#include "base/machine/topology.h"
#include "base/text.h"
#include "tests/support/process.h"

namespace hvd::test {
namespace {

constexpr const char* kTell = "echo $HVD_RANK of $HVD_SIZE on $HVD_HOSTNAME";

class Slots : public testing::Test {
 protected:
  static ExitStatus hvdrun(std::vector<std::string> arguments, bool one_core) {
    arguments.insert(arguments.begin(), binary("hvdrun"));
    if (one_core) {
      arguments.insert(arguments.begin(), {"taskset", "-c", std::to_string(::sched_getcpu())});
    }
    arguments.insert(arguments.begin(), {"env", "CUDA_VISIBLE_DEVICES="});
    return run(arguments);
  }
  static ExitStatus tell(std::vector<std::string> arguments, bool one_core = true) {
    arguments.insert(arguments.begin(), {"--tag-output", "none", "--verbose"});
    arguments.insert(arguments.end(), {"sh", "-c", kTell});
    return hvdrun(std::move(arguments), one_core);
  }
  static bool says(const ExitStatus& status, const std::string& what) {
    return status.err.find(what) != std::string::npos;
  }
};

TEST_F(Slots, AHostWithoutANumberHasOneForEachCore) {
  const int cores = usable_cores();
  const auto all = tell({"-H", "localhost"}, false);
  EXPECT_EQ(all.code, 0) << all.err;
  for (int rank = 0; rank < cores; ++rank) {
    EXPECT_NE(all.out.find(cat(rank, " of ", cores, " on localhost\n")), std::string::npos)
        << all.out;
  }
  EXPECT_TRUE(says(all, cat("hvdrun: host localhost: ", cores))) << all.err;
}

TEST_F(Slots, CoresThatItMayNotUseDoNotCount) {
  const auto job = tell({"-H", "localhost"});
  EXPECT_EQ(job.code, 0) << job.err;
  EXPECT_EQ(job.out, "0 of 1 on localhost\n");
  EXPECT_TRUE(says(job, "hvdrun: host localhost: 1 slot, for its core\n")) << job.err;
  EXPECT_TRUE(says(job, "hvdrun: rank 0 on localhost#0\n")) << job.err;
}

TEST_F(Slots, ANumberNextToItStandsAndTheOptionIsANumber) {
  const auto job = tell({"-H", "localhost,127.0.0.1:2"});
  EXPECT_EQ(job.code, 0) << job.err;
  EXPECT_NE(job.out.find("0 of 3 on localhost\n"), std::string::npos) << job.out;
  EXPECT_NE(job.out.find("2 of 3 on 127.0.0.1\n"), std::string::npos) << job.out;
  EXPECT_FALSE(says(job, "host 127.0.0.1: ")) << job.err;
  const auto fixed = tell({"-H", "localhost", "--slots-per-host", "2"});
  EXPECT_NE(fixed.out.find("1 of 2 on localhost\n"), std::string::npos) << fixed.out;
  EXPECT_FALSE(says(fixed, "for its core")) << fixed.err;
}

TEST_F(Slots, AHostThatIsNotNeededIsLetGoOrNotEvenAsked) {
  const auto two = tell({"-np", "2", "-H", "localhost,127.0.0.1:1,127.0.0.2"});
  EXPECT_EQ(two.code, 0) << two.err;
  EXPECT_NE(two.out.find("1 of 2 on 127.0.0.1\n"), std::string::npos) << two.out;
  EXPECT_FALSE(says(two, "127.0.0.2")) << two.err;
  if (usable_cores() < 2) return;
  const auto let_go = tell({"-np", "2", "-H", "localhost,127.0.0.1"}, false);
  EXPECT_EQ(let_go.code, 0) << let_go.err;
  EXPECT_NE(let_go.out.find("1 of 2 on localhost\n"), std::string::npos) << let_go.out;
  EXPECT_TRUE(says(let_go, "hvdrun: host 127.0.0.1 is not needed\n")) << let_go.err;
}

TEST_F(Slots, MoreWorkersAreSpreadOrRefused) {
  const auto spread = tell({"-np", "3", "-H", "localhost"});
  EXPECT_EQ(spread.code, 0) << spread.err;
  EXPECT_TRUE(says(spread, "warning: oversubscribed: 3 processes on 1 slot: 3 on localhost"))
      << spread.err;
  EXPECT_NE(spread.out.find("2 of 3 on localhost\n"), std::string::npos) << spread.out;
  const auto refused = tell({"-np", "3", "-H", "localhost", "--no-oversubscribe"});
  EXPECT_EQ(refused.code, 1) << refused.err;
  EXPECT_EQ(refused.out, "");
  EXPECT_TRUE(says(refused, "Requested more processes (3) than there are available slots (1)"))
      << refused.err;
}

TEST_F(Slots, AnElasticJobTakesThemToo) {
  const auto list = tell({"--min-np", "1", "-H", "localhost"});
  EXPECT_EQ(list.code, 0) << list.err;
  EXPECT_EQ(list.out, "0 of 1 on localhost\n");
  const auto spread = tell({"-np", "3", "--min-np", "2", "-H", "localhost"});
  EXPECT_EQ(spread.code, 0) << spread.err;
  EXPECT_TRUE(says(spread, "warning: oversubscribed: 3 processes on 1 slot")) << spread.err;
  EXPECT_NE(spread.out.find("2 of 3 on localhost\n"), std::string::npos) << spread.out;
  const auto never = tell({"--min-np", "2", "-H", "localhost"});
  EXPECT_EQ(never.code, 1) << never.err;
  EXPECT_TRUE(says(never, "--min-np 2 is more than the 1 slot of the hosts that are named"))
      << never.err;
  const auto found = tell({"--host-discovery-script", "echo localhost"});
  EXPECT_EQ(found.code, 0) << found.err;
  EXPECT_EQ(found.out, "0 of 1 on localhost\n");
  EXPECT_TRUE(says(found, "hvdrun: host localhost: 1 slot, for its core\n")) << found.err;
}

// The processors that a worker may use, as the kernel says.
constexpr const char* kProcessors = "sed -n s/^Cpus_allowed_list:.//p /proc/self/status";

TEST_F(Slots, WorkersAreBoundToPartsOfTheCores) {
  const auto all = usable_processors();
  for (const int workers : {1, 2, 3}) {
    for (const auto& [name, binding] :
         {std::pair{"cores", Binding::cores}, std::pair{"numa", Binding::numa}}) {
      const auto job =
          hvdrun({"-np", cat(workers), "--bind", name, "sh", "-c", kProcessors}, false);
      EXPECT_EQ(job.code, 0) << job.err;
      for (int rank = 0; rank < workers; ++rank) {
        const auto own = processors_text(part_of(all, binding, rank, workers));
        EXPECT_NE(job.out.find(cat("[", rank, "]<stdout>:", own, "\n")), std::string::npos)
            << name << ", " << workers << ":\n"
            << job.out;
      }
    }
  }
}

TEST_F(Slots, AnElasticJobDividesTheCoresByTheSlots) {
  const auto all = usable_processors();
  const auto job = hvdrun({"-np", "1", "--min-np", "1", "--max-np", "1", "-H", "localhost:2",
                           "--bind", "cores", "sh", "-c", kProcessors},
                          false);
  EXPECT_EQ(job.out, cat("[0]<stdout>:", processors_text(part_of(all, Binding::cores, 0, 2)), "\n"))
      << job.err;
}

TEST_F(Slots, ABindingKeepsToTheCoresOfTheAgent) {
  const auto job = hvdrun({"-np", "2", "--bind", "cores", "sh", "-c", kProcessors}, true);
  EXPECT_EQ(job.code, 0) << job.err;
  std::set<std::string> processors;
  for (const auto& line : split(job.out, '\n')) {
    if (!line.empty()) processors.insert(line.substr(line.find(':')));
  }
  EXPECT_EQ(processors.size(), 1U) << job.out;
}

TEST_F(Slots, TheDryRunShowsTheBinding) {
  const auto plan =
      hvdrun({"-np", "3", "-H", "localhost:1,b:2", "--bind", "cores", "--dry-run", "p"}, false);
  EXPECT_EQ(plan.code, 0) << plan.err;
  const auto all = processors_text(part_of(usable_processors(), Binding::cores, 0, 1));
  EXPECT_NE(plan.out.find(" bound to\n"), std::string::npos) << plan.out;
  EXPECT_NE(plan.out.find(cat(" processors ", all, "\n")), std::string::npos) << plan.out;
  EXPECT_NE(plan.out.find(" part 2 of 2 of the cores\n"), std::string::npos) << plan.out;
}

TEST_F(Slots, TheFilesOfTheRanksAreMadeWhenTheirNumberIsKnown) {
  const TemporaryDirectory directory;
  const auto job = tell({"--output-filename", directory.path(), "-H", "localhost,127.0.0.1"});
  EXPECT_EQ(job.code, 0) << job.err;
  const std::filesystem::path& folder = directory.path();
  EXPECT_EQ(read_file(folder / "rank.0" / "stdout"), "0 of 2 on localhost\n");
  EXPECT_EQ(read_file(folder / "rank.1" / "stdout"), "1 of 2 on 127.0.0.1\n");
  const auto blocked = directory.file("blocked", "");
  const auto refused = tell({"--output-filename", blocked, "-H", "localhost"});
  EXPECT_NE(refused.code, 0);
  EXPECT_TRUE(says(refused, "--output-filename")) << refused.err;
  EXPECT_EQ(refused.out, "");
}

TEST_F(Slots, TheDryRunSaysThatTheAgentsWillSayIt) {
  const auto all = hvdrun({"-H", "a,b:4", "--dry-run", "p"}, false);
  EXPECT_EQ(all.code, 0) << all.err;
  EXPECT_TRUE(all.out.starts_with("as many workers as slots on a, b (4 slots); ")) << all.out;
  const auto six = hvdrun({"-np", "6", "-H", "a,b:4", "--dry-run", "p"}, false);
  EXPECT_TRUE(six.out.starts_with("6 workers on a, b (4 slots); ")) << six.out;
  // The number of workers decides which hosts are asked.
  const auto four = hvdrun({"-np", "4", "-H", "b:4,a", "--dry-run", "p"}, false);
  EXPECT_NE(four.out.find("\n3     b "), std::string::npos) << four.out;
}

}  // namespace
}  // namespace hvd::test
