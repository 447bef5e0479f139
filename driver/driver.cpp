#include "driver/driver.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <utility>

#include <boost/asio/post.hpp>

#include "base/descriptors.h"
#include "base/machine/child_process.h"
#include "base/machine/machine.h"
#include "base/port_range.h"
#include "base/security/crypto.h"
#include "base/socket.h"
#include "base/text.h"
#include "driver/core/end_watch.h"
#include "driver/job/addresses.h"
#include "driver/journal/journal.h"
#include "driver/run/job_runner.h"

namespace hvd::driver {

static Outcome failed_outcome(std::string reason) {
  Outcome outcome;
  outcome.exit_code = 1;
  outcome.reason = std::move(reason);
  return outcome;
}

// Before anything else happens, since somebody may wait for its port.
static Result<UniqueFd> listen_for_metrics(const MetricsSpec& spec, Observer& observer) {
  auto listening = listen_tcp(spec.bind, spec.ports);
  HVD_RETURN_IF_ERROR(listening.status().with_context("--metrics-bind"));
  auto address = local_address(listening->get());
  HVD_RETURN_IF_ERROR(address.status().with_context("--metrics-bind"));
  // All addresses of this machine are no address that anybody could ask.
  if (address->host == "0.0.0.0" || address->host == "::") address->host = machine_name();
  observer.on_notice(cat("the job's metrics are at http://", address->to_string(), "/metrics"));
  return listening;
}

// A job on this machine alone does not need the interfaces and the address that were named for it,
// but a wrong name is a mistake all the same. A job with other hosts finds out when it looks for
// its addresses, and then says what each host has.
static Status check_own_addresses(const JobSpec& spec, const Preparation& preparation) {
  const bool only_here =
      !spec.join && (!spec.elastic || spec.elastic->discovery_script.empty()) &&
      std::all_of(preparation.hosts.begin(), preparation.hosts.end(),
                  [&](const HostSlots& host) { return preparation.local.contains(host.name); });
  if (!only_here) return {};
  const auto interfaces = machine_interfaces();
  const std::string& advertised = spec.advertise_address;
  if (advertised.empty()) {
    return check_interfaces(interfaces, spec.network_interfaces).with_context("on this machine");
  }
  const auto listening = listen_tcp({advertised, 0});
  if (listening.ok()) return {};
  return Status(listening.status().code(),
                cat("--advertise-address ", advertised,
                    ": this machine cannot listen there: ", listening.status().message(),
                    "; its addresses are on ", interfaces_text(interfaces)));
}

// A job runs as well without a journal for which nobody has named a file.
static std::optional<Journal> kept_journal(const std::string& job_id, Observer& observer) {
  auto created = create_kept_journal(job_id);
  if (created.ok()) return *std::move(created);
  const std::string text = cat("the events of this job are not kept: ", created.status().message());
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing changes the environment
  if (std::getenv(kEventsDirectoryVariable) != nullptr) {
    observer.on_warning(text);
  } else {
    observer.on_progress(text);
  }
  return std::nullopt;
}

namespace {

// Serves requests to stop for as long as this object exists.
class Stopping {
 public:
  Stopping(StopRequest* request, boost::asio::io_context& io, Signals& signals)
      : request_(request) {
    if (request_ == nullptr) return;
    request_->serve([&io, &signals](int signal_number) {
      boost::asio::post(io, [&signals, signal_number] { signals.request(signal_number); });
    });
  }
  ~Stopping() {
    if (request_ != nullptr) request_->serve(nullptr);
  }
  Stopping(const Stopping&) = delete;
  Stopping& operator=(const Stopping&) = delete;

 private:
  StopRequest* const request_;
};

}  // namespace

Outcome run_job(const JobSpec& spec, Observer& observer, StopRequest* stop) {
  if (spec.command.empty()) return failed_outcome("there is no program to run");

  std::optional<Journal> journal;
  if (spec.journal && !spec.journal->file.empty()) {
    auto created = Journal::create(spec.journal->file);
    if (!created.ok()) return failed_outcome(cat("--events: ", created.status().message()));
    journal = *std::move(created);
  }
  JobAnswers::Sockets sockets;
  if (spec.metrics) {
    auto listening = listen_for_metrics(*spec.metrics, observer);
    if (!listening.ok()) return failed_outcome(listening.status().message());
    sockets.metrics = *std::move(listening);
  }
  if (spec.page) {
    auto listening = listen_for_page(spec.page->bind, spec.page->ports);
    if (!listening.ok()) {
      return failed_outcome(listening.status().with_context("--status-page").message());
    }
    sockets.page = *std::move(listening);
  }

  boost::asio::io_context io{1};
  Signals signals(io);
  RequestSignals requests(io);
  const Stopping stopping(stop, io, signals);
  std::optional<EndWatch> caller;
  if (spec.caller >= 0) {
    signals.share_with_caller();
    caller.emplace(io, spec.caller, [&observer, &signals] {
      observer.on_notice(
          "the program that called hvd.run() has ended: ending the job as SIGTERM would");
      signals.request(SIGTERM);
    });
  }
  const RaisedFileLimit open_files;
  auto preparation = prepare(io, signals, spec, observer);
  if (const int signal = signals.waiting(); signal != 0) {
    Outcome outcome = failed_outcome(cat("interrupted by ", signal_text(signal)));
    outcome.exit_code = 128 + signal;
    return outcome;
  }
  if (!preparation) return failed_outcome(preparation.status().message());
  const Status own = check_own_addresses(spec, *preparation);
  if (!own.ok()) return failed_outcome(own.message());

  const std::string job_id = to_hex(random_bytes(kJobIdDigits / 2));
  // Only now: jobs that cannot begin leave those before them alone.
  if (spec.journal && !journal) journal = kept_journal(job_id, observer);
  const auto join_listener = preparation->join_listener;  // until the job has ended
  JobRunner runner(io, spec, observer, open_files, *std::move(preparation), job_id,
                   std::move(journal));
  runner.announce();
  return runner.run(signals, requests, std::move(sockets));
}

}  // namespace hvd::driver
