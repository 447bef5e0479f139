#include "driver/metrics/state_metrics.h"

#include <filesystem>

#include <hvd/version.h>

#include "base/printable.h"

namespace hvd::driver {
namespace {

// A program's arguments may hold secrets; its name does not.
std::string program_of(const JobIdentity& job) {
  if (job.command.empty()) return {};
  return printable(std::filesystem::path(job.command.front()).filename().string());
}

}  // namespace

StateMetrics::StateMetrics(prometheus::Registry& registry, const JobIdentity& job,
                           const JobStart& start)
    : in_state_(gauge_family(registry, "hvd_job_state",
                             "1 for the state that the job is in, 0 for all others."),
                "state", names_of_states<JobState, kJobStates>()),
      time_in_state_(counter_family(registry, "hvd_job_state_seconds_total",
                                    "Time that the job has spent in each state."),
                     "state", names_of_states<JobState, kJobStates>()),
      silence_(gauge_family(registry, "hvd_heartbeat_age_seconds",
                            "Time since the last sign of life of the host that has been silent for "
                            "the longest time.")) {
  gauge_family(registry, "hvd_job_info", "What the job is; the value is always 1.")
      .Add({{"job_id", job.id},
            {"program", program_of(job)},
            {"elastic", job.elastic ? "true" : "false"},
            {"version", HVD_VERSION_STRING}})
      .Set(1);
  const auto started = std::chrono::duration<double>(job.started.time_since_epoch());
  gauge_family(registry, "hvd_job_start_time_seconds",
               "When the job was started, in seconds since 1970.")
      .Add({})
      .Set(started.count());
  const auto timeout = start.options.heartbeat_timeout;
  if (timeout.count() == 0) return;
  gauge_family(registry, "hvd_heartbeat_timeout_seconds",
               "Silence after which a host counts as lost (--heartbeat-timeout).")
      .Add({})
      .Set(seconds_of(timeout));
}

void StateMetrics::pass_time(TimePoint now) {
  if (since_ != kNever) time_in_state_[state_].Increment(seconds_of(now - since_));
  since_ = now;
}

void StateMetrics::on_step(const JobStep& step) {
  if (since_ != kNever && step.job.state() == state_) return;
  pass_time(step.now);
  state_ = step.job.state();
}

void StateMetrics::look(const Job& job, TimePoint now) {
  pass_time(now);
  for (std::size_t state = 0; state < kJobStates; ++state) {
    in_state_[state].Set(static_cast<JobState>(state) == state_ ? 1 : 0);
  }

  const auto silence = job.longest_silence(now);
  if (silence && longest_silence_ == nullptr) longest_silence_ = &silence_.Add({});
  if (silence) return longest_silence_->Set(seconds_of(*silence));
  if (longest_silence_ != nullptr) silence_.Remove(longest_silence_);
  longest_silence_ = nullptr;
}

}  // namespace hvd::driver
