#include "cmd/hvdrun/job_commands.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <utility>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "base/security/written_file.h"
#include "base/text.h"
#include "base/versions.h"
#include "cmd/hvdrun/arguments.h"
#include "cmd/hvdrun/job_questions.h"
#include "cmd/hvdrun/ledgers.h"
#include "cmd/hvdrun/status_text.h"
#include "cmd/hvdrun/top_command.h"
#include "discovery/host_words.h"
#include "driver/join/join_tokens.h"
#include "driver/journal/replay.h"

namespace hvd::cli {
namespace {

using Json = nlohmann::json;

class UsageFormatter : public CLI::Formatter {
 public:
  explicit UsageFormatter(const JobCommandName& command)
      : usage_(cat("Usage: hvdrun ", command.name, " ", command.arguments, "\n")) {}
  std::string make_usage(const CLI::App* /*app*/, std::string /*name*/) const override {
    return usage_;
  }

 private:
  std::string usage_;
};

struct JobCommandParser {
  CLI::App app;
  JobCommandArguments arguments;
  // Of a join token. Words may stand between options, which are then parsed in several parts.
  std::optional<std::string> host;
  std::optional<std::string> expires;
  std::optional<std::string> uses;
  std::optional<std::string> file;
  bool help = false;

  explicit JobCommandParser(const std::string& name) {
    const auto& names = job_command_names();
    const auto found = std::find_if(names.begin(), names.end(),
                                    [&](const JobCommandName& one) { return one.name == name; });
    app.description(found->help);
    app.name("hvdrun " + name);
    app.formatter(std::make_shared<UsageFormatter>(*found));
    app.set_help_flag();
    arguments.command = name;
    if (name == "jobs" || name == "status")
      app.add_flag("--json", arguments.json, "Print JSON, for programs");
    if (name == "drain") {
      app.add_flag("--undo", arguments.undo, "Let workers work there again");
    }
    if (name == "token") add_token_options();
    app.add_flag("--help", help, "Print this help and exit");
    for (CLI::Option* const option : app.get_options()) option->group("Options");
  }

