#include "cmd/hvdrun/settings.h"

#include <array>

#include "base/socket.h"
#include "base/text.h"

namespace hvd::cli {
namespace {

constexpr double kMaxProcesses = 100'000;
constexpr double kMaxSeconds = 31'536'000;  // a year

constexpr std::array kLaunchSettings{
    Knob{.flag = "num-proc",
         .config_key = "launch.num_proc",
         .variable = {},
         .horovod_name = {},
         .type = KnobType::integer,
         .minimum = 1,
         .maximum = kMaxProcesses,
         .help = "How many workers; without it, one for each slot"},
    Knob{.flag = "hosts",
         .config_key = "launch.hosts",
         .variable = {},
         .horovod_name = {},
         .type = KnobType::text,
         .help = "Hosts and their slots: a:4,b:4 (default: localhost)"},
    Knob{.flag = "hostfile",
         .config_key = "launch.hostfile",
         .variable = {},
         .horovod_name = {},
         .type = KnobType::text,
         .help = "File with a host a line, 'name slots=4'; -: standard input"},
    Knob{.flag = "slots-per-host",
         .config_key = "launch.slots_per_host",
         .variable = {},
         .horovod_name = {},
         .type = KnobType::integer,
         .default_text = "1",
         .minimum = 1,
         .maximum = kMaxProcesses,
         .help = "Slots of hosts that are named without a number"},
    Knob{.flag = "oversubscribe",
         .config_key = "launch.oversubscribe",
         .variable = {},
         .horovod_name = {},
         .type = KnobType::boolean,
         .default_text = "1",
         .help = "Allow more workers than slots, spread evenly"},
    Knob{.flag = "working-directory",
         .config_key = "launch.working_directory",
         .variable = {},
         .horovod_name = {},
         .type = KnobType::text,
         .help = "Where the workers start (default: here)"},
    Knob{.flag = "grace",
         .config_key = "launch.grace_seconds",
         .variable = "HVD_GRACE",
         .horovod_name = {},
         .type = KnobType::real,
         .default_text = "5",
         .maximum = kMaxSeconds,
         .help = "Seconds from SIGTERM to SIGKILL when the job is stopped"},
    Knob{.flag = "legacy-clients",
         .config_key = "launch.legacy_clients",
         .variable = {},
         .horovod_name = {},
         .type = KnobType::boolean,
         .default_text = "0",
         .help = "Serve programs built with Horovod: their requests are not signed"},
    Knob{.flag = "output-filename",
         .config_key = "output.filename",
         .variable = {},
         .horovod_name = {},
         .type = KnobType::text,
         .help = "Also write each worker's output to DIR/rank.<R>/stdout and stderr"},
    Knob{.flag = "prefix-output-with-timestamp",
         .config_key = "output.with_timestamp",
         .variable = {},
         .horovod_name = {},
         .type = KnobType::boolean,
         .default_text = "0",
         .help = "Put the time before each line's prefix"},
    Knob{.flag = "tag-output",
         .config_key = "output.tag",
         .variable = {},
         .horovod_name = {},
         .type = KnobType::text,
         .default_text = "rank",
         .help = "rank: put [<rank>]<stdout>: before each line; none: bytes as they come"},
    Knob{.flag = "output-stall-timeout",
         .config_key = "output.stall_timeout_seconds",
         .variable = "HVD_OUTPUT_STALL_TIMEOUT",
         .horovod_name = {},
         .type = KnobType::real,
         .default_text = "10",
         .minimum = 0.001,
         .maximum = kMaxSeconds,
         .help = "Seconds that workers wait for a reader of the output before it is dropped"},
    Knob{.flag = "verbose",
         .config_key = "output.verbose",
         .variable = {},
         .horovod_name = {},
         .type = KnobType::boolean,
         .default_text = "0",
         .help = "Say what hvdrun does"},
    Knob{.flag = "ssh-port",
         .config_key = "ssh.port",
         .variable = {},
         .horovod_name = {},
         .type = KnobType::integer,
         .minimum = 1,
         .maximum = 65535,
         .help = "SSH's port on hosts that name none (default: as configured, else 22)"},
    Knob{.flag = "ssh-identity-file",
         .config_key = "ssh.identity_file",
         .variable = {},
         .horovod_name = {},
         .type = KnobType::text,
         .help = "Private key to log in with, before those configured; repeatable"},
    Knob{.flag = "ssh-config",
         .config_key = "ssh.config_file",
         .variable = {},
         .horovod_name = {},
         .type = KnobType::text,
         .help = "Read this in place of ~/.ssh/config; none: read no configuration"},
    Knob{.flag = "ssh-host-key",
         .config_key = "ssh.host_key",
         .variable = {},
         .horovod_name = {},
         .type = KnobType::text,
         .default_text = "accept-new",
         .help = "What to do with hosts' keys: accept-new, strict or off"},
    Knob{.flag = "ssh-known-hosts",
         .config_key = "ssh.known_hosts_file",
         .variable = {},
         .horovod_name = {},
         .type = KnobType::text,
         .help = "Where keys of hosts are kept (default: as configured, else ~/.ssh/known_hosts)"},
    Knob{.flag = "ssh-connect-timeout",
         .config_key = "ssh.connect_timeout_seconds",
         .variable = {},
         .horovod_name = {},
         .type = KnobType::real,
         .default_text = "10",
         .minimum = 0.1,
         .maximum = kMaxSeconds,
         .help = "Seconds for a host to be found and to answer"},
    Knob{.flag = "ssh-parallel",
         .config_key = "ssh.parallel",
         .variable = {},
         .horovod_name = {},
         .type = KnobType::integer,
         .default_text = "32",
         .minimum = 1,
         .maximum = 1000,
         .help = "Hosts that are connected to at the same time"},
    Knob{.flag = "agent-cache",
         .config_key = "ssh.agent_cache",
         .variable = {},
         .horovod_name = {},
         .type = KnobType::text,
         .help = "Where agents are kept on the hosts (default: ~/.cache/hvd)"},
    Knob{.flag = "network-interface",
         .config_key = "network.interface",
         .variable = {},
         .horovod_name = {},
         .type = KnobType::text,
         .help = "Use only addresses of this interface, eth0 or eth0,ib0; repeatable"},
    Knob{.flag = "advertise-address",
         .config_key = "network.advertise_address",
         .variable = {},
         .horovod_name = {},
         .type = KnobType::text,
         .help = "IP address by which the hosts reach hvdrun (default: found out)"},
    Knob{.flag = "heartbeat-timeout",
         .config_key = "network.heartbeat_timeout_seconds",
         .variable = {},
         .horovod_name = {},
         .type = KnobType::real,
         .default_text = "3",
         .minimum = 0.1,
         .maximum = kMaxSeconds,
         .help = "Seconds of silence after which a host is taken for lost"},
    Knob{.flag = "orphan-timeout",
         .config_key = "network.orphan_timeout_seconds",
         .variable = {},
         .horovod_name = {},
         .type = KnobType::real,
         .default_text = "30",
         .minimum = 0.1,
         .maximum = kMaxSeconds,
         .help = "Seconds of silence after which a cut-off host kills its workers"},
    Knob{.flag = "join-bind",
         .config_key = "join.bind",
         .variable = {},
         .horovod_name = {},
         .type = KnobType::text,
         .help = "Start nothing on the hosts, but let in agents that come to this address"},
    Knob{.flag = "token-file",
         .config_key = "join.token_file",
         .variable = {},
         .horovod_name = {},
         .type = KnobType::text,
         .default_text = "hvd-token",
         .help = "What proves that they may; made if it is not there"},
};

}  // namespace

std::span<const Knob> launch_settings() { return kLaunchSettings; }

std::vector<const Knob*> all_settings() {
  std::vector<const Knob*> all;
  for (const Knob& setting : launch_settings()) all.push_back(&setting);
  for (const Knob& knob : knobs()) all.push_back(&knob);
  return all;
}

const Knob* find_setting_by_flag(std::string_view flag) {
  for (const Knob* const setting : all_settings()) {
    if (setting->flag == flag) return setting;
  }
  return nullptr;
}

bool is_list(const Knob& setting) {
  return setting.flag == "ssh-identity-file" || setting.flag == "network-interface";
}

std::string list_text(const std::vector<std::string>& items) { return join(items, "\n"); }

std::vector<std::string> list_items(std::string_view text) { return split(text, '\n'); }

const Knob* find_setting_by_config_key(std::string_view key) {
  for (const Knob* const setting : all_settings()) {
    if (setting->config_key == key) return setting;
  }
  return nullptr;
}

Result<std::string> setting_value(const Knob& setting, std::string_view text,
                                  std::string_view shown_as) {
  const auto refuse = [&](std::string_view what) {
    return Status(Code::invalid_argument, cat(shown_as, "=", text, ": must be ", what));
  };
  if (setting.flag == "tag-output" && text != "rank" && text != "none") {
    return refuse("rank or none");
  }
  if (setting.flag == "ssh-host-key" && text != "accept-new" && text != "strict" && text != "off") {
    return refuse("accept-new, strict or off");
  }
  if (setting.flag == "advertise-address" && !is_ip_address(std::string(text))) {
    return refuse("an IPv4 or IPv6 address");
  }
  return knob_environment_value(setting, text, shown_as);
}

Result<Values> values_from_environment(const EnvironmentLookup& lookup) {
  Values values;
  for (const Knob* const setting : all_settings()) {
    auto text = knob_from_environment(*setting, lookup);
    if (!text.ok()) return text.status();
    if (!text->has_value()) continue;
    values[std::string(setting->flag)] = {**text,
                                          "environment variable " + std::string(setting->variable)};
  }
  return values;
}

Values merge(Values stronger, const Values& weaker) {
  const bool hosts_said = stronger.count("hosts") + stronger.count("hostfile") > 0;
  for (const auto& [flag, value] : weaker) {
    if (hosts_said && (flag == "hosts" || flag == "hostfile")) continue;
    stronger.emplace(flag, value);
  }
  return stronger;
}

}  // namespace hvd::cli
