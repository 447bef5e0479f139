#include <gtest/gtest.h>

#include "driver/job/job_options.h"
#include "driver/run/job_report.h"

namespace hvd::driver {
namespace {

class HostLog : public testing::Test {
 protected:
  HostLog() {
    JobStart start;
    start.options.job_id = "a0";
    job_ = start.make();
    job_->step(event::Begin{}, now_);
    job_->step(event::HostsFound{{{{"a", 2}}, {{"b", 2}}}}, now_);
  }
  std::string text(const Event& event) {
    job_->step(event, now_);
    return host_log_text(event, *job_);
  }

 private:
  std::unique_ptr<Job> job_;
  TimePoint now_{std::chrono::hours(1)};
};

TEST_F(HostLog, TellsHowAHostIsMadeReady) {
  EXPECT_EQ(text(event::HostProgress{1, Step::authenticate}), "host b: authenticate");
  EXPECT_EQ(text(event::AgentReady{1, {2, 16}}),
            "host b: its agent is ready; it counts 16 cores and 2 GPUs");
  EXPECT_EQ(text(event::AddressFound{1, "10.0.0.2"}), "host b: the others reach it at 10.0.0.2");
}

TEST_F(HostLog, TellsNothingElse) {
  EXPECT_EQ(text(event::Heard{0}), "");
  EXPECT_EQ(text(event::Tick{}), "");
}

}  // namespace
}  // namespace hvd::driver
