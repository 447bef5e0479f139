#include "driver/run/job_answers.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "base/security/tls_psk.h"
#include "base/socket.h"
#include "base/text.h"
#include "driver/job/addresses.h"
#include "driver/status/job_status.h"

namespace hvd::driver {
namespace {

std::string text_of(const nlohmann::json& document, int indent) {
  return document.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

struct TokenRequest {
  std::string what;  // "new", "list", "revoke", "rotate"
  std::string id;
  join::JoinTokenTerms terms;
};

// Only hvdrun asks, so that an error need not say much.
Result<TokenRequest> token_request_from(std::string_view text) {
  const Status wrong(Code::invalid_argument, "this is no request about a join token");
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return wrong;

  TokenRequest request;
  bool sound = true;
  const auto read_text = [&](const char* name, std::string& into) {
    if (!json.contains(name)) return;
    sound = sound && json[name].is_string();
    if (sound) into = json[name];
  };
  const auto read_number = [&](const char* name, std::uint32_t& into) {
    if (!json.contains(name)) return;
    sound = sound && json[name].is_number_unsigned() &&
            json[name].get<std::uint64_t>() <= join::JoinTokenTerms::kMost;
    if (sound) into = json[name];
  };
  std::uint32_t seconds = 0;
  read_text("do", request.what);
  read_text("id", request.id);
  read_text("host", request.terms.host);
  read_number("seconds", seconds);
  read_number("uses", request.terms.uses);
  request.terms.time = std::chrono::seconds(seconds);

  const auto known = {"new", "list", "revoke", "rotate"};
  sound = sound && std::find(known.begin(), known.end(), request.what) != known.end();
  if (!sound || request.terms.host != printable(request.terms.host)) return wrong;
  return request;
}

}  // namespace

JobAnswers::JobAnswers(const JobContext& context, const Job& job, const WorkWatch& work,
                       JobRecord& record, ActivityReport& activity, join::JoinTokens& join_tokens,
                       Callbacks callbacks)
    : context_(context),
      job_(job),
      work_(work),
      record_(record),
      activity_(activity),
      join_tokens_(join_tokens),
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
  callbacks.token = [this](std::string_view request, const Answer& answer) {
    const auto changed = change_tokens(request);
    answer(changed.ok(), changed.ok() ? *changed : changed.status().message());
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

// `request`: what to do, and with which token or on which terms; hvdrun token writes it.
Result<std::string> JobAnswers::change_tokens(std::string_view request) {
  if (!context_.spec.join || !context_.spec.elastic) {
    return Status(Code::failed_precondition,
                  "agents cannot join it while it runs: that takes --join-bind and an elastic job");
  }

  const auto asked = token_request_from(request);
  HVD_RETURN_IF_ERROR(asked.status());
  const TimePoint now = Clock::now();
  if (asked->what == "list") return join_tokens_.to_text(now);
  if (asked->what == "revoke") {
    HVD_RETURN_IF_ERROR(join_tokens_.revoke(asked->id));
    return cat("nobody joins by token ", asked->id, " any more");
  }

  const bool is_new = asked->what == "new";
  const auto made =
      is_new ? join_tokens_.make(asked->terms, now) : join_tokens_.rotate(asked->id, now);
  HVD_RETURN_IF_ERROR(made.status());
  context_.observer.on_notice(cat("join token ", made->id, " was made",
                                  is_new ? "" : cat(" in the place of token ", asked->id)));
  return to_text(*made);
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
