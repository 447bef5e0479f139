#include "cmd/hvdrun/job_commands.h"

#include <algorithm>
#include <chrono>

#include <CLI/CLI.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "base/text.h"
#include "base/text_table.h"
#include "cmd/hvdrun/arguments.h"
#include "cmd/hvdrun/replay_command.h"
#include "cmd/hvdrun/report.h"
#include "driver/status/job_sockets.h"

namespace hvd::cli {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;
using Json = nlohmann::json;
using Local = asio::local::stream_protocol;

constexpr std::chrono::seconds kAnswerTime{10};
constexpr std::size_t kMaxStatus = std::size_t{64} << 20;  // tens of thousands of workers

// ---- the command line ----

struct JobCommandParser {
  CLI::App app;
  JobCommandArguments arguments;
  bool help = false;

  explicit JobCommandParser(const std::string& name) {
    const auto& names = job_command_names();
    const auto found = std::find_if(names.begin(), names.end(),
                                    [&](const JobCommandName& one) { return one.name == name; });
    app.description(found->help);
    app.name("hvdrun " + name);
    app.set_help_flag();
    arguments.command = name;
    if (name == "jobs" || name == "status")
      app.add_flag("--json", arguments.json, "Print JSON, for programs");
    if (name == "drain") {
      app.add_flag("--undo", arguments.undo, "Let workers work on this host again");
    }
    app.add_flag("--help", help, "Print this help and exit");
    for (CLI::Option* const option : app.get_options()) option->group("Options");
  }
};

// ---- one question ----

struct Answer {
  unsigned status = 0;
  std::string text;
};

class Question {
 public:
  Question(asio::io_context& io, http::verb method, const std::string& target, std::string body)
      : stream_(io) {
    request_.method(method);
    request_.target(target);
    request_.version(11);
    request_.set(http::field::host, "hvdrun");
    request_.body() = std::move(body);
    request_.prepare_payload();
    parser_.body_limit(kMaxStatus);
  }

  void ask(const std::string& path) {
    stream_.expires_after(kAnswerTime);
    stream_.async_connect(Local::endpoint(path), [this](error_code error) {
      if (failed(error)) return;
      http::async_write(stream_, request_, [this](error_code sent, std::size_t /*size*/) {
        if (failed(sent)) return;
        http::async_read(stream_, buffer_, parser_,
                         [this](error_code got, std::size_t /*size*/) { failed(got); });
      });
    });
  }

  error_code error() const { return error_; }
  Answer answer() const { return {parser_.get().result_int(), parser_.get().body()}; }

 private:
  bool failed(error_code error) {
    error_ = error;
    return error.failed();
  }

