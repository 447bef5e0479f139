#include "driver/driver.h"

#include <optional>
#include <utility>

#include "base/machine/machine.h"
#include "base/port_range.h"
#include "base/security/crypto.h"
#include "base/socket.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "driver/job_runner.h"
#include "driver/journal/kept_journals.h"

namespace hvd::driver {

constexpr std::size_t kJobIdSize = 8;  // bytes; the id is not a secret

static Outcome failed_outcome(std::string reason) {
  Outcome outcome;
  outcome.exit_code = 1;
  outcome.reason = std::move(reason);
  return outcome;
}

// Before anything else happens, since somebody may wait for its port.
static Result<UniqueFd> listen_for_metrics(const MetricsSpec& spec, Observer& observer) {
  auto listening =
      spec.bind.port != 0 ? listen_tcp(spec.bind) : listen_tcp_in(spec.ports, spec.bind.host);
  HVD_RETURN_IF_ERROR(listening.status().with_context("--metrics-bind"));
  auto address = local_address(listening->get());
  HVD_RETURN_IF_ERROR(address.status().with_context("--metrics-bind"));
  // All addresses of this machine are no address that anybody could ask.
  if (address->host == "0.0.0.0" || address->host == "::") address->host = machine_name();
  observer.on_notice(cat("the job's metrics are at http://", address->to_string(), "/metrics"));
  return listening;
}

// A job runs as well without a journal that nobody has asked for.
static Result<std::optional<Journal>> journal_of(const JobSpec& spec, const std::string& job_id,
                                                 Observer& observer) {
  if (!spec.journal) return std::optional<Journal>();
  const bool is_named = !spec.journal->file.empty();
  auto created = is_named ? Journal::create(spec.journal->file) : create_kept_journal(job_id);
  if (created.ok()) return std::optional<Journal>(*std::move(created));
  if (is_named) return created.status();
  observer.on_progress(cat("the events of this job are not kept: ", created.status().message()));
  return std::optional<Journal>();
}

Outcome run_job(const JobSpec& spec, Observer& observer) {
  if (spec.command.empty()) return failed_outcome("there is no program to run");

  const std::string job_id = to_hex(random_bytes(kJobIdSize));
  auto journal = journal_of(spec, job_id, observer);
  if (!journal.ok()) return failed_outcome(cat("--events: ", journal.status().message()));
  UniqueFd metrics_socket;
  if (spec.metrics) {
    auto listening = listen_for_metrics(*spec.metrics, observer);
    if (!listening.ok()) return failed_outcome(listening.status().message());
    metrics_socket = *std::move(listening);
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
                   job_id, *std::move(journal), std::move(metrics_socket));
  runner.announce();
  return runner.run();
}

}  // namespace hvd::driver
