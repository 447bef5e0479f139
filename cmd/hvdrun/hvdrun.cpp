#include "cmd/hvdrun/hvdrun.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <fcntl.h>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string_view>
#include <unistd.h>

#include "base/clock.h"
#include "base/knobs.h"
#include "base/log.h"
#include "base/other_launcher.h"
#include "base/printable.h"
#include "base/text.h"
#include "base/wrapper.h"
#include "cmd/hvdrun/agent_relay.h"
#include "cmd/hvdrun/config_file.h"
#include "cmd/hvdrun/environment.h"
#include "cmd/hvdrun/job_commands.h"
#include "cmd/hvdrun/job_output.h"
#include "cmd/hvdrun/job_setup.h"
#include "cmd/hvdrun/listings.h"
#include "cmd/hvdrun/options.h"
#include "cmd/hvdrun/report.h"
#include "cmd/hvdrun/settings.h"
#include "cmd/hvdrun/slurm_setup.h"
#include "driver/core/signals.h"
#include "driver/journal/state_directory.h"
#include "rendezvous/standalone.h"

namespace hvd::cli {
namespace {

constexpr const char* kCallerVariable = "HVD_CALLER_FD";

// For messages before and after a job, when a slow reader cannot hold up workers.
Status print(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Status::from_errno("write to standard output", errno);
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

void print_error(std::string_view message) {
  // An error of this write cannot be reported anywhere.
  static_cast<void>(print(STDERR_FILENO, cat("hvdrun: ", printable_lines(message), "\n")));
}

int fail(const Status& status, int code = kExitFailure) {
  print_error(status.message());
  return code;
}

int print_and_end(std::string_view text) {
  const Status status = print(STDOUT_FILENO, text);
  return status.ok() ? 0 : fail(status);
}

// The failure of hvdrun's own output that ends the job, as SIGTERM would: its reader is gone, or
// the files of --output-filename cannot be made before the job begins. A terminal that is closed is
// the same request as the SIGHUP that comes with it, before or after. A file that cannot be written
// ends no job: it only observes it. Any thread may report.
class OutputFailure {
 public:
  void hung_up() { stop_.make(SIGHUP); }
  void broken_pipe(const Status& why) { report(why, true); }
  void no_files(const Status& why) { report(why, false); }
  driver::StopRequest& stop() { return stop_; }
  std::optional<Status> why() const {
    const std::lock_guard lock(mutex_);
    return why_;
  }
  bool is_broken_pipe() const {
    const std::lock_guard lock(mutex_);
    return broken_pipe_;
  }

 private:
  void report(const Status& why, bool is_broken_pipe) {
    {
      const std::lock_guard lock(mutex_);
      if (why_) return;
      why_ = why;
      broken_pipe_ = is_broken_pipe;
    }
    stop_.make();
  }

  mutable std::mutex mutex_;
  std::optional<Status> why_;
  bool broken_pipe_ = false;
  driver::StopRequest stop_;
};

bool ended_by_signal(int exit_code) {
  return exit_code == 128 + SIGINT || exit_code == 128 + SIGTERM || exit_code == 128 + SIGHUP ||
         exit_code == 128 + SIGQUIT;
}

// Outside of a job these signals have no effect; by default they would end hvdrun while it cleans
// up.
void ignore_requests() {
  for (const int number : {SIGUSR1, SIGUSR2}) std::signal(number, SIG_IGN);
}

// A journal that nobody has asked for is worth a word when something went wrong.
std::string journal_to_name(const driver::JobSpec& spec, const driver::Outcome& outcome) {
  const bool is_asked_for = spec.journal && !spec.journal->file.empty();
  const bool went_wrong = outcome.exit_code != 0 || (outcome.summary && outcome.summary->lost > 0);
  return is_asked_for || went_wrong ? outcome.journal : std::string();
}

void ask_for_requeue(const driver::JobSpec& spec, JobOutput& output) {
  const auto asked = requeue_unless_cancelled(spec.slurm->job_id, spec.start_timeout);
  if (!asked.ok()) {
    return output.show(cat("hvdrun: ", printable_lines(asked.status().message()), "\n"), true);
  }
  output.show(*asked ? "hvdrun: Slurm was asked to run the batch script again\n"
                     : "hvdrun: Slurm ends this job before its time, as scancel does: it was not "
                       "asked to run the batch script again\n",
              false);
}

// While it lives, lines of hvdrun's log go the way of its other lines: stderr may be a file that
// hangs.
class LogToConsole {
 public:
  explicit LogToConsole(StreamWriter& error) {
    set_log_sink([&error](std::string line) { error.write(std::move(line)); });
  }
  ~LogToConsole() { set_log_sink({}); }
  LogToConsole(const LogToConsole&) = delete;
  LogToConsole& operator=(const LogToConsole&) = delete;
};

// Warnings of files that only observe the job, which goes on without them.
RankFilesOptions rank_files_options(StreamWriter& error, std::chrono::milliseconds stall_timeout) {
  const auto warn = [&error](const std::string& text) {
    error.write(cat("hvdrun: warning: ", printable_lines(text), "\n"));
  };
  RankFilesOptions options;
  options.stall_timeout = stall_timeout;
  options.on_failure = [warn](const Status& why) {
    warn(cat("the job goes on, and the files of --output-filename end here: ", why.message()));
  };
  options.on_stalled = [warn, stall_timeout](const std::string& file) {
    warn(cat("the job goes on: ", file, " has taken nothing for ", seconds_text(stall_timeout),
             ", and output is left out of the files of --output-filename until it does"));
  };
  options.on_resumed = [warn](std::uint64_t bytes) {
    warn(cat(with_thousands(bytes), " bytes of output are not in the files of --output-filename"));
  };
  return options;
}

// Another descriptor stands in the place of a stream that was closed when hvdrun began.
bool is_writable(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  return flags >= 0 && (flags & O_PATH) == 0 && (flags & O_ACCMODE) != O_RDONLY;
}

int run_job(const JobSetup& setup) {
  if (!is_writable(STDOUT_FILENO)) {
    return fail({Code::invalid_argument,
                 "standard output is not open for writing: the job would have no output"});
  }
  // If the reader of the output has gone, or a file may not grow (ulimit -f), the write reports it.
  for (const int number : {SIGPIPE, SIGXFSZ}) std::signal(number, SIG_IGN);
  OutputFailure failure;
  Console console(STDOUT_FILENO, STDERR_FILENO, setup.output.stall_timeout,
                  [&failure](const Status& why, WriteFailure kind) {
                    if (kind == WriteFailure::hung_up) failure.hung_up();
                    if (kind == WriteFailure::broken_pipe) failure.broken_pipe(why);
                  });

  const LogToConsole log(console.error());

  std::unique_ptr<RankFiles> files;
  if (!setup.output.directory.empty()) {
    auto options = rank_files_options(console.error(), setup.output.stall_timeout);
    options.goes_on =
        setup.spec.state && driver::StateDirectory::has_job(setup.spec.state->directory);
    auto opened = RankFiles::open(setup.output.directory, setup.spec.elastic ? 0 : setup.workers(),
                                  std::move(options));
    if (!opened.ok()) return fail(opened.status());
    files = std::move(*opened);
  }
  JobOutput output(console, files.get(),
                   {.tagged = setup.output.tagged, .timestamp = setup.output.timestamp},
                   setup.output.verbose, setup.spec.elastic.has_value(),
                   [&failure] { return failure.why().has_value(); });
  output.show_only(setup.output.local_ranks);
  output.on_files_not_made([&failure](const Status& why) { failure.no_files(why); });

  const driver::Outcome outcome = driver::run_job(setup.spec, output, &failure.stop());
  // From here on a signal ends hvdrun at once, since all processes of the job are gone.
  for (const int number : {SIGINT, SIGTERM, SIGQUIT, SIGHUP}) {
    if (!driver::is_ignored(number)) std::signal(number, SIG_DFL);
  }
  ignore_requests();

  output.finish();
  // After an interruption a slow reader must not delay the prompt for long.
  const TimePoint limit = Clock::now() + setup.output.stall_timeout;
  const bool is_interrupted = ended_by_signal(outcome.exit_code);
  console.out().drain(is_interrupted || failure.why() ? limit : kNever);
  if (files) {
    if (const auto lost = files->drain(); lost > 0) {
      output.on_warning(cat("the last ", with_thousands(lost),
                            " bytes of output are not in the files of --output-filename"));
    }
  }

  const auto why = failure.why();
  if (why && !failure.is_broken_pipe()) {
    output.show(cat("hvdrun: the job was ended: ", printable_lines(why->message()), "\n"), true);
  } else if (!why) {
    const bool was_shown = console.error_is_terminal() && outcome.failure &&
                           output.stderr_was_just_shown(outcome.failure->worker.incarnation);
    output.show(failure_report(outcome, setup.state_file, was_shown), !outcome.suspended);
  }
  if (outcome.suspended && setup.requeue) ask_for_requeue(setup.spec, output);
  // Without tags the bytes of the workers pass as they are, and hvdrun adds nothing.
  if (!why && setup.output.tagged) {
    output.show(end_line(outcome, setup.spec.elastic.has_value(),
                         {setup.output.directory, journal_to_name(setup.spec, outcome)}),
                false);
  }
  console.finish(is_interrupted || why ? limit : kNever);
  if (why) return failure.is_broken_pipe() ? kExitBrokenPipe : kExitFailure;
  return outcome.exit_code;
}

// Flag beats file beats environment.
Result<Values> gather(const CommandLine& line) {
  Values values = line.values;
  if (line.config_file) {
    auto from_file = read_config_file(*line.config_file);
    if (!from_file.ok()) return from_file.status();
    values = merge(std::move(values), *from_file);
  }
  auto from_environment = values_from_environment(process_environment());
  if (!from_environment.ok()) return from_environment.status();
  return merge(std::move(values), *from_environment);
}

void set_up_log(const Values& values) {
  LogOptions options;
  options.who = "hvdrun";
  if (const auto level = values.find("log-level"); level != values.end()) {
    options.level = parse_log_level(level->second.text).value_or(options.level);
  }
  const auto hidden = values.find("log-with-timestamp");
  options.show_time = hidden == values.end() || hidden->second.text != "1";
  set_log_options(options);
}

int run_rendezvous(const RendezvousArguments& arguments) {
  rendezvous::StandaloneOptions options;
  auto bind = rendezvous::parse_bind_address(arguments.bind);
  if (!bind.ok()) return fail(bind.status().with_context("--bind " + arguments.bind), kExitUsage);
  options.bind = std::move(*bind);
  options.ports.range = parse_port_range(arguments.port_range);
  options.token_file = arguments.token_file;
  options.legacy_clients = arguments.legacy_clients;
  set_up_log({});
  return rendezvous::serve_forever(options);
}

// The descriptor of JobSpec::caller, by the variable that hvd.run() sets. No program that hvdrun
// starts has either of them: the job of a worker that runs hvdrun is its own.
Result<int> take_caller() {
  // NOLINTBEGIN(concurrency-mt-unsafe): no thread has begun
  const char* const found = std::getenv(kCallerVariable);
  if (found == nullptr) return -1;
  const std::string text = found;
  ::unsetenv(kCallerVariable);
  // NOLINTEND(concurrency-mt-unsafe)
  const auto descriptor = parse_number<int>(text);
  if (!descriptor || ::fcntl(*descriptor, F_SETFD, FD_CLOEXEC) != 0) {
    return Status(Code::invalid_argument,
                  cat(kCallerVariable, "=", text, ": not the number of an open descriptor"));
  }
  return *descriptor;
}

int run(const CommandLine& line) {
  ignore_requests();
  const auto caller = take_caller();
  if (!caller.ok()) return fail(caller.status());

  auto values = gather(line);
  if (!values.ok()) return fail(values.status());
  set_up_log(*values);
  const auto environment = own_environment();

  if (line.action == Action::print_slurm_hosts) {
    const auto hosts = current_slurm_hosts(*values, environment);
    return hosts.ok() ? print_and_end(*hosts) : fail(hosts.status());
  }

  if (line.action == Action::run) {
    const Status alone = check_hvdrun_is_alone(process_environment());
    if (!alone.ok()) return fail(alone);
  }

  for (const auto& warning : warnings_of_misspelt_settings(environment)) {
    print_error(cat("warning: ", warning));
  }
  for (const auto& warning : warnings_of_useless_settings(*values)) {
    print_error(cat("warning: ", warning));
  }
  if (const auto* const wrapper = find_wrapper(line.command); wrapper && wrapper->is_elsewhere) {
    print_error(cat("warning: ", wrapper->name(), " starts the program outside of the worker, ",
                    "where it does not get the link to hvdrun: a program that calls hvd::init() ",
                    "fails there, or is a world of one. Instead: ", wrapper->remedy));
  }

  auto setup = set_up_job(line, *values, environment);
  if (!setup.ok()) return fail(setup.status());
  setup->spec.caller = *caller;

  if (line.action == Action::print_env)
    return print_and_end(environment_text(setup->spec.environment, setup->spec.host_variables));
  if (line.action == Action::dry_run) {
    if (!setup->plan.oversubscription.empty()) {
      print_error(cat("warning: ", setup->plan.oversubscription));
    }
    return print_and_end(dry_run_text(setup->spec, setup->plan));
  }

  if (const Status completed = complete(*setup, environment); !completed.ok()) {
    return fail(completed);
  }
  return run_job(*setup);
}

}  // namespace

static int run_arguments(const std::vector<std::string>& arguments) {
  const auto line = parse_command_line(arguments);
  if (!line.ok()) return fail(line.status(), kExitUsage);

  switch (line->action) {
    case Action::help:
      return print_and_end(line->help);
    case Action::version:
      return print_and_end(version_text());
    case Action::check_build:
      return print_and_end(check_build_text(support()));
    case Action::rendezvous:
      return run_rendezvous(line->rendezvous);
    case Action::agent:
      ignore_requests();
      set_up_log({});
      return run_agent(line->agent);
    case Action::job_command: {
      // As of diff(1), 1 is an answer of `compare`.
      const int trouble = line->job_command.command == "compare" ? kExitUsage : kExitFailure;
      const auto result = run_job_command(line->job_command);
      if (!result.ok()) return fail(result.status(), trouble);
      for (const auto& warning : result->warnings) print_error(cat("warning: ", warning));
      const Status printed = print(STDOUT_FILENO, result->text);
      return printed.ok() ? result->exit_code : fail(printed, trouble);
    }
    case Action::run:
    case Action::dry_run:
    case Action::print_env:
    case Action::print_slurm_hosts:
      return run(*line);
  }
  return kExitFailure;
}

int run_hvdrun(const std::vector<std::string>& arguments) {
  try {
    return run_arguments(arguments);
  } catch (const std::exception& error) {
    // A thread, queue or event loop could not be created. Unwinding has ended the job.
    print_error(cat("cannot continue: ", error.what(),
                    "; check the limits ulimit -n (open files) and ulimit -u (processes)"));
    return kExitFailure;
  }
}

}  // namespace hvd::cli
