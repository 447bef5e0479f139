// What only observes a job ends none that is under way, whatever its file system does: the table in
// docs/internals/observers.md, walked. All observers write to one directory, which goes bad while
// the job is at work; then rank 0 is killed, so that those of the next world begin there.
#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "base/text.h"
#include "tests/e2e/elastic_job.h"

namespace hvd::test {
namespace {

struct Fault {
  std::string name;
  std::string reason;             // said of a file when the job is under way
  std::string said_at_the_start;  // which is an error
};

class Observers : public ElasticJobTest, public testing::WithParamInterface<Fault> {
 protected:
  void SetUp() override {
    for (const char* const name : {"flight", "events", "timeline", "autotune", "output"}) {
      std::filesystem::create_directories(observed_ / name);
    }
    set_mode("well");
    ::setenv("LD_PRELOAD", HVD_BAD_FILES, 1);
    ::setenv("BAD_FILES", observed_.c_str(), 1);
    ::setenv("HVD_FLIGHT_RECORDER", (observed_ / "flight").c_str(), 1);
  }
  void TearDown() override {
    for (const char* const name : {"LD_PRELOAD", "BAD_FILES", "HVD_FLIGHT_RECORDER"}) {
      ::unsetenv(name);
    }
    set_mode("well");
    ElasticJobTest::TearDown();
  }

  void set_mode(const std::string& mode) {
    std::filesystem::rename(directory_file("new mode", mode), directory() / "observed.mode");
  }
  void go_bad() {
    if (GetParam().name == "missing") {
      std::filesystem::remove_all(observed_);
    } else {
      set_mode(GetParam().name);
    }
  }
  std::string at(const std::string& name) const { return (observed_ / name).string(); }
  Words flags() const {
    return {"-np",
            "3",
            "--min-np",
            "1",
            "--events",
            at("events/events"),
            "--timeline-filename",
            at("timeline/t.json"),
            "--autotune",
            "--autotune-log-file",
            at("autotune/log.csv"),
            "--output-filename",
            at("output"),
            "--output-stall-timeout",
            "2",
            "--grace",
            "1"};
  }

  const std::filesystem::path observed_ = directory() / "observed";
};

TEST_P(Observers, EndNoJobThatIsUnderWay) {
  Process& job = start_training(flags(), {"--step", "2000"});
  ASSERT_TRUE(step_logs().wait_for_step(20)) << job.err();
  go_bad();
  kill_rank(0);
  step_logs().read();
  ASSERT_TRUE(step_logs().wait_for_steps_more(30)) << job.err();
  // Another loss, by which each file is opened once more.
  kill_rank(0);
  step_logs().read();
  ASSERT_TRUE(step_logs().wait_for_steps_more(30)) << job.err();
  const ExitStatus end = finish(job);

  const std::string& reason = GetParam().reason;
  Words observers{"timeline", "flight recorder"};
  // On a full disk its log can be opened, and may have nothing to write before the end.
  if (GetParam().name != "full") observers.emplace_back("autotuner's log");
  // Files that are open, and folders that can be made anew, do not mind that a directory is gone.
  if (GetParam().name != "missing") {
    observers.insert(observers.end(), {"journal (--events)", "--output-filename"});
  }
  for (const auto& observer : observers) {
    bool is_told = false;
    for (const auto& line : lines_of(end.err)) {
      is_told = is_told || (line.find(observer) != std::string::npos &&
                            line.find(reason) != std::string::npos);
    }
    EXPECT_TRUE(is_told) << observer << "\n" << end.err;
  }
  EXPECT_EQ(end.err.find("gave up"), std::string::npos) << end.err;
}

// At the start of a job that is not elastic it is better to know.
TEST_P(Observers, ThatCannotBeginAreAnErrorOfTheFirstWorld) {
  ::unsetenv("HVD_FLIGHT_RECORDER");  // whose directory is made
  go_bad();
  const ExitStatus end =
      run_job({"-np", "2", "--timeline-filename", at("timeline/t.json"), binary("allreduce_once")});
  EXPECT_NE(end.code, 0);
  EXPECT_NE(end.err.find(GetParam().said_at_the_start), std::string::npos) << end.err;
}

INSTANTIATE_TEST_SUITE_P(
    OnADiskThatIs, Observers,
    testing::Values(Fault{"full", "No space left on device", "No space left on device"},
                    Fault{"missing", "No such file or directory", "No such file or directory"},
                    Fault{"read-only", "Read-only file system", "Read-only file system"},
                    Fault{"hang", "", "has not answered for 5 s"}),
    [](const testing::TestParamInfo<Fault>& row) {
      return row.param.name == "read-only" ? std::string("ReadOnly") : row.param.name;
    });

}  // namespace
}  // namespace hvd::test
