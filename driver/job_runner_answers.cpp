// The answers of a running job: to hvdrun status and its like, to a Prometheus, to the browsers of
// the status page. Requests become events of the job.
#include <chrono>
#include <csignal>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "base/socket.h"
#include "base/text.h"
#include "driver/job/addresses.h"
#include "driver/job/job_io.h"
#include "driver/job_runner.h"

namespace hvd::driver {

void JobRunner::serve_metrics() {
  if (!spec_.metrics) return;
  metrics_server_.emplace(io_, spec_.metrics->token, [this] { return metrics_reply(); });
  if (const Status open = metrics_server_->start(std::move(sockets_.metrics)); !open.ok()) {
    observer_.on_warning(cat("the metrics are not served (--metrics-bind): ", open.message()));
  }
}

void JobRunner::serve_page() {
  if (!spec_.page) return;
  const auto bound = local_address(sockets_.page.get());
  Status open = bound.status();
  if (open.ok()) {
    page_.emplace(io_, job_id_, *bound, [this] {
      return status().dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    });
    open = page_->start(std::move(sockets_.page));
  }
  if (!open.ok()) {
    page_.reset();
    return observer_.on_warning(cat("the job has no status page: ", open.message()));
  }
  if (!is_loopback_address(bound->host)) {
    observer_.on_warning(cat("the status page at ", bound->to_string(),
                             " speaks plain HTTP: anybody on the network can open it, too"));
  }
  observer_.on_notice(cat("the job's status page, for one browser: ", page_->make_link()));
}

std::map<std::uint64_t, ActivityRow> JobRunner::live_workers() const {
  std::map<std::uint64_t, ActivityRow> rows;
  for (std::size_t index = 0; index < job_->workers().size(); ++index) {
    const JobWorker& worker = job_->workers()[index];
    const bool lives = worker.state >= WorkerState::launching && worker.state <= WorkerState::done;
    if (!lives) continue;
    ActivityRow& row = rows[worker.member.incarnation];
    row.rank = worker.member.rank;
    row.host = worker.member.host;
    row.slot = worker.member.slot;
    row.pid = worker.pid;
  }
  return rows;
}

ActivityReport::Callbacks JobRunner::activity_callbacks() {
  ActivityReport::Callbacks callbacks;
  callbacks.ask = [this](const agent_link::AskActivity& question) {
    broadcast(share(question.encode()));
  };
  callbacks.workers = [this] { return live_workers(); };
  callbacks.say = [this](std::string_view text) { observer_.on_notice(text); };
  return callbacks;
}

nlohmann::json JobRunner::status() const {
  return job_status(identity_, *job_, work_, worlds_, std::chrono::system_clock::now(),
                    Clock::now());
}

ControlServer::Callbacks JobRunner::control_callbacks() {
  ControlServer::Callbacks callbacks;
  callbacks.status = [this] {
    return status().dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  callbacks.metrics = [this] { return metrics_reply(); };
  callbacks.page_link = [this] { return page_ ? page_->make_link() : std::string(); };
  callbacks.dump = [this](ActivityReport::Tell answer) {
    activity_.request_for(std::move(answer));
  };
  callbacks.stop = [this] { on_signal(SIGTERM); };

  using Answer = ControlServer::Callbacks::Answer;
  callbacks.drain = [this](std::string_view host, Answer answer) {
    request_drain(host, false, std::move(answer));
  };
  callbacks.undrain = [this](std::string_view host, Answer answer) {
    request_drain(host, true, std::move(answer));
  };
  callbacks.scale = [this](std::string_view size, Answer answer) {
    const auto number = parse_number<int>(trim(size));
    if (!number) return answer(false, cat(quoted(size), " is not a number of workers"));
    request(event::ScaleRequested{*number}, std::move(answer));
  };
  return callbacks;
}

// A name that a host could have: its journal says the same as what was asked for.
void JobRunner::request_drain(std::string_view host, bool undo,
                              ControlServer::Callbacks::Answer answer) {
  const std::string name(trim(host));
  if (name.empty() || name != printable(name)) {
    return answer(false, cat(quoted(name), " is not the name of a host"));
  }
  request(event::DrainRequested{name, undo}, std::move(answer));
}

void JobRunner::request(const Event& event, ControlServer::Callbacks::Answer answer) {
  // After its end the job answers nothing.
  if (job_->state() == JobState::finished) return answer(false, "it has ended");
  askers_.push_back(std::move(answer));
  handle(event);
}

HttpReply JobRunner::metrics_reply() {
  const TimePoint now = Clock::now();
  metrics_.look_at_work(work_, *job_, now);
  return {200, metrics_.text(*job_, now), kMetricsType};
}

}  // namespace hvd::driver
