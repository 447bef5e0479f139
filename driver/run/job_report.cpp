#include "driver/run/job_report.h"

#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <boost/asio/post.hpp>

#include "base/log.h"
#include "base/protocol/worker_link.h"
#include "base/text.h"

namespace hvd::driver {
namespace {

constexpr std::string_view kLostState = "committed state lost: ";  // worker/elastic/agreement.cpp

}  // namespace

JobReport::JobReport(const JobContext& context, const Job& job, HostTable& hosts,
                     const WorkWatch& work)
    : context_(context),
      job_(job),
      hosts_(hosts),
      work_(work),
      output_(
          job, context.observer,
          [this](const agent_link::Credit& credit) { return_credit(credit); },
          [&io = context.io](std::function<void()> work_there) {
            boost::asio::post(io, std::move(work_there));
          }),
      reporter_(job, context.observer, output_),
      activity_(context.io, activity_callbacks()),
      progress_timer_(context.io, [this] { report_waiting(); }) {}

void JobReport::on_event(const Event& event) {
  if (const std::string text = host_log_text(event, job_); !text.empty()) HVD_LOG(info, text);
  reporter_.on_event(event);
}

void JobReport::return_credit(const agent_link::Credit& credit) {
  const std::size_t index = job_.index_of(credit.incarnation);
  if (index < job_.workers().size()) hosts_.send(job_.workers()[index].host, credit);
}

// ---- what the job waits for ----

void JobReport::report_waiting() {
  Observer& observer = context_.observer;
  if (!job_.at_work()) {
    const bool prepares = job_.preparing();
    return observer.on_waiting({prepares ? Waiting::For::start : Waiting::For::end,
                                [this] { return job_.waiting_for(Clock::now()); }, prepares});
  }
  std::string init = job_.init_text(Clock::now());
  if (!init.empty()) {
    // The job itself warns of it, and says more.
    return observer.on_waiting({Waiting::For::init, [&init] { return init; }, false});
  }
  const auto transfer = work_.transfer();
  if (transfer) {
    return observer.on_waiting({Waiting::For::state, [&] { return transfer_text(*transfer); }});
  }
  observer.on_waiting_over();
}

// ---- what the workers do ----

std::map<std::uint64_t, ActivityRow> JobReport::live_workers() const {
  std::map<std::uint64_t, ActivityRow> rows;
  for (const JobWorker& worker : job_.workers()) {
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

ActivityReport::Callbacks JobReport::activity_callbacks() {
  ActivityReport::Callbacks callbacks;
  callbacks.ask = [this](const agent_link::AskActivity& question) {
    hosts_.broadcast(share(question.encode()));
  };
  callbacks.workers = [this] { return live_workers(); };
  callbacks.say = [this](std::string_view text) { context_.observer.on_notice(text); };
  return callbacks;
}

void JobReport::on_activity(HostIndex host, agent_link::WorkerActivity activity,
                            std::uint64_t generation) {
  if (activity.id != worker_link::Activity::kAtTheEnd) {
    return activity_.answered(std::move(activity));
  }
  const std::size_t index = job_.index_of(activity.incarnation);
  if (index >= job_.workers().size()) return;
  const JobWorker& worker = job_.workers()[index];
  if (worker.host != host || worker.member.rank < 0) return;
  // A report that belongs to an older world, and comes late, says nothing of this one.
  if (activity.generation != 0 && activity.generation != generation) return;
  last_activities_.add(activity.incarnation,
                       {worker.member.rank, worker.member.host, worker.member.slot, worker.pid,
                        activity.in_flight, activity.last, activity.missing});
}

// ---- the end ----

Failure JobReport::failure(const JobFailure& first) const {
  Failure failure;
  failure.worker = {first.rank, first.host, first.slot, first.incarnation, first.pid};
  failure.cause = first.cause;
  failure.stderr_tail = output_.stderr_tail(first.incarnation);
  failure.hosts = first.hosts;
  return failure;
}

std::string JobReport::lost_state() const { return output_.find_in_stderr(kLostState); }

void JobReport::end() {
  for (HostIndex host = 0; host < hosts_.size(); ++host) reporter_.host_gone(host);
}

std::string host_log_text(const Event& event, const Job& job) {
  const auto host = [&job](HostIndex index) { return cat("host ", job.hosts()[index].name, ": "); };
  if (const auto* const progress = std::get_if<event::HostProgress>(&event)) {
    return cat(host(progress->host), name_of(progress->step));
  }
  if (const auto* const ready = std::get_if<event::AgentReady>(&event)) {
    return cat(host(ready->host), "its agent is ready; it counts ", ready->capacity.cores,
               " cores and ", ready->capacity.gpus, " GPUs");
  }
  if (const auto* const found = std::get_if<event::AddressFound>(&event)) {
    return cat(host(found->host), "the others reach it at ", found->address);
  }
  if (const auto* const chosen = std::get_if<event::AddressesChosen>(&event)) {
    std::vector<std::string> places;
    for (HostIndex index = 0; index < chosen->addresses.size(); ++index) {
      places.push_back(cat(job.hosts()[index].name, " at ", chosen->addresses[index]));
    }
    return cat("the hosts reach each other: ", hvd::join(places, ", "));
  }
  return {};
}

}  // namespace hvd::driver
