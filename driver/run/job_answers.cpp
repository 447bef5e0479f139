#include "driver/run/job_answers.h"

#include <chrono>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "base/socket.h"
#include "base/text.h"
#include "driver/job/addresses.h"
#include "driver/status/job_status.h"

namespace hvd::driver {
namespace {

std::string text_of(const nlohmann::json& document, int indent) {
  return document.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

JobAnswers::JobAnswers(const JobContext& context, const Job& job, const WorkWatch& work,
                       JobRecord& record, ActivityReport& activity, Callbacks callbacks)
    : context_(context),
      job_(job),
      work_(work),
      record_(record),
      activity_(activity),
      callbacks_(std::move(callbacks)),
      control_(context.io, control_callbacks()) {}

void JobAnswers::begin(Sockets sockets) {
  if (const Status open = control_.start(context_.job_id()); !open.ok()) {
    context_.observer.on_progress(cat("hvdrun status cannot ask this job: ", open.message()));
  }
  if (context_.spec.metrics) serve_metrics(std::move(sockets.metrics));
  if (context_.spec.page) serve_page(std::move(sockets.page));
}

void JobAnswers::serve_metrics(UniqueFd socket) {
  metrics_server_.emplace(context_.io, context_.spec.metrics->token,
                          [this] { return metrics_reply(); });
  if (const Status open = metrics_server_->start(std::move(socket)); !open.ok()) {
    context_.observer.on_warning(
        cat("the metrics are not served (--metrics-bind): ", open.message()));
  }
}

void JobAnswers::serve_page(UniqueFd socket) {
  const auto bound = local_address(socket.get());
  Status open = bound.status();
  if (open.ok()) {
    page_.emplace(context_.io, context_.job_id(), *bound, [this] { return text_of(status(), -1); });
    open = page_->start(std::move(socket));
  }
  if (!open.ok()) {
    page_.reset();
    return context_.observer.on_warning(cat("the job has no status page: ", open.message()));
  }
  if (!is_loopback_address(bound->host)) {
    context_.observer.on_warning(
        cat("the status page at ", bound->to_string(),
            " speaks plain HTTP: anybody on the network can open it, too"));
  }
  context_.observer.on_notice(cat("the job's status page, for one browser: ", page_->make_link()));
}

void JobAnswers::step(const Event& event, const std::vector<Action>& actions, TimePoint now,
                      std::chrono::system_clock::time_point wall_time) {
  if (!page_ || !page_->wants_events() || is_quiet(event, actions)) return;
  page_->add_event(journal_line(event, actions, job_.hosts(), now, wall_time));
}

void JobAnswers::end(int exit_code, const std::string& reason) {
  if (page_) page_->end(exit_code, reason);
}

nlohmann::json JobAnswers::status() const {
  return job_status(context_.identity, job_, work_, record_.worlds(),
                    std::chrono::system_clock::now(), Clock::now());
}

HttpReply JobAnswers::metrics_reply() {
  return {200, record_.metrics_text(work_, job_, Clock::now()), kMetricsType};
}

ControlServer::Callbacks JobAnswers::control_callbacks() {
  ControlServer::Callbacks callbacks;
  callbacks.status = [this] { return text_of(status(), 2); };
  callbacks.metrics = [this] { return metrics_reply(); };
  callbacks.page_link = [this] { return page_ ? page_->make_link() : std::string(); };
  callbacks.dump = [this](ActivityReport::Tell tell) { activity_.request_for(std::move(tell)); };
  callbacks.stop = callbacks_.stop;

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
void JobAnswers::request_drain(std::string_view host, bool undo, Answer answer) {
  const std::string name(trim(host));
  if (name.empty() || name != printable(name)) {
    return answer(false, cat(quoted(name), " is not the name of a host"));
  }
  request(event::DrainRequested{name, undo}, std::move(answer));
}

void JobAnswers::request(const Event& event, Answer answer) {
  // After its end the job answers nothing.
  if (job_.state() == JobState::finished) return answer(false, "it has ended");
  askers_.push_back(std::move(answer));
  callbacks_.handle(event);
}

void JobAnswers::answer(const action::Answer& answer) {
  const auto tell = std::move(askers_.front());
  askers_.pop_front();
  tell(answer.accepted, answer.text);
}

}  // namespace hvd::driver
