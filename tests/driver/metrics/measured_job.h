// A job of a test with its metrics: events go in, and what is measured can be asked for.
#pragma once

#include <chrono>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "driver/metrics/job_metrics.h"
#include "tests/driver/metrics/metric_text.h"

namespace hvd::driver {

inline JobIdentity measured_identity(const JobStart& start) {
  JobIdentity identity{.id = "a0", .command = {"/opt/train", "--password=secret"}};
  identity.elastic = std::holds_alternative<JobStart::Elastic>(start.workers);
  return identity;
}

class MeasuredJob {
 public:
  explicit MeasuredJob(const JobStart& start)
      : job_(start.make()), metrics_(measured_identity(start), start) {}

  void happens(const Event& event, std::chrono::milliseconds after = {}) {
    now_ += after;
    metrics_.step(event, job_->step(event, now_), *job_, now_);
  }
  // Lets the time pass until the job asks for a tick.
  void pass_deadline() {
    ASSERT_NE(job_->next_deadline(), kNever);
    now_ = job_->next_deadline();
    happens(event::Tick{});
  }

  const Job& job() const { return *job_; }
  JobMetrics& metrics() { return metrics_; }
  std::string text() { return metrics_.text(*job_, now_); }
  // -1: there is no such metric.
  double value(const std::string& name) {
    const auto values = test::metric_values(text());
    const auto found = values.find(name);
    return found == values.end() ? -1 : found->second;
  }

  // These hosts are found, ready, and have addresses.
  void find(const std::vector<event::FoundHost>& hosts) {
    const HostIndex first = job_->hosts().size();
    happens(event::HostsFound{hosts});
    for (HostIndex host = first; host < job_->hosts().size(); ++host) {
      happens(event::AgentReady{host, {}});
      happens(event::AddressFound{host, cat("10.0.0.", host + 1)});
    }
  }
  void launched(Incarnation worker) {
    happens(event::Launched{host_of(worker), worker, static_cast<int>(100 + worker)});
  }
  void begins(Incarnation worker) {
    launched(worker);
    happens(event::Initialised{host_of(worker), worker});
  }
  void exits(Incarnation worker, int code, int signal = 0) {
    happens(event::Exited{.host = host_of(worker),
                          .incarnation = worker,
                          .exit_code = code,
                          .signal_number = signal});
  }
  HostIndex host_of(Incarnation worker) const {
    return job_->workers()[job_->index_of(worker)].host;
  }

 private:
  const std::unique_ptr<Job> job_;
  JobMetrics metrics_;
  TimePoint now_{std::chrono::hours(1)};
};

}  // namespace hvd::driver
