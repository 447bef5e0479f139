// A job that writes its state to a file while it trains (--state-every), and loses everything.
#include <csignal>
#include <filesystem>
#include <set>
#include <string>

#include "base/text.h"
#include "tests/e2e/elastic_job.h"

namespace hvd::test {
namespace {

class SavingTest : public ElasticJobTest {
 protected:
  Process& train() {
    return start_training(
        {"-np", "2", "--min-np", "1", "--state-file", state_file_, "--state-every", "0.2"});
  }
  // As a power cut does: hvdrun, its agent and all workers.
  void lose_all(Process& job) {
    job.signal(SIGKILL);
    for (const pid_t pid : processes()) kill_one(pid, SIGKILL);
    job.wait();
    ASSERT_TRUE(eventually([&] { return processes().empty(); }));
  }

  const std::string state_file_ = (directory() / "state").string();
};

TEST_F(SavingTest, AJobThatHasLostEverythingGoesOnFromItsFile) {
  Process& first = train();
  ASSERT_TRUE(step_logs().wait([&] { return std::filesystem::exists(state_file_); }))
      << first.err();
  step_logs().read();
  ASSERT_TRUE(step_logs().wait_for_steps_more(5)) << first.err();
  lose_all(first);
  step_logs().read();
  const std::int64_t reached = step_logs().newest_step();
  const std::size_t lost = step_logs().step_logs().size();
  ASSERT_TRUE(std::filesystem::exists(state_file_));

  Process& second = train();
  ASSERT_TRUE(step_logs().wait_for_step(reached + 10)) << second.err();
  finish(second, {.may_go_back = true});
  std::set<std::int64_t> begun_at;
  for (std::size_t i = lost; i < step_logs().step_logs().size(); ++i) {
    const auto& log = step_logs().step_logs()[i];
    if (!log.worlds.empty()) begun_at.insert(log.worlds.front().step);
  }
  ASSERT_FALSE(begun_at.empty());
  EXPECT_GT(*begun_at.begin(), 0) << "it was not begun anew";
  EXPECT_LE(*begun_at.begin(), reached);
  EXPECT_FALSE(std::filesystem::exists(state_file_)) << "it would mislead the next job";
  EXPECT_FALSE(std::filesystem::exists(state_file_ + ".lock"));
}

}  // namespace
}  // namespace hvd::test
