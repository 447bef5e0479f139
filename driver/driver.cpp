#include "driver/driver.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <utility>

#include <boost/asio/post.hpp>

#include "base/descriptors.h"
#include "base/machine/child_process.h"
#include "base/machine/machine.h"
#include "base/port_range.h"
#include "base/printable.h"
#include "base/security/crypto.h"
#include "base/socket.h"
#include "base/text.h"
#include "driver/core/end_watch.h"
#include "driver/core/this_machine.h"
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

// The job that is kept there and has no driver, or a new one. `reader` reads `past`, and has then
// read the beginning of a job that is gone on with.
static Result<JobKeeping> keep_job(const JobSpec& spec, StateDirectory* directory,
                                   std::ifstream& past, JournalReader& reader) {
  KeptJob job{to_hex(random_bytes(kJobIdDigits / 2)), Token::random(), 1, this_machine_id()};
  if (directory == nullptr) return JobKeeping{std::move(job)};
  JobKeeping keeping{std::move(job), {}, {}, {}, directory};
  auto left = directory->left();
  HVD_RETURN_IF_ERROR(left.status());
  const std::string file = directory->journal_file();
  std::optional<JournalHead> head;
  if (*left) {
    past.open(file);
    auto read = reader.head();
    // A driver that died before its first line was written has done nothing.
    const bool has_begun =
        read.status().code() != Code::not_found && (!read.ok() || read->job_id == (*left)->id);
    HVD_RETURN_IF_ERROR(has_begun ? read.status().with_context(file) : Status());
    if (has_begun) head = *std::move(read);
  }
  if (!head) {
    auto journal = Journal::create(file);
    HVD_RETURN_IF_ERROR(journal.status());
    keeping.state = *std::move(journal);
    HVD_RETURN_IF_ERROR(directory->keep(keeping.job));
    return keeping;
  }

  keeping.comes_from_elsewhere = (*left)->machine != keeping.job.machine;
  (*left)->machine = keeping.job.machine;
  keeping.job = **std::move(left);
  if (head->command != spec.command || head->directory != spec.working_directory) {
    return Status(Code::failed_precondition,
                  cat(directory->path(), " keeps job ", keeping.job.id, ", which runs ",
                      quoted(hvd::join(head->command, " ")), " in ", head->directory,
                      ": go on with the same command line there, or name another directory"));
  }
  keeping.start = std::move(head->start);
  auto journal = Journal::resume(file);
  HVD_RETURN_IF_ERROR(journal.status());
  keeping.state = *std::move(journal);
  HVD_RETURN_IF_ERROR(directory->keep(keeping.job));
  return keeping;
}

// A process that stands by for a job does not begin it anew.
static bool has_ended(const StateDirectory& directory) {
  const auto left = directory.left();
  return left.ok() && !*left;
}

Outcome run_job(const JobSpec& spec, Observer& observer, StopRequest* stop) {
  if (spec.command.empty()) return failed_outcome("there is no program to run");

  std::optional<StateDirectory> state;
  if (spec.state) {
    auto opened = StateDirectory::open(spec.state->directory, false);
    if (spec.state->stands_by && opened.status().code() == Code::unavailable) {
      observer.on_notice(
          cat("stands by: another hvdrun drives the job in ", spec.state->directory));
      opened = StateDirectory::open(spec.state->directory, true);
      if (opened.ok() && has_ended(*opened)) {
        Outcome outcome;
        outcome.reason = cat("the job in ", spec.state->directory, " has ended");
        observer.on_notice(outcome.reason);
        return outcome;
      }
    }
    if (!opened.ok()) return failed_outcome(cat("--state: ", opened.status().message()));
    state = *std::move(opened);
  }

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

  const auto join_listener = preparation->join_listener;  // until the job has ended
  std::ifstream past;
  JournalReader reader(past);
  auto keeping = keep_job(spec, state ? &*state : nullptr, past, reader);
  if (!keeping.ok()) return failed_outcome(cat("--state: ", keeping.status().message()));
  keeping->events = std::move(journal);
  // Only now: jobs that cannot begin leave those before them alone.
  if (spec.journal && !keeping->events && !keeping->state) {
    keeping->events = kept_journal(keeping->job.id, observer);
  }
  const bool goes_on = keeping->start.has_value();
  JobRunner runner(io, spec, observer, open_files, *std::move(preparation), *std::move(keeping));
  if (goes_on) {
    const Status relived = runner.relive(reader);
    if (!relived.ok()) {
      return failed_outcome(cat("--state: ", relived.message(), "; without the files in ",
                                state->path(), " a new job begins"));
    }
  }
  runner.announce();
  return runner.run(signals, requests, std::move(sockets));
}

}  // namespace hvd::driver
