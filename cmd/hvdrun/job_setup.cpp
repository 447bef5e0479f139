#include "cmd/hvdrun/job_setup.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sys/stat.h>
#include <unistd.h>

#include "base/other_launcher.h"
#include "base/text.h"
#include "cmd/hvdrun/config_file.h"
#include "cmd/hvdrun/elastic_setup.h"
#include "cmd/hvdrun/environment.h"
#include "cmd/hvdrun/settings.h"
#include "cmd/hvdrun/slurm_setup.h"
#include "discovery/hosts.h"
#include "driver/agents/host_source.h"
#include "driver/core/this_machine.h"
#include "rendezvous/access.h"

namespace hvd::cli {
namespace {

constexpr std::chrono::seconds kSlurmDiscoveryInterval{10};

Result<std::vector<discovery::Host>> named_hosts(const SettingsReader& settings) {
  if (settings.has("hosts")) return discovery::parse_host_list(settings.text("hosts"));
  const std::string path = settings.text("hostfile");
  auto text = read_named_file("hostfile", path);
  if (!text.ok()) return text.status();
  const std::string source = path == "-" ? "standard input" : path;
  return discovery::parse_hostfile(*text, source);
}

// An elastic job hears of the nodes of an allocation as of hosts that a script prints.
std::vector<driver::HostSlots> hosts_in(const discovery::SlurmAllocation& allocation,
                                        bool elastic) {
  std::vector<driver::HostSlots> hosts;
  if (elastic) return hosts;
  for (const auto& node : allocation.nodes) hosts.push_back(driver::slots_of(node, 0));
  return hosts;
}

// The named hosts are nodes of the allocation.
Status check_nodes(const std::vector<driver::HostSlots>& hosts,
                   const discovery::SlurmAllocation& allocation) {
  for (const auto& host : hosts) {
    const bool is_node =
        std::any_of(allocation.nodes.begin(), allocation.nodes.end(),
                    [&](const discovery::Host& node) { return node.name == host.name; });
    if (is_node) continue;
    return invalid(cat("--hosts-from slurm: the host ", host.name, " is not a node of Slurm's job ",
                       allocation.job.id));
  }
  return {};
}

Result<std::vector<driver::HostSlots>> hosts_of(
    const SettingsReader& settings, int processes, bool elastic,
    const std::optional<discovery::SlurmAllocation>& slurm) {
  const int slots = settings.integer("slots-per-host");  // 0: not given
  if (settings.has("host-discovery-script")) return std::vector<driver::HostSlots>();
  if (!settings.has("hosts") && !settings.has("hostfile")) {
    if (slurm) return hosts_in(*slurm, elastic);
    if (settings.has("join-bind")) return std::vector<driver::HostSlots>();
    return std::vector<driver::HostSlots>{
        {"localhost", slots > 0 ? slots : std::max(processes, 1)}};
  }
  auto named = named_hosts(settings);
  if (!named.ok()) return named.status();
  std::vector<driver::HostSlots> hosts;
  for (const auto& host : *named) {
    const bool comes = settings.has("join-bind") && !elastic;
    if (comes && (host.port != 0 || !host.user.empty())) {
      return invalid(cat("the host ", host.name,
                         " has a port or a user of SSH, but with --join-bind "
                         "hosts come by themselves: name it without"));
    }
    hosts.push_back(driver::slots_of(host, slots));
  }
  if (slurm) HVD_RETURN_IF_ERROR(settings.explain("hosts-from", check_nodes(hosts, *slurm)));
  return hosts;
}

// Absolute, and the same on every host.
Result<std::string> working_directory(const SettingsReader& settings) {
  const std::string wanted =
      settings.has("working-directory") ? settings.text("working-directory") : "";
  if (wanted.starts_with('/')) return std::filesystem::path(wanted).lexically_normal().string();
  std::error_code error;
  const auto here = std::filesystem::current_path(error);
  if (error) return Status::from_errno("the current directory", error.value());
  return (wanted.empty() ? here : (here / wanted).lexically_normal()).string();
}

// PWD of hvdrun's shell is wrong for workers in another directory.
void set_directory(std::vector<std::string>& environment, const EnvironmentArguments& arguments,
                   const std::string& directory) {
  const auto says_it = [](const std::string& word) {
    return word == "PWD" || word.starts_with("PWD=");
  };
  if (std::any_of(arguments.set.begin(), arguments.set.end(), says_it)) return;
  for (auto& entry : environment) {
    if (entry.starts_with("PWD=")) entry = "PWD=" + directory;
  }
}

// A path on this machine; behind '=' and in a config file, no shell replaces the '~'.
std::string with_home(const std::string& path) {
  const char* const home = std::getenv("HOME");
  return path.starts_with("~/") && home != nullptr ? home + path.substr(1) : path;
}

driver::ssh::Options ssh_options(const SettingsReader& settings) {
  driver::ssh::Options options;
  if (settings.has("ssh-port")) options.port = settings.integer("ssh-port");
  for (const auto& file : list_items(settings.text("ssh-identity-file"))) {
    options.identity_files.push_back(with_home(file));
  }
  const std::string config = settings.text("ssh-config");
  options.config_file = config == "none" ? "/dev/null" : with_home(config);
  const std::string check = settings.text("ssh-host-key");
  options.host_key_check = check == "strict" ? driver::ssh::HostKeyCheck::strict
                           : check == "off"  ? driver::ssh::HostKeyCheck::off
                                             : driver::ssh::HostKeyCheck::accept_new;
  options.known_hosts_file = with_home(settings.text("ssh-known-hosts"));
  options.connect_timeout = settings.seconds("ssh-connect-timeout");
  options.step_timeout = settings.seconds("start-timeout");
  options.parallel = settings.integer("ssh-parallel");
  options.cache_directory = settings.text("agent-cache");
  return options;
}

// The setting by which tensors travel on connections that are not ours, and so without protection;
// empty: there is none. NCCL is not known here.
std::string_view unprotected_carrier(const SettingsReader& settings) {
  if (settings.text("transport") == "gloo-tcp") return "transport";
  if (settings.text("cpu-operations") == "ccl") return "cpu-operations";
  return {};
}

// How tensors travel between hosts. Protection that is asked for and cannot be had is an error.
Result<std::string> data_security(const SettingsReader& settings) {
  const std::string wanted = settings.text("data-security");
  const std::string_view carrier = unprotected_carrier(settings);
  if (carrier.empty()) return wanted;
  if (!settings.has("data-security") || wanted == "none") return std::string("none");
  return invalid(cat(settings.shown("data-security"), " and ", settings.shown(carrier), ": ",
                     settings.text(carrier), " protects nothing that it carries"));
}

Status take_network(const SettingsReader& settings, driver::JobSpec& spec) {
  if (settings.has("network-interface")) {
    spec.network_interfaces = *parse_interfaces(settings.text("network-interface"));
  }
  if (settings.text("cpu-operations") == "mpi") {
    return invalid(cat(settings.shown("cpu-operations"), ": ", kNoMpiUnderHvdrun));
  }
  spec.advertise_address = settings.text("advertise-address");
  if (settings.has("port-range")) spec.ports = parse_port_range(settings.text("port-range"));
  if (spec.ports && settings.text("transport") == "gloo-tcp") {
    return invalid(cat(settings.shown("port-range"), " and ", settings.shown("transport"),
                       ": Gloo listens on ports that the kernel chooses"));
  }
  auto security = data_security(settings);
  HVD_RETURN_IF_ERROR(security.status());
  spec.data_security = std::move(*security);
  spec.heartbeat_timeout = settings.seconds("heartbeat-timeout");
  spec.orphan_timeout = settings.seconds("orphan-timeout");
  if (spec.orphan_timeout < spec.heartbeat_timeout) {
    return invalid(cat(settings.shown("orphan-timeout"), " is shorter than ",
                       settings.shown("heartbeat-timeout"),
                       ": a host would end its workers before it counts as lost"));
  }
  return {};
}

Result<std::optional<JoinListener>> join_listener(const SettingsReader& settings,
                                                  const driver::JobSpec& spec, bool elastic,
                                                  bool is_slurm) {
  if (!settings.has("join-bind")) {
    // Slurm's agents may read it as well.
    if (settings.has("token-file") && !is_slurm) {
      return invalid(cat(settings.name("token-file"),
                         ": no host can join this job, since it has no --join-bind"));
    }
    if (settings.has("require-label")) {
      return invalid(cat(settings.name("require-label"),
                         ": no host can join this job, since it has no --join-bind"));
    }
    return std::optional<JoinListener>();
  }
  std::vector<std::string> labels;
  if (settings.has("require-label")) labels = list_items(settings.text("require-label"));
  auto bind = rendezvous::parse_bind_address(settings.text("join-bind"));
  if (!bind.ok()) return bind.status().with_context("--join-bind");
  if (!elastic && spec.hosts.empty() && spec.processes == 0) {
    return invalid(
        cat(settings.name("join-bind"), " without hosts needs -np, the number of workers"));
  }
  return std::optional(
      JoinListener{std::move(*bind), settings.text("token-file"), std::move(labels)});
}

Result<std::optional<MetricsListener>> metrics_listener(const SettingsReader& settings) {
  if (!settings.has("metrics-bind")) {
    if (settings.has("metrics-token-file")) {
      return invalid(
          cat(settings.name("metrics-token-file"), ": it has no effect without --metrics-bind"));
    }
    return std::optional<MetricsListener>();
  }
  auto bind = rendezvous::parse_bind_address(settings.text("metrics-bind"));
  if (!bind.ok()) return bind.status().with_context("--metrics-bind");
  return std::optional(MetricsListener{std::move(*bind), settings.text("metrics-token-file")});
}

Result<std::optional<driver::PageSpec>> page_spec(const SettingsReader& settings) {
  if (!settings.has("status-page")) return std::optional<driver::PageSpec>();
  auto bind = parse_page_address(settings.text("status-page"));
  if (!bind.ok()) return bind.status().with_context("--status-page");
  return std::optional(driver::PageSpec{std::move(*bind)});
}

// How many of the ports hvdrun's own listeners take.
int ports_of_hvdrun(const JobSetup& setup) {
  const auto takes_one = [&](const auto& listener) {
    if (!listener) return 0;
    const std::uint16_t port = listener->bind.port;
    return port == 0 || setup.spec.ports->contains(port) ? 1 : 0;
  };
  return kPortsOfHvdrun + takes_one(setup.join) + takes_one(setup.metrics) +
         takes_one(setup.spec.page) + (setup.slurm ? 1 : 0);
}

// Each host of the plan has ports enough. Names that only a resolver knows may be hvdrun's machine,
// too, which is seen later.
Status check_port_range(const driver::JobSpec& spec, const driver::Plan& plan) {
  std::map<std::string, int> workers;
  for (const auto& member : plan.members) ++workers[member.host];
  for (const auto& [host, count] : workers) {
    const bool is_here = driver::is_this_machine_without_lookup(host).value_or(false);
    const int of_hvdrun = is_here ? spec.ports_of_hvdrun : 0;
    HVD_RETURN_IF_ERROR(driver::check_ports(*spec.ports, host, count, of_hvdrun));
  }
  return {};
}

// A token that lets agents join lets its holder read the job's secrets, and a Prometheus shows its
// token in the clear.
Status check_tokens_differ(const driver::JobSpec& spec, const std::string& token_file) {
  const std::string_view token = spec.metrics->token.bytes();
  const bool lets_join = (spec.join && spec.join->token.bytes() == token) ||
                         (spec.slurm && spec.slurm->token.bytes() == token);
  if (!lets_join) return {};
  return invalid(cat("--metrics-token-file ", token_file,
                     ": it holds the token of --token-file, with which agents join; the metrics "
                     "need a token of their own"));
}

Status add_metrics(JobSetup& setup) {
  if (!setup.metrics) return {};
  const auto token = rendezvous::load_or_create_token(setup.metrics->token_file);
  HVD_RETURN_IF_ERROR(token.status().with_context("--metrics-token-file"));
  setup.spec.metrics = driver::MetricsSpec{setup.metrics->bind, *token, {setup.spec.ports}};
  return check_tokens_differ(setup.spec, setup.metrics->token_file);
}

// How the job ends so that it can be taken up again.
Status take_suspension(const SettingsReader& settings, JobSetup& setup) {
  setup.requeue = settings.boolean("requeue");
  if (setup.requeue && !setup.slurm) {
    return invalid(
        cat(settings.name("requeue"), ": the job does not run in an allocation of Slurm"));
  }
  if (setup.requeue) {
    HVD_RETURN_IF_ERROR(settings.explain("requeue", check_requeue(setup.slurm->job)));
  }
  if (!setup.spec.elastic) return {};
  if (setup.slurm) setup.spec.elastic->suspended_by = {SIGTERM, SIGUSR1};
  if (!settings.has("state-file")) {
    if (!settings.has("state-every")) return {};
    return invalid(cat(settings.name("state-every"), ": it has no effect without --state-file"));
  }
  setup.spec.elastic->suspended_by.insert(SIGTERM);
  setup.state_file =
      (std::filesystem::path(setup.spec.working_directory) / settings.text("state-file")).string();
  return {};
}

Status take_state(const SettingsReader& settings, JobSetup& setup) {
  driver::JobSpec& spec = setup.spec;
  if (!settings.has("state")) {
    for (const char* const flag : {"hold", "standby"}) {
      if (settings.has(flag)) {
        return invalid(cat(settings.name(flag), ": it has no effect without --state"));
      }
    }
    return {};
  }
  if (!spec.elastic) {
    return invalid(cat(settings.name("state"),
                       ": only an elastic job can be gone on with (--min-np makes it one)"));
  }
  if (setup.slurm) {
    return invalid(cat(settings.name("state"),
                       ": agents that srun has started end with hvdrun; --hosts-from ssh starts "
                       "them by SSH"));
  }
  const auto directory =
      std::filesystem::absolute(with_home(settings.text("state"))).lexically_normal();
  spec.state =
      driver::StateSpec{directory.string(), settings.seconds("hold"), settings.boolean("standby")};
  return {};
}

Status take_environment(const CommandLine& line, Values values,
                        const std::vector<std::string>& environment, JobSetup& setup) {
  if (!setup.state_file.empty()) values["state-file"].text = setup.state_file;
  // The workers of every host see a relative name from the same directory.
  if (const auto ledger = values.find("ledger"); ledger != values.end()) {
    std::string& file = ledger->second.text;
    file = (std::filesystem::path(setup.spec.working_directory) / file).string();
  }

  auto given = worker_environment(environment, line.environment, values);
  if (!given.ok()) return given.status();
  driver::JobSpec& spec = setup.spec;
  spec.environment = std::move(given->entries);
  spec.host_variables = std::move(given->host_variables);
  spec.secrets = std::move(given->secrets);
  spec.unnamed = std::move(given->unnamed);
  set_directory(spec.environment, line.environment, spec.working_directory);
  return {};
}

// 0, or the errno that explains why this file cannot be executed.
int why_not_executable(const std::string& path) {
  struct stat kind {};
  if (::stat(path.c_str(), &kind) != 0) return errno;
  if (S_ISDIR(kind.st_mode)) return EISDIR;
  return ::access(path.c_str(), X_OK) == 0 ? 0 : errno;
}

}  // namespace

Result<JobSetup> set_up_job(const CommandLine& line, const Values& values,
                            const std::vector<std::string>& environment) {
  const SettingsReader settings(values);
  JobSetup setup;
  driver::JobSpec& spec = setup.spec;
  spec.command = line.command;
  spec.processes = settings.has("num-proc") ? settings.integer("num-proc") : 0;
  spec.oversubscribe = settings.boolean("oversubscribe");
  spec.grace = settings.seconds("grace");
  spec.start_timeout = settings.seconds("start-timeout");
  spec.init_timeout = settings.seconds("init-timeout");
  spec.legacy_clients = settings.boolean("legacy-clients");

  auto slurm = slurm_hosts(values, environment);
  if (!slurm.ok()) return slurm.status();
  setup.slurm = std::move(*slurm);
  if (settings.has("token-file")) setup.token_file = settings.text("token-file");

  auto directory = working_directory(settings);
  if (!directory.ok()) return directory.status();
  spec.working_directory = std::move(*directory);

  auto hosts = hosts_of(settings, spec.processes, is_elastic(values), setup.slurm);
  if (!hosts.ok()) return hosts.status();
  spec.hosts = std::move(*hosts);
  auto join = join_listener(settings, spec, is_elastic(values), setup.slurm.has_value());
  if (!join.ok()) return join.status();
  setup.join = std::move(*join);
  auto metrics = metrics_listener(settings);
  if (!metrics.ok()) return metrics.status();
  setup.metrics = std::move(*metrics);
  auto page = page_spec(settings);
  if (!page.ok()) return page.status();
  spec.page = std::move(*page);

  const auto asked = driver::hosts_to_ask(spec.hosts, is_elastic(values) ? 0 : spec.processes);
  if (!asked.empty() && driver::slots_are_known(asked)) {
    auto plan = driver::plan_static(asked, spec.processes, spec.oversubscribe);
    if (!plan.ok()) return plan.status();
    setup.plan = std::move(*plan);
  }

  const bool discovers = setup.slurm && spec.hosts.empty();
  auto elastic = elastic_spec(values, spec, setup.plan, discovers);
  if (!elastic.ok()) return elastic.status();
  spec.elastic = std::move(*elastic);
  HVD_RETURN_IF_ERROR(take_suspension(settings, setup));
  HVD_RETURN_IF_ERROR(take_state(settings, setup));
  if (spec.elastic && discovers) {
    auto script = slurm_discovery_script(values, spec.elastic->limits.least);
    if (!script.ok()) return script.status();
    spec.elastic->discovery_script = std::move(*script);
    // Slurm's controller serves many.
    if (!settings.has("discovery-interval")) {
      spec.elastic->discovery_interval = kSlurmDiscoveryInterval;
    }
  }

  const std::string bind = settings.text("bind");
  spec.binding = bind == "cores" ? Binding::cores : bind == "numa" ? Binding::numa : Binding::none;

  HVD_RETURN_IF_ERROR(take_environment(line, values, environment, setup));

  spec.ssh = ssh_options(settings);
  HVD_RETURN_IF_ERROR(take_network(settings, spec));
  if (spec.ports) {
    spec.ports_of_hvdrun = ports_of_hvdrun(setup);
    const Status enough = check_port_range(spec, setup.plan);
    HVD_RETURN_IF_ERROR(settings.explain("port-range", enough));
  }
  if (spec.page) spec.page->ports = {spec.ports};

  setup.output.directory = settings.text("output-filename");
  setup.output.tagged = settings.text("tag-output") != "none";
  setup.output.timestamp = settings.boolean("prefix-output-with-timestamp");
  if (settings.has("local-ranks-filter")) {
    setup.output.local_ranks = *parse_local_ranks(settings.text("local-ranks-filter"));
  }
  setup.output.verbose = settings.boolean("verbose");
  if (settings.text("events") != "none") spec.journal = {settings.text("events")};
  setup.output.stall_timeout = settings.seconds("output-stall-timeout");
  return setup;
}

Status complete(JobSetup& setup, const std::vector<std::string>& environment) {
  auto agent = find_agent();
  if (!agent.ok()) return agent.status();
  setup.spec.agent_path = std::move(*agent);
  setup.spec.ssh.agent_path = setup.spec.agent_path;
  if (setup.join) {
    const auto token = rendezvous::load_or_create_token(setup.join->token_file);
    if (!token.ok()) return token.status();
    setup.spec.join = driver::JoinSpec{
        .bind = setup.join->bind,
        .token = *token,
        .ports = {setup.spec.ports},
        .required_labels = setup.join->required_labels,
        .silence = setup.spec.heartbeat_timeout,
        .hold = setup.spec.state ? setup.spec.state->hold : std::chrono::milliseconds(0)};
  }
  if (setup.slurm) {
    auto slurm = slurm_spec(*setup.slurm, setup.spec, setup.token_file, environment);
    if (!slurm.ok()) return slurm.status();
    setup.spec.slurm = std::move(*slurm);
  }
  return add_metrics(setup);
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
  Status unusable;
  for (const std::string& candidate : {beside, installed}) {
    const int why = why_not_executable(candidate);
    if (why == 0) return candidate;
    if (why == ENOENT || why == ENOTDIR) continue;
    unusable = Status::from_errno(cat(candidate, " exists, but cannot be executed"), why);
  }
  HVD_RETURN_IF_ERROR(unusable);
  return Status(
      Code::not_found,
      cat("cannot find the program hvd-agent, which starts the workers: neither ", beside, " nor ",
          installed, " exists; install hvd completely, or set HVD_AGENT to its path"));
}

}  // namespace hvd::cli
