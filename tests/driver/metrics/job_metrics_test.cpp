// The metrics of jobs that a script of events describes. That they agree with the job is tested
// with all golden scripts, too (kept_metrics.h).
#include "driver/metrics/job_metrics.h"

#include <csignal>
#include <gtest/gtest.h>

#include "tests/driver/metrics/measured_job.h"

namespace hvd::driver {
namespace {

using std::chrono::milliseconds;

JobStart elastic_start(int least = 1, int most = 0) {
  JobStart start;
  start.options.job_id = "a0";
  start.options.elastic.limits = {.least = least, .most = most};
  return start;
}

std::string formed(const std::string& cause) {
  return cat("hvd_worlds_formed_total{cause=\"", cause, "\"}");
}
std::string ended(const std::string& outcome) {
  return cat("hvd_workers_ended_total{outcome=\"", outcome, "\"}");
}
std::string change(const std::string& cause, const std::string& what) {
  return cat("hvd_world_change_seconds_", what, "{cause=\"", cause, "\"}");
}

// Host a with two workers, which train.
class TwoWorkers : public testing::Test {
 protected:
  explicit TwoWorkers(const JobStart& start = elastic_start()) : measured_(start) {
    measured_.happens(event::Begin{});
    measured_.find({{{"a", 2}}});
    measured_.begins(1);
    measured_.begins(2);
  }