  beast::basic_stream<Local> stream_;
  beast::flat_buffer buffer_;
  http::request<http::string_body> request_;
  http::response_parser<http::string_body> parser_;
  error_code error_;
};

// not_found: nobody listens there, since the job is over.
Result<std::string> ask(const driver::JobSocket& job, http::verb method, const std::string& target,
                        std::string body = {}) {
  asio::io_context io;
  Question question(io, method, target, std::move(body));
  question.ask(job.path);
  io.run();
  if (const error_code error = question.error()) {
    const bool is_gone = error == asio::error::connection_refused || error.value() == ENOENT;
    const std::string why = error == beast::error::timeout ? "it does not answer" : error.message();
    return Status(is_gone ? Code::not_found : Code::unavailable,
                  cat("job ", job.job_id, ": ", why));
  }
  Answer answer = question.answer();
  if (answer.status != 200) {
    return Status(Code::failed_precondition,
                  cat("job ", job.job_id, ": ", printable(trim(answer.text))));
  }
  return std::move(answer.text);
}

// ---- which job ----

struct FoundJob {
  driver::JobSocket socket;
  Result<std::string> status;  // its answer, or why there is none
};

// Those whose id begins so, and that are not over.
std::vector<FoundJob> find_jobs(const std::string& wanted) {
  std::vector<FoundJob> found;
  for (auto& socket : driver::find_job_sockets()) {
    if (!socket.job_id.starts_with(wanted)) continue;
    auto status = ask(socket, http::verb::get, "/status");
    if (status.status().code() == Code::not_found) continue;
    found.push_back({std::move(socket), std::move(status)});
  }
  return found;
}

Result<FoundJob> find_job(const std::string& wanted) {
  std::vector<FoundJob> fitting = find_jobs(wanted);
  if (fitting.size() == 1) return std::move(fitting.front());
  if (fitting.empty()) {
    return Status(Code::not_found, wanted.empty()
                                       ? std::string("no job of this user runs on this machine")
                                       : cat("no job ", quoted(wanted),
                                             " of this user runs on this machine; hvdrun jobs "
                                             "lists those that do"));
  }
  std::vector<std::string> ids;
  for (const auto& one : fitting) ids.push_back(one.socket.job_id);
  return Status(
      Code::invalid_argument,
      cat(fitting.size(), wanted.empty() ? " jobs run" : " jobs have an id that begins so", ": ",
          join(ids, ", "), "; name one of them"));
}

// ---- texts ----

// Below a line of headings; the texts may come from workers and from other users' jobs.
std::string table(std::vector<std::vector<std::string>> rows) {
  for (auto& row : rows) {
    for (auto& cell : row) cell = printable(cell);
  }
  return text_table(rows);
}

std::string command_text(const Json& status) {
  std::vector<std::string> words;
  for (const auto& word : status.at("command"))
    words.push_back(shell_quote(word.get<std::string>()));
  return join(words, " ");
}

std::string text_or_dash(const Json& value) {
  if (value.is_number_integer()) return cat(value.get<long long>());
  return value.is_string() && !value.get<std::string>().empty() ? value.get<std::string>() : "-";
}

std::string percent_text(const Json& share) {
  return share.is_number() ? cat(std::lround(share.get<double>() * 100), " %") : "-";
}

// "1.2 GB": three digits, in steps of a thousand.
std::string bytes_text(double bytes) {
  constexpr std::array kUnits{"B", "kB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  for (; bytes >= 999.5 && unit + 1 < kUnits.size(); ++unit) bytes /= 1000;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3g %s", bytes, kUnits[unit]);  // NOLINT: bounded
  return text.data();
}

// "works at: 12.3 steps/s, 1.2 GB/s in collectives"; empty while that is not known.
std::string pace_text(const Json& status) {
  const Json& work = status.at("work");
  if (!work.at("bytes_per_second").is_number()) return {};
  std::array<char, 32> steps{};
  std::snprintf(steps.data(), steps.size(), "%.3g",  // NOLINT: bounded
                work.at("steps_per_second").get<double>());
  return cat("works at: ", steps.data(), " steps/s, ",
             bytes_text(work.at("bytes_per_second").get<double>()), "/s in collectives\n");
}

// One line for each slow rank.
std::string slow_ranks_text(const Json& status) {
  std::string text;
  for (const auto& member : status.at("world").at("members")) {
    const Json& work = member.at("work");
    if (!work.is_object() || !work.at("slow").get<bool>()) continue;
    text += cat("slow: rank ", text_or_dash(member.at("rank")), " (",
                member.at("worker").get<std::string>(), ") on host ",
                member.at("host").get<std::string>(), ": the other ranks wait for it for ",
                percent_text(work.at("late")), " of the time\n");
  }
  return text;
}

std::string worker_state(const Json& worker) {
  const std::string membership = worker.at("membership");
  std::string text = worker.at("state");
  if (membership != "member") text += cat(", ", membership);
  if (const auto why = worker.find("leaves"); why != worker.end()) {
    text += cat(", leaves: ", why->get<std::string>());
  }
  return text;
}

// The share of its time during which it waits for others.
std::string waits_text(const Json& worker) {
  const auto work = worker.find("work");
  return work != worker.end() && work->is_object() ? percent_text(work->at("waited")) : "-";
}

std::string workers_table(const Json& status) {
  std::vector<std::vector<std::string>> rows{{"RANK", "WORKER", "HOST", "PID", "WAITS", "STATE"}};
  for (const auto* const group : {&status.at("world").at("members"), &status.at("other_workers")}) {
    for (const auto& worker : *group) {
      rows.push_back({text_or_dash(worker.at("rank")), worker.at("worker"), worker.at("host"),
                      text_or_dash(worker.at("pid")), waits_text(worker), worker_state(worker)});
    }
  }
  return rows.size() > 1 ? table(std::move(rows)) : std::string();
}

std::string hosts_table(const Json& status) {
  std::vector<std::vector<std::string>> rows{{"HOST", "STATE", "WORKERS", "SLOTS", "ADDRESS"}};
  for (const auto& host : status.at("hosts")) {
    std::string state = host.at("state");
    if (host.at("leaves").get<bool>()) state += ", leaves";
    if (const auto error = host.find("error"); error != host.end()) {
      state += cat(", ", error->get<std::string>());
    }
    rows.push_back({host.at("host"), state, text_or_dash(host.at("workers")),
                    text_or_dash(host.at("slots")), text_or_dash(host.at("address"))});
  }
  return rows.size() > 1 ? table(std::move(rows)) : std::string();
}

std::string worlds_table(const Json& status) {
  constexpr std::size_t kShown = 10;
  const Json& worlds = status.at("worlds");
  if (worlds.empty()) return {};
  std::vector<std::vector<std::string>> rows{{"WORLD", "SINCE", "WORKERS", "BECAUSE"}};
  const std::size_t first = worlds.size() > kShown ? worlds.size() - kShown : 0;
  for (std::size_t i = first; i < worlds.size(); ++i) {
    rows.push_back({text_or_dash(worlds[i].at("generation")), worlds[i].at("at"),
                    text_or_dash(worlds[i].at("size")), text_or_dash(worlds[i].at("why"))});
  }
  return "\n" + table(std::move(rows));
}

// A hvdrun of an older version has no requests.
std::string requests_text(const Json& status) {
  std::string text;
  const auto drained = status.value("drained", std::vector<std::string>());
  if (!drained.empty()) text += cat("drained: ", printable(join(drained, ", ")), "\n");
  if (const auto size = status.find("scaled_to"); size != status.end() && !size->is_null()) {
    const int most = *size;
    text += cat("scaled to: at most ", most, most == 1 ? " worker\n" : " workers\n");
  }
  return text;
}

std::string text_of(const Json& status) {
  std::string text =
      cat("job ", status.at("job").get<std::string>(), ": ", status.at("state").get<std::string>(),
          ", for ", duration_text(status.at("seconds")), " (hvdrun has pid ",
          status.at("pid").get<long>(), ")\n");
  text += cat("command: ", command_text(status), "\n");
  const std::string waits = status.at("waits_for");
  if (!waits.empty()) text += cat("waits for: ", waits, "\n");
  text += pace_text(status);
  text += printable_lines(slow_ranks_text(status));
  text += requests_text(status);
  text += "\n";
  const std::string workers = workers_table(status);
  if (!workers.empty()) text += workers + "\n";
  return text + hosts_table(status) + worlds_table(status);
}

std::string jobs_text(const Json& jobs) {
  if (jobs.empty()) return "no job of this user runs on this machine\n";
  std::vector<std::vector<std::string>> rows{{"JOB", "PID", "STATE", "FOR", "WORKERS", "COMMAND"}};
  for (const Json& status : jobs) {
    rows.push_back({status.at("job"), text_or_dash(status.at("pid")), status.at("state"),
                    duration_text(status.at("seconds")),
                    cat(status.at("world").at("members").size()), command_text(status)});
  }
  return table(std::move(rows));
}

// Jobs that give no answer are left out, unless no other is there.
Result<std::string> list_jobs(bool json) {
  Status problem;
  Json all = Json::array();
  for (const auto& job : find_jobs({})) {
    Json status = job.status.ok() ? Json::parse(*job.status, nullptr, false) : Json();
    if (status.is_object()) {
      all.push_back(std::move(status));
    } else {
      problem = job.status.ok() ? Status(Code::data_loss,
                                         cat("job ", job.socket.job_id, ": its answer is not JSON"))
                                : job.status.status();
    }
  }
  if (all.empty() && !problem.ok()) return problem;
  return json ? all.dump(2) + "\n" : jobs_text(all);
}

// Takes the host of `drain`, or the size of `scale`, out of the words.
Status take_subject(const std::string& name, std::vector<std::string>& words,
                    JobCommandParser& parser) {
  if ((name != "drain" && name != "scale") || parser.help) return {};
  if (words.empty()) {
    return usage(name == "drain" ? "which host? hvdrun status lists those of a job"
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
  auto answer = ask(job, http::verb::post, target, body);
  if (!answer.ok()) return answer.status();
  return cat("job ", job.job_id, ": ", printable(trim(*answer)), "\n");
}

}  // namespace

const std::vector<JobCommandName>& job_command_names() {
  static const std::vector<JobCommandName> kNames{
      {"jobs", "Lists the running jobs of this user."},
      {"status", "Shows what a running job is doing: hvdrun status [JOB]."},
      {"metrics", "Prints the metrics of a running job for Prometheus: hvdrun metrics [JOB]."},
      {"dump", "Shows what each worker of a running job does now: hvdrun dump [JOB]."},
      {"stop", "Stops a running job, as SIGTERM to its hvdrun does: hvdrun stop [JOB]."},
      {"drain",
       "Lets the workers of an elastic job leave a host, which then takes no part: "
       "hvdrun drain [--undo] HOST [JOB]."},
      {"scale", "Changes how many workers an elastic job has at most: hvdrun scale N [JOB]."},
      {"replay", "Checks the decisions in a file of --events: hvdrun replay FILE."},
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
    return usage(cat(command, ": which file? It is one that hvdrun --events FILE wrote"));
  }
  if (words.size() > most) {
    return usage(cat(command, ": unexpected argument ", quoted(words[most]),
                     "; a program of this name is started as ./", name));
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

Result<std::string> status_text(const std::string& answer) {
  try {
    return text_of(Json::parse(answer));
  } catch (const Json::exception& error) {
    return Status(Code::data_loss,
                  cat("the answer is not the status of a job (is its hvdrun of another version?): ",
                      printable(error.what())));
  }
}

Result<std::string> run_job_command(const JobCommandArguments& arguments) {
  try {
    if (arguments.command == "jobs") return list_jobs(arguments.json);
  } catch (const Json::exception& error) {
    return Status(Code::data_loss, cat("an answer is not the status of a job: ", error.what()));
  }

  if (arguments.command == "replay") return replay_file(arguments.argument);

  auto job = find_job(arguments.argument);
  if (!job.ok()) return job.status();
  if (arguments.command == "metrics") return ask(job->socket, http::verb::get, "/metrics");
  if (arguments.command == "dump") return ask(job->socket, http::verb::post, "/dump");
  if (arguments.command == "stop") {
    auto answer = ask(job->socket, http::verb::post, "/stop");
    if (!answer.ok()) return answer.status();
    return cat("job ", job->socket.job_id, " is being stopped\n");
  }
  if (arguments.command == "drain") {
    return change(job->socket, arguments.undo ? "/undrain" : "/drain", arguments.subject);
  }
  if (arguments.command == "scale") return change(job->socket, "/scale", arguments.subject);
  if (!job->status.ok()) return job->status.status();
  return arguments.json ? Result<std::string>(*job->status + "\n") : status_text(*job->status);
}

}  // namespace hvd::cli
