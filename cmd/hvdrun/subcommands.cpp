#include "cmd/hvdrun/subcommands.h"

#include <cmath>

#include <CLI/CLI.hpp>

#include "base/labels.h"
#include "base/machine/capacity.h"
#include "base/port_range.h"
#include "base/text.h"
#include "cmd/hvdrun/arguments.h"
#include "cmd/hvdrun/settings.h"
#include "discovery/host_words.h"

namespace hvd::cli {
namespace {

// A flag that is given twice counts as it was given last.
void set_defaults(CLI::App& app) {
  app.set_help_flag();
  app.option_defaults()->group("Options")->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

struct RendezvousParser {
  CLI::App app{"Runs the rendezvous service by itself.", "hvdrun rendezvous"};
  RendezvousArguments arguments;
  bool help = false;

  RendezvousParser();
};

RendezvousParser::RendezvousParser() {
  set_defaults(app);
  app.add_option("--bind", arguments.bind, "Address to listen on; port 0: any free port")
      ->type_name("ADDRESS:PORT");
  app.add_option("--port-range", arguments.port_range, "Ports to take one of if --bind has port 0")
      ->type_name("A-B");
  app.add_option("--token-file", arguments.token_file,
                 "Shared-secret file, 64 hex digits; created if missing (default: ./hvd-token)")
      ->type_name("FILE");
  app.add_flag("--legacy-clients", arguments.legacy_clients,
               "Also serve clients built with Horovod, whose requests are not signed");
  app.add_flag("--help", help, "Print this help and exit");
}

struct AgentParser {
  CLI::App app{"Lets a job of another machine's hvdrun start workers on this machine.",
               "hvdrun agent"};
  AgentArguments arguments;
  std::string url;
  std::string slots;
  std::string seconds = "300";
  bool help = false;

  AgentParser();
};

AgentParser::AgentParser() {
  set_defaults(app);
  app.add_option("--join", url, "Where that hvdrun listens (its --join-bind); several with commas")
      ->type_name("tls://ADDRESS:PORT");
  app.add_option("--token-file", arguments.token_file,
                 "Copy of that hvdrun's shared-secret file, or a file of hvdrun token (default: "
                 "./hvd-token)")
      ->type_name("FILE");
  app.add_option("--host", arguments.host,
                 "Name of this machine in the job (default: its own name)")
      ->type_name("NAME");
  app.add_option("--slots", slots,
                 "Number of workers to offer (default: one for each GPU that CUDA_VISIBLE_DEVICES "
                 "leaves, without GPUs one for each core)")
      ->type_name("N");
  app.add_option("--label", arguments.labels, "Label of this machine, for jobs that require one")
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--join-timeout", seconds, "Seconds to keep trying to join (default: 300)")
      ->type_name("SECONDS");
  app.add_flag("--help", help, "Print this help and exit");
}

// A subcommand takes options only: what follows them is an error.
Status parse_all(CLI::App& app, const std::vector<std::string>& arguments) {
  const std::string command = app.get_name();
  auto split = split_arguments(app, arguments);
  if (!split.ok()) return split.status().with_context(command);
  if (!split->command.empty()) {
    return usage(cat(command, ": unexpected argument '", split->command.front(),
                     "'; a program of this name is started as ./",
                     command.substr(command.find(' ') + 1)));
  }
  return parse_options(app, split->options).with_context(command);
}

// "tls://10.0.0.1:4000", "tls://driver:4000", "tls://[::1]:4000".
Result<JoinAddress> parse_join_url(std::string_view text) {
  const Status wrong(Code::invalid_argument,
                     cat("hvdrun agent: --join ", text,
                         ": must be tls://ADDRESS:PORT, as in tls://10.0.0.1:4000, "
                         "tls://driver:4000 or tls://[::1]:4000, or several of them with commas"));
  constexpr std::string_view kScheme = "tls://";
  if (!text.starts_with(kScheme)) return wrong;
  text.remove_prefix(kScheme.size());
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) return wrong;
  const auto port = parse_number<std::uint16_t>(text.substr(colon + 1));
  std::string_view host = text.substr(0, colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (!port || *port == 0 || host.empty() ||
      host.find_first_of(bracketed ? "[]/" : "[]:/") != std::string_view::npos) {
    return wrong;
  }
  return JoinAddress{std::string(host), *port};
}

}  // namespace

FlagTable rendezvous_flag_table() { return table_of(RendezvousParser().app, "rendezvous"); }
FlagTable agent_flag_table() { return table_of(AgentParser().app, "agent"); }

Result<CommandLine> parse_rendezvous(const std::vector<std::string>& arguments) {
  RendezvousParser parser;
  HVD_RETURN_IF_ERROR(parse_all(parser.app, arguments));

  CommandLine line;
  line.action = Action::rendezvous;
  line.rendezvous = parser.arguments;
  if (parser.help) {
    line.action = Action::help;
    line.help = parser.app.help();
  } else if (line.rendezvous.bind.empty()) {
    return usage("hvdrun rendezvous: needs --bind ADDRESS:PORT");
  } else if (const auto& range = line.rendezvous.port_range;
             !range.empty() && !parse_port_range(range)) {
    return usage(cat("hvdrun rendezvous: --port-range=", range, ": must be ", kPortRangeForm));
  }
  return line;
}

Result<CommandLine> parse_agent(const std::vector<std::string>& arguments) {
  AgentParser parser;
  HVD_RETURN_IF_ERROR(parse_all(parser.app, arguments));

  CommandLine line;
  line.action = Action::agent;
  line.agent = parser.arguments;
  if (parser.help) {
    line.action = Action::help;
    line.help = parser.app.help();
    return line;
  }

  AgentArguments& agent = line.agent;
  if (!agent.host.empty()) {
    const Status name = discovery::check_host_name(agent.host);
    if (!name.ok()) return usage(cat("hvdrun agent: --host: ", name.message()));
  }
  if (parser.url.empty()) return usage("hvdrun agent: needs --join tls://ADDRESS:PORT");
  for (const auto& url : split(parser.url, ',')) {
    auto address = parse_join_url(url);
    HVD_RETURN_IF_ERROR(address.status());
    agent.join.push_back(std::move(*address));
  }

  if (!parser.slots.empty()) {
    const auto number = parse_number<int>(parser.slots);
    if (!number || *number < 1 || *number > kMaxSlots) {
      return usage(cat("hvdrun agent: --slots=", parser.slots, ": must be an integer from 1 to ",
                       kMaxSlots));
    }
    agent.slots = *number;
  }

  if (const Status labels = check_labels(agent.labels); !labels.ok()) {
    return usage(cat("hvdrun agent: --label: ", labels.message()));
  }

  const auto timeout = parse_number<double>(parser.seconds);
  if (!timeout || !(*timeout >= 0 && *timeout <= kMaxSeconds)) {
    return usage(
        cat("hvdrun agent: --join-timeout=", parser.seconds, ": must be a number of seconds"));
  }
  agent.join_timeout = std::chrono::milliseconds(std::llround(*timeout * 1000));
  return line;
}

}  // namespace hvd::cli
