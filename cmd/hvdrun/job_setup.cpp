#include "cmd/hvdrun/job_setup.h"

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "cmd/hvdrun/config_file.h"
#include "cmd/hvdrun/environment.h"
#include "discovery/hosts.h"

namespace hvd::cli {
namespace {

constexpr long long kMaxWorkers = 100'000;

Status invalid(std::string message) { return {Code::invalid_argument, std::move(message)}; }

// What the settings say, with the table's default where they say nothing.
class Reader {
 public:
  explicit Reader(const Values& values) : values_(values) {}

  bool has(std::string_view flag) const { return values_.find(flag) != values_.end(); }
  std::string text(std::string_view flag) const {
    const auto found = values_.find(flag);
    if (found != values_.end()) return found->second.text;
    return std::string(find_setting_by_flag(flag)->default_text);
  }
  int integer(std::string_view flag) const { return parse_number<int>(text(flag)).value_or(0); }
  bool boolean(std::string_view flag) const { return text(flag) == "1"; }
  std::chrono::milliseconds seconds(std::string_view flag) const {
    const double value = parse_number<double>(text(flag)).value_or(0);
    return std::chrono::milliseconds(std::llround(value * 1000));
  }

 private:
  const Values& values_;
};

Result<std::vector<discovery::Host>> named_hosts(const Reader& settings) {
  if (settings.has("hosts")) return discovery::parse_host_list(settings.text("hosts"));
  const std::string path = settings.text("hostfile");
  auto text = read_named_file("hostfile", path);
  if (!text.ok()) return text.status();
  const std::string source = path == "-" ? "standard input" : path;
  return discovery::parse_hostfile(*text, source);
}

Result<std::vector<driver::HostSlots>> hosts_of(const Reader& settings, int processes) {
  const int default_slots = settings.integer("slots-per-host");
  if (!settings.has("hosts") && !settings.has("hostfile")) {
    const bool as_many = processes > 0 && !settings.has("slots-per-host");
    return std::vector<driver::HostSlots>{{"localhost", as_many ? processes : default_slots}};
  }
  auto named = named_hosts(settings);
  if (!named.ok()) return named.status();
  std::vector<driver::HostSlots> hosts;
  long long total = 0;
  for (const auto& host : *named) {
    hosts.push_back({host.name, host.slots > 0 ? host.slots : default_slots});
    total += hosts.back().slots;
  }
  if (processes == 0 && total > kMaxWorkers) {
    return invalid(cat("the hosts have ", with_thousands(static_cast<unsigned long long>(total)),
                       " slots; a job may have ", with_thousands(kMaxWorkers),
                       " workers: say how many with -np"));
  }
  return hosts;
}

Result<std::string> working_directory(const Reader& settings) {
  const std::string wanted =
      settings.has("working-directory") ? settings.text("working-directory") : ".";
  std::filesystem::path here;
  if (!wanted.starts_with('/')) {
    std::error_code error;
    here = std::filesystem::current_path(error);
    if (error) return Status::from_errno("the current directory", error.value());
    if (!settings.has("working-directory")) return here.string();
  }
  struct stat kind {};
  if (::stat(wanted.c_str(), &kind) != 0) {
    return Status::from_errno(cat("--working-directory ", wanted), errno);
  }
  if (!S_ISDIR(kind.st_mode)) {
    return Status::from_errno(cat("--working-directory ", wanted), ENOTDIR);
  }
  return (here / wanted).lexically_normal().string();
}

std::string variable(const std::vector<std::string>& environment, std::string_view name) {
  for (const auto& entry : environment) {
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=') {
      return entry.substr(name.size() + 1);
    }
  }
  return {};
}

// 0, or why this file cannot be executed.
int why_not_executable(const std::string& path) {
  struct stat kind {};
  if (::stat(path.c_str(), &kind) != 0) return errno;
  if (S_ISDIR(kind.st_mode)) return EISDIR;
  return ::access(path.c_str(), X_OK) == 0 ? 0 : errno;
}

Status program_error(std::string_view program, int error, std::string_view hint) {
  const Code code = error == ENOENT || error == ENOTDIR ? Code::not_found : Code::permission_denied;
  return {code, cat(Status::from_errno(cat("start ", program), error).message(), hint)};
}

}  // namespace

