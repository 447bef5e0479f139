#include "driver/output/worker_reporter.h"

#include <variant>

namespace hvd::driver {
namespace {

// Sets the worker's bit; true if it was not set before.
bool mark(std::vector<bool>& workers, std::size_t worker) {
  if (worker >= workers.size()) workers.resize(worker + 1);
  if (workers[worker]) return false;
  workers[worker] = true;
  return true;
}

}  // namespace

void WorkerReporter::on_event(const Event& event) {
  if (const auto* const launched = std::get_if<event::Launched>(&event)) {
    on(*launched);
  } else if (const auto* const exited = std::get_if<event::Exited>(&event)) {
    on(*exited);
  } else if (const auto* const gone = std::get_if<event::AgentGone>(&event)) {
    host_gone(gone->host);
  }
}

void WorkerReporter::on(const event::Launched& event) {
  const std::size_t index = job_.index_of(event.incarnation);
  if (index == job_.workers().size()) return;
  const JobWorker& worker = job_.workers()[index];
  // Only if the job has accepted it, and not for the second time.
  if (worker.host == event.host && worker.pid == event.pid && worker.pid != 0 &&
      mark(started_, index)) {
    observer_.on_started(view_of(worker));
  }
}

void WorkerReporter::on(const event::Exited& event) {
  const std::size_t index = job_.index_of(event.incarnation);
  if (index == job_.workers().size() || job_.workers()[index].host != event.host ||
      job_.workers()[index].state != WorkerState::exited) {
    return;
  }
  ended(index, exit_text(event));
}

void WorkerReporter::host_gone(HostIndex host) {
  for (const std::size_t index : job_.hosts()[host].workers) {
    output_.close_all(index);
    ended(index, "ended with its agent");
  }
}

void WorkerReporter::ended(std::size_t worker, std::string_view how) {
  if (worker >= started_.size() || !started_[worker] || !mark(ended_, worker)) return;
  observer_.on_exited(view_of(job_.workers()[worker]), how);
}

}  // namespace hvd::driver
