// The timeline of a real job, also of one that loses a worker.
#include <csignal>

#include "base/text.h"
#include "tests/e2e/job_test.h"
#include "tests/runtime/trace/trace_check.h"

namespace hvd::test {
namespace {

class TimelineTest : public JobTest {
 protected:
  std::string path() const { return directory() / "timeline.json"; }
  Words job_of(const Words& options) const {
    Words words{"-np", "4", "--timeline-filename", path(), binary("e2e_works"), "--tensors", "24"};
    words.insert(words.end(), options.begin(), options.end());
    return words;
  }
  // Negotiation, fusion and execution, of all ranks. What is missing; empty: nothing.
  static std::string missing_in(const Timeline& timeline) {
    for (int rank = 0; rank < 4; ++rank) {
      for (const char* const slice : {"NEGOTIATE_ALLREDUCE", "ALLREDUCE"}) {
        const int count = timeline.count(rank, slice);
        if (count <= 24) return cat("rank ", rank, " has ", count, " of ", slice);
      }
      std::map<std::string, int> batches;
      for (const auto& [number, track] : timeline.tracks.at(rank)) {
        for (const auto& arguments : track.arguments) {
          if (arguments.contains("batch")) ++batches[arguments["batch"].dump()];
        }
      }
      const bool fused = std::any_of(batches.begin(), batches.end(),
                                     [](const auto& batch) { return batch.second > 1; });
      if (!fused) return cat("rank ", rank, ": no batch has two tensors");
    }
    return "";
  }
};

TEST_F(TimelineTest, OfAJobThatEndsWellShowsNegotiationFusionAndExecution) {
  const ExitStatus end = run_job(job_of({"--steps", "20"}));
  ASSERT_EQ(end.code, 0) << end.err;
  const auto timeline = expect_right_timeline(path());
  EXPECT_EQ(missing_in(timeline), "");
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(timeline.processes.at(rank), cat("rank ", rank, " on localhost#", rank));
    EXPECT_EQ(timeline.count(rank, "ALLREDUCE"), 20 * 24) << "rank " << rank;
  }
}

// SIGKILL, but not in the middle of a system call: a write that the signal itself cuts short is the
// one thing that the file does not survive.
void kill_between_calls(pid_t pid) {
  ASSERT_EQ(kill_one(pid, SIGSTOP), 0);
  ASSERT_TRUE(eventually([&] {
    for (const auto& task : std::filesystem::directory_iterator(cat("/proc/", pid, "/task"))) {
      const std::string stat = read_file(task.path() / "stat");
      if (stat.compare(stat.rfind(')'), 3, ") T") != 0) return false;
    }
    return true;
  }));
  ASSERT_EQ(kill_one(pid, SIGKILL), 0);
}

class TimelineOfALoss : public TimelineTest, public testing::WithParamInterface<int> {};

TEST_P(TimelineOfALoss, IsRightAndHasAllThatWasBeforeIt) {
  // With pauses, as the file is written with what processor time is left over.
  Process& job = start(job_of({"--patient", "--pause", "10"}));
  const auto workers = wait_for_workers(job, "working", 4);
  ASSERT_EQ(workers.size(), 4U);
  // Ranks report five times a second, and one of them may be far behind another.
  Timeline before;
  ASSERT_TRUE(eventually([&] {
    before = check_timeline(path());
    return before.faults.empty() && missing_in(before).empty();
  })) << missing_in(before);
  kill_between_calls(workers.at(GetParam()));
  const ExitStatus end = job.wait();
  EXPECT_NE(end.code, 0) << end.err;
  const auto after = expect_right_timeline(path());
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_GE(after.count(rank, "ALLREDUCE"), before.count(rank, "ALLREDUCE")) << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, TimelineOfALoss, testing::Values(0, 2));

}  // namespace
}  // namespace hvd::test
