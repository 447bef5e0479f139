#include "driver/driver.h"

#include <optional>
#include <utility>

#include "base/port_range.h"
#include "base/socket.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "driver/job_runner.h"

namespace hvd::driver {

static Outcome failed_outcome(std::string reason) {
  Outcome outcome;
  outcome.exit_code = 1;
  outcome.reason = std::move(reason);
  return outcome;
}

static Result<UniqueFd> listen_at(const SocketAddress& bind, const ListenPorts& ports) {
  return bind.port != 0 ? listen_tcp(bind) : listen_tcp_in(ports, bind.host);
}

// Before anything else happens, since somebody may wait for its port.
static Result<UniqueFd> listen_for_metrics(const MetricsSpec& spec, Observer& observer) {
  auto listening = listen_at(spec.bind, spec.ports);
  HVD_RETURN_IF_ERROR(listening.status().with_context("--metrics-bind"));
  const auto address = local_address(listening->get());
  HVD_RETURN_IF_ERROR(address.status().with_context("--metrics-bind"));
  observer.on_notice(cat("the job's metrics are at http://", address->to_string(), "/metrics"));
  return listening;
}

Outcome run_job(const JobSpec& spec, Observer& observer) {
  if (spec.command.empty()) return failed_outcome("there is no program to run");

  std::optional<Journal> journal;
  if (!spec.journal_file.empty()) {
    auto created = Journal::create(spec.journal_file);
    if (!created.ok()) return failed_outcome(cat("--events: ", created.status().message()));
    journal = *std::move(created);
  }
  JobRunner::Sockets sockets;
  if (spec.metrics) {
    auto listening = listen_for_metrics(*spec.metrics, observer);
    if (!listening.ok()) return failed_outcome(listening.status().message());
    sockets.metrics = *std::move(listening);
  }
  if (spec.page) {
    auto listening = listen_at(spec.page->bind, spec.page->ports);
    if (!listening.ok()) {
      return failed_outcome(listening.status().with_context("--status-page").message());
    }
    sockets.page = *std::move(listening);
  }

  boost::asio::io_context io{1};
  Signals signals(io);
  RequestSignals requests(io);
  const RaisedFileLimit open_files;
  auto preparation = prepare(io, signals, spec, observer);
  if (const int signal = signals.waiting(); signal != 0) {
    Outcome outcome = failed_outcome(cat("interrupted by ", signal_text(signal)));
    outcome.exit_code = 128 + signal;
    return outcome;
  }
  if (!preparation) return failed_outcome(preparation.status().message());

  const auto join_listener = preparation->join_listener;  // until the job has ended
  JobRunner runner(io, signals, requests, open_files, spec, observer, *std::move(preparation),
                   std::move(journal), std::move(sockets));
  runner.announce();
  return runner.run();
}

}  // namespace hvd::driver
