#include "driver/driver.h"

#include <utility>

#include "base/text.h"
#include "driver/shell.h"

namespace hvd::driver {

static Outcome own_trouble(std::string reason) {
  Outcome outcome;
  outcome.exit_code = 1;
  outcome.reason = std::move(reason);
  return outcome;
}

Outcome run_job(const JobSpec& spec, Observer& observer) {
  if (spec.command.empty()) return own_trouble("there is no program to run");
  boost::asio::io_context io{1};
  Signals signals(io);
  RequestSignals requests(io);
  const MoreOpenFiles open_files;
  auto preparation = prepare(io, signals, spec, observer);
  if (const int signal = signals.waiting(); signal != 0) {
    Outcome outcome = own_trouble(cat("interrupted by ", signal_text(signal)));
    outcome.exit_code = 128 + signal;
    return outcome;
  }
  if (!preparation) return own_trouble(preparation.status().message());
  Shell shell(io, signals, requests, open_files, spec, observer, *std::move(preparation));
  shell.announce();
  return shell.run();
}

}  // namespace hvd::driver
