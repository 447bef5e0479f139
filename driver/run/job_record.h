// What is kept of a running job: its journal, its metrics, its account, and the worlds that it had.
// All are told each step of the job; none of them changes it.
//
// For the driver's thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "driver/job/job.h"
#include "driver/job/job_account.h"
#include "driver/job/job_options.h"
#include "driver/journal/journal.h"
#include "driver/metrics/job_metrics.h"
#include "driver/run/job_context.h"
#include "driver/status/job_status.h"

namespace hvd::driver {

class JobRecord {
 public:
  // `context` outlives this.
  // `state`: the journal from which another driver may go on with the job.
  JobRecord(const JobContext& context, const JobStart& start, std::optional<Journal> journal,
            std::optional<Journal> state);
  JobRecord(const JobRecord&) = delete;
  JobRecord& operator=(const JobRecord&) = delete;

  // Before the first step.
  void begin(const JobStart& start);
  // The actions with which `job` has answered, and the job after that.
  void step(const Event& event, const std::vector<Action>& actions, const Job& job, TimePoint now,
            std::chrono::system_clock::time_point wall_time);
  // The first line of an earlier driver's journal.
  void relive_head(const std::string& line);
  // A step of an earlier driver, which has written it as this line.
  void relive(const std::string& line, const Event& event, const std::vector<Action>& actions,
              const Job& job, TimePoint then);
  // Waits until what another driver would need is on the disk. If it cannot be written no other
  // driver will go on with the job; that is said once.
  void keep();
  // A world of an elastic job has taken force.
  void add_world(const WorldDocument& world, const std::string& why);
  void add_output(agent_link::Stream stream, std::size_t bytes) {
    metrics_.add_output(stream, bytes);
  }

  const std::vector<PastWorld>& worlds() const { return worlds_; }
  // A line on the newest world after the first one of which it is known how long its members took
  // to come into it; empty: there is none.
  std::string last_recovery_text() const;
  JobSummary summary(const Job& job, TimePoint now) const { return account_.summary(job, now); }
  // In the text format of Prometheus.
  std::string metrics_text(const WorkWatch& work, const Job& job, TimePoint now);

  // Waits for the journal to be written. Returns its file; empty: there is none.
  std::string finish();

 private:
  void count(const Event& event, const std::vector<Action>& actions, const Job& job, TimePoint now);
  void warn_of_journal(const Status& written);
  void lose_state(const Status& written);
  void tell_of_journal(const std::string& text);

  const JobContext& context_;
  std::optional<Journal> journal_;
  std::optional<Journal> state_;
  JobMetrics metrics_;
  JobAccount account_;
  std::vector<PastWorld> worlds_;
};

}  // namespace hvd::driver