  void add_token_options() {
    app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    app.add_option("--host", host, "The only host that may join by it (default: any)")
        ->type_name("NAME");
    app.add_option("--expires", expires,
                   "How long it holds, as in 90s, 30m, 12h or 7d; 0: as long as the job (default: "
                   "1h)")
        ->type_name("TIME");
    app.add_option("--uses", uses, "How many agents may join by it; 0: any number (default: 1)")
        ->type_name("N");
    app.add_option("--file", file,
                   "Write it there, for its owner's eyes only, and not to standard output")
        ->type_name("FILE");
  }
};

// "90s", "30m", "12h", "7d", or seconds.
std::optional<std::chrono::seconds> time_from(std::string_view text) {
  constexpr std::array<std::pair<char, std::uint64_t>, 4> kUnits{
      {{'s', 1}, {'m', 60}, {'h', 3'600}, {'d', 86'400}}};
  std::uint64_t unit = 1;
  for (const auto& [name, seconds] : kUnits) {
    if (text.empty() || text.back() != name) continue;
    unit = seconds;
    text.remove_suffix(1);
    break;
  }
  const auto number = parse_number<std::uint32_t>(text);
  if (!number || *number * unit > driver::join::JoinTokenTerms::kMost) return std::nullopt;
  return std::chrono::seconds(*number * unit);
}

Status read_terms(JobCommandParser& parser) {
  auto& token = parser.arguments.token;
  if (parser.expires) {
    const auto time = time_from(*parser.expires);
    if (!time) {
      return usage(
          cat("--expires=", *parser.expires, ": must be a time, as in 90s, 30m, 12h or 7d, or 0"));
    }
    token.time = *time;
  }
  if (parser.uses) {
    const auto uses = parse_number<std::uint32_t>(*parser.uses);
    if (!uses || *uses > driver::join::JoinTokenTerms::kMost) {
      return usage(cat("--uses=", *parser.uses, ": must be a number of agents, or 0"));
    }
    token.uses = *uses;
  }
  if (parser.host) {
    HVD_RETURN_IF_ERROR(discovery::check_host_name(*parser.host).with_context("--host"));
    token.host = *parser.host;
  }
  if (parser.file && parser.file->empty()) return usage("--file: the name is empty");
  token.file = parser.file.value_or("");
  return {};
}

// `new`, `list`, `revoke ID` or `rotate ID`.
Status take_token_action(std::vector<std::string>& words, JobCommandParser& parser) {
  const std::string what = words.empty() ? "" : words.front();
  const bool has_id = what == "revoke" || what == "rotate";
  if (!has_id && what != "new" && what != "list") {
    return usage("what shall be done? hvdrun token new, list, revoke ID or rotate ID");
  }
  const std::string useless = what != "new" && parser.host                       ? "--host"
                              : what != "new" && parser.expires                  ? "--expires"
                              : what != "new" && parser.uses                     ? "--uses"
                              : what != "new" && what != "rotate" && parser.file ? "--file"
                                                                                 : "";
  if (!useless.empty()) return usage(cat(useless, ": it has no effect with ", what));
  if (has_id && words.size() < 2) {
    return usage(cat(what, ": which one? hvdrun token list shows those of a job"));
  }

  parser.arguments.subject = what;
  if (has_id) parser.arguments.token.id = words[1];
  words.erase(words.begin(), words.begin() + (has_id ? 2 : 1));
  return read_terms(parser);
}

// In ASCII, so that it holds no control characters.
std::string json_text(const Json& json) { return json.dump(2, ' ', true); }

// Each job is its text in JSON.
std::string json_array(const std::vector<std::vector<std::string>>& jobs) {
  std::string text;
  for (const auto& job : jobs) text.append(text.empty() ? "\n" : ",\n").append(job.front());
  return cat("[", text, "\n]\n");
}

constexpr std::size_t kMostWarnings = 10;

// Jobs that give no answer are left out, unless no other is there.
Result<JobCommandResult> list_jobs(bool json) {
  const auto keep = [json](const Json& status) {
    return json ? std::vector{json_text(status)} : job_row(status);
  };
  std::vector<std::vector<std::string>> jobs;
  std::vector<std::string> problems;
  for (auto& job : find_jobs({}, keep)) {
    if (job.kept.ok()) {
      jobs.push_back(*std::move(job.kept));
    } else {
      problems.push_back(job.kept.status().message());
    }
  }
  if (problems.size() > kMostWarnings) {
    const std::size_t more = problems.size() - kMostWarnings;
    problems.resize(kMostWarnings);
    problems.push_back(cat(more, more == 1 ? " more job" : " more jobs", " could not be asked"));
  }
  if (jobs.empty() && !problems.empty()) {
    return Status(Code::unavailable, join(problems, "\n"));
  }
  return JobCommandResult{json ? json_array(jobs) : jobs_text(jobs), std::move(problems), 0};
}

// Takes the host of `drain`, the size of `scale`, the first file of `compare`, or what `token` is
// to do out of the words.
Status take_subject(const std::string& name, std::vector<std::string>& words,
                    JobCommandParser& parser) {
  if (parser.help) return {};
  if (name == "token") return take_token_action(words, parser);
  if (name == "compare" && words.size() < 2) {
    return usage("which two files? a job writes one with --ledger FILE");
  }
  if (name != "drain" && name != "scale" && name != "compare") return {};
  if (words.empty()) {
    return usage(name == "drain" ? "which host, or HOST#SLOT? hvdrun status lists those of a job"
                                 : "to how many workers?");
  }
  if (const auto size = parse_number<int>(words.front()); name == "scale" && (!size || *size < 1)) {
    return usage(cat(quoted(words.front()), " is not a number of workers"));
  }
  parser.arguments.subject = words.front();
  words.erase(words.begin());
  return {};
}

// Says what came of a request that changes the job.
Result<std::string> change(const driver::JobSocket& job, const std::string& target,
                           const std::string& body) {
  auto answer = ask_job(job, "POST", target, body);
  if (!answer.ok()) return answer.status();
  return cat("job ", job.job_id, ": ", trim(*answer), "\n");
}

// The body of the request is read in driver/run/job_answers.cpp.
Result<std::string> run_token_command(const driver::JobSocket& job,
                                      const JobCommandArguments& arguments) {
  const auto& token = arguments.token;
  const bool makes_one = arguments.subject == "new" || arguments.subject == "rotate";
  const Json request{{"do", arguments.subject},
                     {"id", token.id},
                     {"host", token.host},
                     {"seconds", static_cast<std::uint64_t>(token.time.count())},
                     {"uses", token.uses}};
  if (!makes_one) return change(job, "/token", request.dump());

  auto answer = ask_job(job, "POST", "/token", request.dump());
  if (!answer.ok() || token.file.empty()) return answer;
  const Status written =
      write_whole_file(token.file, *answer, WhenThere::replace, {.what = "join token file"});
  if (!written.ok()) {
    // Nobody has it.
    const auto made = psk_key_from_text(trim(*answer));
    const Json revoked{{"do", "revoke"},
                       {"id", made.ok() ? made->id : ""},
                       {"host", ""},
                       {"seconds", 0},
                       {"uses", 0}};
    if (made.ok()) static_cast<void>(ask_job(job, "POST", "/token", revoked.dump()));
    return written;
  }
  return cat("job ", job.job_id, ": the join token is in ", printable(token.file), "\n");
}

std::string difference_text(const driver::Replayed& replayed) {
  const auto& difference = *replayed.difference;
  std::string text = cat("line ", difference.line, ": after ", printable(difference.event));
  const auto add = [&](const std::string& heading, const std::vector<std::string>& actions) {
    text += cat("\n  ", heading, ":");
    if (actions.empty()) text += " nothing";
    for (const auto& action : actions) text += cat("\n    ", printable(action));
  };
  add(cat("hvdrun ", printable(replayed.build), " decided"), difference.then);
  add(cat("hvdrun ", build_id(), " decides"), difference.now);
  return text;
}

// `hvdrun replay FILE`: goes through the journal of a job again (driver/journal/replay.h).
// The text to print if hvdrun would take each decision again. failed_precondition: it would take
// another one, and the text says which. Other errors: the file cannot be read, or is no journal.
Result<std::string> replay_file(const std::string& file) {
  // A directory can be opened, too.
  std::error_code error;
  if (std::filesystem::is_directory(file, error)) {
    return Status(Code::invalid_argument, cat(printable(file), " is a directory"));
  }
  std::ifstream in(file);
  if (!in) return Status::from_errno(cat("open ", printable(file)), errno);
  auto replayed = driver::replay(in);
  if (!replayed.ok()) return replayed.status().with_context(printable(file));
  if (replayed->difference) {
    return Status(Code::failed_precondition,
                  cat(printable(file), ": ", difference_text(*replayed)));
  }
  const char* const end = replayed->is_finished  ? "up to the end of the job"
                          : replayed->is_cut_off ? "up to a line that is cut off"
                                                 : "and the job goes on";
  return cat("job ", printable(replayed->job_id), ": ", replayed->events, " events and ",
             replayed->actions, " decisions, ", end, "; all decisions agree\n");
}

}  // namespace

const std::vector<JobCommandName>& job_command_names() {
  static const std::vector<JobCommandName> kNames{
      {"jobs", "[options]", "Lists the running jobs of this user."},
      {"status", "[JOB] [options]", "Shows what a running job is doing."},
      {"top", "[JOB]", "Shows the same on the terminal, and goes on doing so."},
      {"metrics", "[JOB]", "Prints the metrics of a running job for Prometheus."},
      {"page", "[JOB]", "Prints a link that opens the status page of a running job."},
      {"dump", "[JOB]", "Shows what each worker of a running job does now."},
      {"stop", "[JOB]", "Stops a running job, as SIGTERM to its hvdrun does."},
      {"drain", "[--undo] HOST[#SLOT] [JOB]",
       "Lets the workers of an elastic job leave a host, or one of its slots, which then takes no "
       "part."},
      {"scale", "N [JOB]", "Changes how many workers an elastic job has at most."},
      {"token", "new | list | revoke ID | rotate ID [JOB] [options]",
       "Makes, lists or revokes the tokens by which agents join a running elastic job."},
      {"replay", "FILE", "Checks the decisions in the file of a job's events."},
      {"compare", "LEDGER LEDGER", "Says in which step and tensor the ledgers of two runs differ."},
  };
  return kNames;
}

bool is_job_command(const std::string& name) {
  const auto& names = job_command_names();
  return std::any_of(names.begin(), names.end(),
                     [&](const JobCommandName& one) { return one.name == name; });
}

FlagTable job_command_flag_table(const std::string& name) {
  return table_of(JobCommandParser(name).app, name);
}

Result<CommandLine> parse_job_command(const std::string& name,
                                      const std::vector<std::string>& arguments) {
  JobCommandParser parser(name);
  const std::string command = parser.app.get_name();
  // Words may stand before or behind the options.
  std::vector<std::string> words;
  for (std::vector<std::string> rest = arguments;;) {
    auto split = split_arguments(parser.app, rest);
    if (!split.ok()) return split.status().with_context(command);
    HVD_RETURN_IF_ERROR(parse_options(parser.app, split->options).with_context(command));
    if (split->command.empty()) break;
    words.push_back(split->command.front());
    rest.assign(split->command.begin() + 1, split->command.end());
  }

  HVD_RETURN_IF_ERROR(take_subject(name, words, parser).with_context(command));
  const std::size_t most = name == "jobs" ? 0 : 1;
  if (name == "replay" && words.empty() && !parser.help) {
    return usage(cat(command, ": which file? hvdrun writes one for each job (--events)"));
  }
  if (words.size() > most) {
    return usage(cat(command, ": unexpected argument ", quoted(words[most]),
                     "; a program of this name is started as ./", name));
  }

  const bool has_file = name == "replay" || name == "compare";
  const bool is_nameless = name == "compare" && parser.arguments.subject.empty();
  if (((!words.empty() && words.front().empty()) || is_nameless) && !parser.help) {
    return usage(cat(
        command, has_file ? ": the name of the file is empty" : ": the id of the job is empty"));
  }

  CommandLine line;
  line.action = Action::job_command;
  line.job_command = parser.arguments;
  if (!words.empty()) line.job_command.argument = words.front();
  if (parser.help) {
    line.action = Action::help;
    line.help = parser.app.help();
  }
  return line;
}

namespace {

// All but `jobs` and `compare`.
Result<std::string> run_command_of_one(const JobCommandArguments& arguments) {
  if (arguments.command == "replay") return replay_file(arguments.argument);

  const auto keep = [&arguments](const Json& status) -> Result<std::vector<std::string>> {
    if (arguments.command != "status") return std::vector<std::string>();
    if (arguments.json) return std::vector{json_text(status) + "\n"};
    auto text = status_text(status);
    if (!text.ok()) return text.status();
    return std::vector{*std::move(text)};
  };
  auto job = find_job(arguments.argument, keep);
  if (!job.ok()) return job.status();
  if (job->kept.status().code() == Code::unavailable) return job->kept.status();
  if (arguments.command == "metrics") return ask_job(job->socket, "GET", "/metrics");
  if (arguments.command == "page") return ask_job(job->socket, "POST", "/page");
  if (arguments.command == "dump") return ask_job(job->socket, "POST", "/dump");
  if (arguments.command == "stop") {
    auto answer = ask_job(job->socket, "POST", "/stop");
    if (!answer.ok()) return answer.status();
    return cat("job ", job->socket.job_id, " is being stopped\n");
  }
  if (arguments.command == "drain") {
    return change(job->socket, arguments.undo ? "/undrain" : "/drain", arguments.subject);
  }
  if (arguments.command == "token") return run_token_command(job->socket, arguments);
  if (arguments.command == "scale") return change(job->socket, "/scale", arguments.subject);
  if (!job->kept.ok()) return job->kept.status();
  if (arguments.command == "top") return run_top(job->socket);
  return std::move(job->kept->front());
}

}  // namespace

Result<JobCommandResult> run_job_command(const JobCommandArguments& arguments) {
  if (arguments.command == "jobs") return list_jobs(arguments.json);
  if (arguments.command == "compare") {
    auto compared = compare_ledger_files(arguments.subject, arguments.argument);
    if (!compared.ok()) return compared.status();
    return JobCommandResult{std::move(compared->text), {}, compared->is_alike ? 0 : 1};
  }
  auto text = run_command_of_one(arguments);
  if (!text.ok()) return text.status();
  return JobCommandResult{*std::move(text), {}, 0};
}

}  // namespace hvd::cli
