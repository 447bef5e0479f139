// The metrics of a job of a test, and whether they agree with the job. To be told every step.
#pragma once

#include <numeric>
#include <string>

#include "base/text.h"
#include "driver/metrics/job_metrics.h"
#include "tests/driver/metrics/metric_text.h"

namespace hvd::driver {

class KeptMetrics {
 public:
  explicit KeptMetrics(const JobStart& start) : metrics_({.id = "kept"}, start) {}

  void step(const Event& event, const std::vector<Action>& actions, const Job& job, TimePoint now) {
    metrics_.step(event, actions, job, now);
    for (const auto& action : actions) {
      const auto* const published = std::get_if<action::PublishWorld>(&action);
      if (published != nullptr && published->world.state == WorldState::effective) ++worlds_;
    }
  }

  // Looks whether the metrics agree with the job. That takes far longer than a step.
  void check(const Job& job, TimePoint now) {
    const auto values = test::metric_values(metrics_.text(job, now));
    const auto total = [&](const std::string& family) {
      return std::accumulate(values.begin(), values.end(), 0.0, [&](double sum, const auto& one) {
        return one.first == family || one.first.starts_with(family + "{") ? sum + one.second : sum;
      });
    };

    std::size_t live = 0;
    std::size_t started = 0;
    for (const auto& worker : job.workers()) {
      if (!has_ended(worker.state)) ++live;
      if (worker.pid != 0) ++started;
    }
    expect(total("hvd_workers"), live, "live workers");
    expect(total("hvd_workers_started_total"), started, "started workers");
    expect(total("hvd_worlds_formed_total"), worlds_, "worlds");
    expect(total("hvd_job_state"), 1, "states");
    if (job.state() != JobState::finished) return;
    expect(total("hvd_workers_ended_total"), job.workers().size(), "ended workers");
    expect(total("hvd_hosts"), 0, "hosts at the end");
    for (const auto& [name, value] : values) {
      if (value < 0) expect(value, 0, name);
    }
  }

  // The first invariant that was broken; "" if all hold.
  const std::string& wrong() const { return wrong_; }

 private:
  void expect(double measured, std::size_t real, const std::string& what) {
    if (measured == static_cast<double>(real) || !wrong_.empty()) return;
    wrong_ = cat("the metrics count ", measured, " ", what, ", and there are ", real);
  }

  JobMetrics metrics_;
  std::size_t worlds_ = 0;
  std::string wrong_;
};

}  // namespace hvd::driver