Result<JobSetup> set_up_job(const CommandLine& line, const Values& values,
                            const std::vector<std::string>& environment) {
  const Reader settings(values);
  JobSetup setup;
  driver::JobSpec& spec = setup.spec;
  spec.command = line.command;
  spec.processes = settings.has("num-proc") ? settings.integer("num-proc") : 0;
  spec.oversubscribe = settings.boolean("oversubscribe");
  spec.grace = settings.seconds("grace");
  spec.start_timeout = settings.seconds("start-timeout");
  spec.legacy_clients = settings.boolean("legacy-clients");

  auto hosts = hosts_of(settings, spec.processes);
  if (!hosts.ok()) return hosts.status();
  spec.hosts = std::move(*hosts);
  auto plan = driver::plan_static(spec.hosts, spec.processes, spec.oversubscribe);
  if (!plan.ok()) return plan.status();
  setup.plan = std::move(*plan);

  auto given = worker_environment(environment, line.environment, values);
  if (!given.ok()) return given.status();
  spec.environment = std::move(*given);
  auto directory = working_directory(settings);
  if (!directory.ok()) return directory.status();
  spec.working_directory = std::move(*directory);

  setup.output.directory = settings.text("output-filename");
  setup.output.tagged = settings.text("tag-output") != "none";
  setup.output.timestamp = settings.boolean("prefix-output-with-timestamp");
  setup.output.verbose = settings.boolean("verbose");
  setup.output.stall_timeout = settings.seconds("output-stall-timeout");
  return setup;
}

Status check_program(const driver::JobSpec& spec) {
  const std::string& program = spec.command.front();
  const std::filesystem::path directory(spec.working_directory);
  if (program.find('/') != std::string::npos) {
    const int error = why_not_executable((directory / program).string());
    if (error == 0) return {};
    return program_error((directory / program).lexically_normal().string(), error, "");
  }
  int denied = 0;
  std::string path = variable(spec.environment, "PATH");
  if (path.empty()) path = "/usr/local/bin:/usr/bin:/bin";
  for (const auto& entry : split(path, ':')) {
    const int error = why_not_executable((directory / entry / program).string());
    if (error == 0) return {};
    if (error != ENOENT && error != ENOTDIR) denied = error;
  }
  if (denied != 0) return program_error(program, denied, " (found in PATH)");
  const bool here = why_not_executable((directory / program).string()) == 0;
  return program_error(program, ENOENT,
                       here ? cat("; it is not in PATH, but it is here: ./", program)
                            : std::string("; it is in no directory of PATH"));
}

Result<std::string> find_agent() {
  if (const char* const chosen = std::getenv("HVD_AGENT"); chosen != nullptr && *chosen != '\0') {
    const int error = why_not_executable(chosen);
    if (error != 0) return Status::from_errno(cat("the agent, HVD_AGENT=", chosen), error);
    return std::filesystem::absolute(chosen).string();
  }
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return Status::from_errno("find hvdrun's own folder by /proc/self/exe", error.value());
  const auto folder = self.parent_path();
  const std::string beside = (folder / "hvd-agent").string();
  const std::string installed = (folder / "../libexec/hvd/hvd-agent").lexically_normal().string();
  for (const std::string& candidate : {beside, installed}) {
    if (why_not_executable(candidate) == 0) return candidate;
  }
  return Status(
      Code::not_found,
      cat("cannot find the program hvd-agent, which starts the workers: it is neither ", beside,
          " nor ", installed, "; install hvd whole, or set HVD_AGENT to where it is"));
}

}  // namespace hvd::cli
