// The answers of a running job to hvdrun status and its like, to a Prometheus, and to the browser
// of the status page. Requests for a change become events of the job.
//
// For the driver's thread.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/descriptors.h"
#include "base/status.h"
#include "driver/job/job.h"
#include "driver/join/join_tokens.h"
#include "driver/output/activity_report.h"
#include "driver/run/job_context.h"
#include "driver/run/job_record.h"
#include "driver/status/control_server.h"
#include "driver/status/metrics_server.h"
#include "driver/status/page_server.h"
#include "driver/work/work_watch.h"

namespace hvd::driver {

class JobAnswers {
 public:
  // They listen already, and nobody answers there yet. Empty: nobody shall.
  struct Sockets {
    UniqueFd metrics;
    UniqueFd page;
  };
  struct Callbacks {
    std::function<void(const Event& event)> handle;
    std::function<void()> stop;  // as SIGTERM does
  };

  // All references outlive this.
  JobAnswers(const JobContext& context, const Job& job, const WorkWatch& work, JobRecord& record,
             ActivityReport& activity, join::JoinTokens& join_tokens, Callbacks callbacks);
  JobAnswers(const JobAnswers&) = delete;
  JobAnswers& operator=(const JobAnswers&) = delete;

  // What cannot be served is warned of.
  void begin(Sockets sockets);
  // The job has answered `event` with `actions`: for the page.
  void step(const Event& event, const std::vector<Action>& actions, TimePoint now,
            std::chrono::system_clock::time_point wall_time);
  // The job answers the oldest request that waits.
  void answer(const action::Answer& answer);
  void end(int exit_code, const std::string& reason);

 private:
  using Answer = ControlServer::Callbacks::Answer;

  ControlServer::Callbacks control_callbacks();
  void serve_metrics(UniqueFd socket);
  void serve_page(UniqueFd socket);
  nlohmann::json status() const;
  HttpReply metrics_reply();
  void request_drain(std::string_view host, bool undo, Answer answer);
  void request(const Event& event, Answer answer);
  Result<std::string> change_tokens(std::string_view request);

  const JobContext& context_;
  const Job& job_;
  const WorkWatch& work_;
  JobRecord& record_;
  ActivityReport& activity_;
  join::JoinTokens& join_tokens_;
  const Callbacks callbacks_;
  ControlServer control_;
  std::optional<MetricsServer> metrics_server_;
  std::optional<PageServer> page_;
  std::deque<Answer> askers_;  // of the requests that the job has not answered
};

}  // namespace hvd::driver