  MeasuredJob measured_;
};

TEST(JobMetrics, AreAllThereBeforeAnythingHasHappened) {
  MeasuredJob measured(elastic_start(2, 8));
  const auto values = test::metric_values(measured.text());
  for (const auto& [name, value] : values) {
    const bool is_zero = !name.starts_with("hvd_job_info") && !name.starts_with("hvd_world_m") &&
                         !name.starts_with("hvd_job_state{state=\"planned\"}");
    EXPECT_TRUE(!is_zero || value == 0) << name << " " << value;
  }
  EXPECT_EQ(values.at("hvd_world_min_size"), 2);
  EXPECT_EQ(values.at("hvd_world_max_size"), 8);
  EXPECT_EQ(values.at("hvd_job_state{state=\"planned\"}"), 1);
  EXPECT_TRUE(values.contains(formed("worker_lost")));
  EXPECT_TRUE(values.contains(ended("out_of_memory")));
}

TEST(JobMetrics, NameTheProgramAndNoneOfItsArguments) {
  MeasuredJob measured(elastic_start());
  const std::string text = measured.text();
  EXPECT_NE(text.find("program=\"train\""), std::string::npos) << text;
  EXPECT_EQ(text.find("secret"), std::string::npos) << text;
}

TEST_F(TwoWorkers, AreSummedInWhatTheyReport) {
  const auto ignore = [](std::string_view /*text*/) {};
  WorkWatch work(measured_.job(), ignore, ignore);
  const auto report = [&](Incarnation worker, std::uint64_t second, double waited) {
    WorkReading reading;
    reading.time_ns = second * 1'000'000'000;
    reading.steps = 4 * second;
    reading.waited_ns = static_cast<std::uint64_t>(static_cast<double>(reading.time_ns) * waited);
    reading.collectives = {{Collective::allreduce, 10 * second, 100 * second},
                           {Collective::barrier, second, 0}};
    const TimePoint now{std::chrono::seconds(second)};
    work.reported(0, {{{worker, reading}}}, now);
    measured_.metrics().look_at_work(work, measured_.job(), now);
  };
  for (const std::uint64_t second : {1, 2, 3}) {
    report(1, second, 0.25);
    report(2, second, 0.75);
  }

  EXPECT_EQ(measured_.value("hvd_collective_operations_total{kind=\"allreduce\"}"), 60);
  EXPECT_EQ(measured_.value("hvd_collective_operations_total{kind=\"barrier\"}"), 6);
  EXPECT_EQ(measured_.value("hvd_collective_bytes_total{kind=\"allreduce\"}"), 600);
  EXPECT_EQ(measured_.value("hvd_steps_per_second"), 4);
  EXPECT_EQ(measured_.value("hvd_rank_wait_ratio{rank=\"least\"}"), 0.25);
  EXPECT_EQ(measured_.value("hvd_rank_wait_ratio{rank=\"mean\"}"), 0.5);
  EXPECT_EQ(measured_.value("hvd_rank_wait_ratio{rank=\"most\"}"), 0.75);
  EXPECT_EQ(measured_.value("hvd_slow_ranks"), 0);
}

TEST_F(TwoWorkers, AreTheFirstWorld) {
  EXPECT_EQ(measured_.value(formed("start")), 1);
  EXPECT_EQ(measured_.value("hvd_world_generation"), 1);
  EXPECT_EQ(measured_.value("hvd_world_size"), 2);
  EXPECT_EQ(measured_.value("hvd_workers{state=\"initialised\"}"), 2);
  EXPECT_EQ(measured_.value("hvd_workers_started_total"), 2);
  EXPECT_EQ(measured_.value("hvd_hosts{state=\"ready\"}"), 1);
  EXPECT_EQ(measured_.value("hvd_hosts_joined_total"), 1);
  EXPECT_EQ(measured_.value("hvd_slots"), 2);
  EXPECT_EQ(measured_.value("hvd_world_max_size"), -1) << "there is no bound";
}

TEST_F(TwoWorkers, LoseOneAndGetAnotherAtACommit) {
  measured_.exits(2, 0, SIGKILL);
  EXPECT_EQ(measured_.value(ended("signal")), 1);
  measured_.pass_deadline();
  EXPECT_EQ(measured_.value(formed("worker_lost")), 1);
  EXPECT_EQ(measured_.value(change("worker_lost", "count")), 1);
  EXPECT_DOUBLE_EQ(measured_.value(change("worker_lost", "sum")), 0.005);
  EXPECT_EQ(measured_.value("hvd_world_size"), 1);
  EXPECT_EQ(measured_.value("hvd_worker_restarts_total"), 1);

  measured_.begins(3);
  measured_.happens(event::WorkerReady{0, 3}, milliseconds(995));
  EXPECT_EQ(measured_.value("hvd_world_replacement_seconds_count"), 0);
  measured_.happens(event::Committed{0, 1, 3}, milliseconds(500));
  EXPECT_EQ(measured_.value(formed("joined")), 1) << measured_.text();
  EXPECT_DOUBLE_EQ(measured_.value(change("joined", "sum")), 0.5);
  EXPECT_EQ(measured_.value("hvd_world_committed_generation"), 3);
  EXPECT_EQ(measured_.value("hvd_world_replacement_seconds_count"), 1);
  EXPECT_DOUBLE_EQ(measured_.value("hvd_world_replacement_seconds_sum"), 1.5);
  EXPECT_EQ(measured_.value("hvd_world_size"), 2);
}

TEST_F(TwoWorkers, AreAtWork) {
  const event::WorldEntered entered{
      1, 2, {}, milliseconds(20), milliseconds(300), {}, {}, milliseconds(4'000), 77, 5};
  measured_.happens(event::WorldEntered{2, 2, milliseconds(1)});  // a world that is not in force
  measured_.happens(entered);
  const auto entry = [](const char* what, const char* part) {
    return cat("hvd_world_entry_seconds_", what, "{part=\"", part, "\"}");
  };
  EXPECT_EQ(measured_.value(entry("count", "leave")), 1);
  EXPECT_EQ(measured_.value(entry("sum", "leave")), 0);
  EXPECT_DOUBLE_EQ(measured_.value(entry("sum", "wait")), 0.02);
  EXPECT_DOUBLE_EQ(measured_.value(entry("sum", "connect")), 0.3);
  EXPECT_DOUBLE_EQ(measured_.value(entry("sum", "step")), 4);
  EXPECT_EQ(measured_.value("hvd_world_received_bytes_total"), 77);
  EXPECT_EQ(measured_.value("hvd_steps_redone_total"), 5);
}

TEST_F(TwoWorkers, LoseAHost) {
  measured_.find({{{"a", 2}}, {{"b", 1}}});
  measured_.begins(3);
  measured_.happens(event::WorkerReady{1, 3});
  measured_.happens(event::Committed{0, 1, 2});
  EXPECT_EQ(measured_.value("hvd_world_size"), 3);

  measured_.happens(event::AgentGone{1, "was killed"});
  EXPECT_EQ(measured_.value(formed("host_lost")), 1) << measured_.text();
  EXPECT_EQ(measured_.value("hvd_hosts_ended_total{outcome=\"lost\"}"), 1);
  EXPECT_EQ(measured_.value(ended("lost")), 1);
}

TEST_F(TwoWorkers, LoseAHostThatIsSilent) {
  JobStart start = elastic_start();
  start.options.heartbeat_timeout = milliseconds(1'000);
  MeasuredJob measured(start);
  measured.happens(event::Begin{});
  EXPECT_EQ(measured.value("hvd_heartbeat_age_seconds"), -1) << "nobody is listened to yet";
  EXPECT_EQ(measured.value("hvd_heartbeat_timeout_seconds"), 1);
  measured.find({{{"a", 1}}, {{"b", 1}}});
  measured.begins(1);
  measured.begins(2);
  measured.happens(event::Heard{1}, milliseconds(400));
  measured.happens(event::Heard{0}, milliseconds(400));
  EXPECT_DOUBLE_EQ(measured.value("hvd_heartbeat_age_seconds"), 0.4);

  for (int i = 0; i < 8; ++i) {
    measured.happens(event::Heard{0}, milliseconds(100));
    measured.happens(event::Tick{});
  }
  EXPECT_EQ(measured.value("hvd_hosts_ended_total{outcome=\"lost\"}"), 1) << measured.text();
  EXPECT_EQ(measured.value(ended("lost")), 1);
  EXPECT_DOUBLE_EQ(measured.value("hvd_heartbeat_age_seconds"), 0) << "only a is listened to";
}

TEST_F(TwoWorkers, LeaveAtACommit) {
  measured_.happens(event::LeaveRequested{0, 2});
  measured_.happens(event::Tick{});
  const auto before = measured_.value("hvd_world_generation");
  EXPECT_EQ(before, 1);
  measured_.happens(event::Committed{0, 1, 2});
  EXPECT_EQ(measured_.value(formed("left")), 1) << measured_.text();
  EXPECT_EQ(measured_.value(formed("worker_lost")), 0);
  measured_.exits(2, 0);
  EXPECT_EQ(measured_.value(ended("failure")), 0);
}

TEST(JobMetrics, OfAProgramWithoutHvdCountItsGroups) {
  MeasuredJob measured(elastic_start(2));
  measured.happens(event::Begin{});
  measured.find({{{"a", 2}}});
  measured.launched(1);
  measured.launched(2);
  measured.exits(2, 1);
  measured.pass_deadline();
  measured.exits(1, 0, SIGTERM);
  measured.pass_deadline();
  EXPECT_EQ(measured.value(formed("worker_lost")), 1) << measured.text();
  EXPECT_EQ(measured.value("hvd_group_restarts_total"), 1);
  EXPECT_EQ(measured.value(ended("failure")), 1);
  EXPECT_EQ(measured.value(ended("stopped")), 1);
  EXPECT_EQ(measured.value("hvd_worker_restarts_total"), 2);
}

// A change that was asked for is no loss.
TEST(JobMetrics, OfAProgramWithoutHvdSayWhyItsGroupsBegan) {
  MeasuredJob measured(elastic_start(1));
  measured.happens(event::Begin{});
  measured.find({{{"a", 2}}});
  measured.launched(1);
  measured.launched(2);
  measured.happens(event::ScaleRequested{1});
  measured.pass_deadline();
  measured.exits(1, 0, SIGTERM);
  measured.exits(2, 0, SIGTERM);
  measured.pass_deadline();
  EXPECT_EQ(measured.value(formed("left")), 1) << measured.text();
  EXPECT_EQ(measured.value(formed("worker_lost")), 0);
  EXPECT_EQ(measured.value("hvd_group_restarts_total"), 1);
}

TEST_F(TwoWorkers, AreStopped) {
  measured_.happens(event::StopRequested{SIGTERM}, milliseconds(2'000));
  measured_.exits(1, 0);
  measured_.exits(2, 0, SIGTERM);
  EXPECT_EQ(measured_.value(ended("stopped")), 2);
  measured_.happens(event::AgentGone{0, "exited with code 0"}, milliseconds(500));
  EXPECT_EQ(measured_.job().state(), JobState::finished);
  EXPECT_EQ(measured_.value("hvd_job_state{state=\"finished\"}"), 1);
  EXPECT_EQ(measured_.value("hvd_job_state_seconds_total{state=\"running\"}"), 2);
  EXPECT_EQ(measured_.value("hvd_job_state_seconds_total{state=\"closing\"}"), 0.5);
  EXPECT_EQ(measured_.value("hvd_hosts_ended_total{outcome=\"left\"}"), 1);
}

TEST_F(TwoWorkers, AreSuspended) {
  measured_.happens(event::SuspendRequested{SIGTERM});
  measured_.happens(event::Tick{});
  measured_.happens(event::Committed{0, 1, 2});
  EXPECT_EQ(measured_.value(formed("suspended")), 1) << measured_.text();
}

TEST_F(TwoWorkers, WriteOutput) {
  measured_.metrics().add_output(agent_link::Stream::standard_output, 100);
  measured_.metrics().add_output(agent_link::Stream::standard_output, 23);
  measured_.metrics().add_output(agent_link::Stream::standard_error, 7);
  EXPECT_EQ(measured_.value("hvd_worker_output_bytes_total{stream=\"stdout\"}"), 123);
  EXPECT_EQ(measured_.value("hvd_worker_output_bytes_total{stream=\"stderr\"}"), 7);
}

TEST(JobMetrics, OfAStaticJobThatFails) {
  JobStart start;
  start.workers = PlanRequest{{{"a", 1}, {"b", 1}}, 2, false};
  MeasuredJob measured(start);
  measured.happens(event::Begin{});
  measured.happens(event::AgentReady{0, {}});
  measured.happens(event::HostFailed{1, {Step::connect, "connection refused", 1}});
  EXPECT_EQ(measured.value("hvd_hosts_joined_total"), 1);
  EXPECT_EQ(measured.value("hvd_hosts_ended_total{outcome=\"failed\"}"), 1) << measured.text();
  EXPECT_EQ(measured.value("hvd_world_min_size"), -1) << "the world does not change";
}

// An operator's Prometheus has as many series of a large job as of a small one.
TEST_F(TwoWorkers, HaveAsManySeriesAsAThousandHosts) {
  std::vector<event::FoundHost> hosts;
  for (int i = 0; i < 1'000; ++i) hosts.push_back({{cat("h", i), 8}});
  MeasuredJob large(elastic_start());
  large.happens(event::Begin{});
  large.find(hosts);
  large.happens(event::Tick{}, milliseconds(10'000));
  EXPECT_EQ(large.value("hvd_slots"), 8'000);
  EXPECT_EQ(test::metric_values(large.text()).size(), test::metric_values(measured_.text()).size());
}

}  // namespace
}  // namespace hvd::driver
