#include "cmd/hvdrun/subcommands.h"

#include <cmath>

#include <CLI/CLI.hpp>

#include "base/machine/capacity.h"
#include "base/text.h"
#include "cmd/hvdrun/arguments.h"
#include "cmd/hvdrun/settings.h"

namespace hvd::cli {
namespace {

// What follows the options is nothing that a subcommand takes.
Status parse_all(CLI::App& app, const std::vector<std::string>& arguments, std::string_view who) {
  auto split = split_arguments(app, arguments);
  if (!split.ok()) return split.status().with_context(who);
  if (!split->command.empty()) {
    const auto name = who.substr(who.find(' ') + 1);
    return usage(cat(who, ": unexpected word '", split->command.front(),
                     "'; a program of this name is started as ./", name));
  }
  return parse_options(app, split->options).with_context(who);
}

// "tls://10.0.0.1:4000", "tls://driver:4000", "tls://[::1]:4000".
Result<JoinAddress> parse_join_url(std::string_view text) {
  const Status wrong(Code::invalid_argument,
                     cat("hvdrun agent: --join ", text,
                         ": must be tls://ADDRESS:PORT, as in tls://10.0.0.1:4000, "
                         "tls://driver:4000 or tls://[::1]:4000"));
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

Result<CommandLine> parse_rendezvous(const std::vector<std::string>& arguments) {
  CLI::App app{"hvdrun rendezvous: the rendezvous service by itself", "hvdrun rendezvous"};
  CommandLine line;
  line.action = Action::rendezvous;
  bool help = false;
  app.set_help_flag();
  app.add_option("--bind", line.rendezvous.bind, "Where to listen; port 0: any free one")
      ->type_name("ADDRESS:PORT");
  app.add_option("--token-file", line.rendezvous.token_file,
                 "The token as 64 hex digits; made if it is not there (default: ./hvd-token)")
      ->type_name("FILE");
  app.add_flag("--legacy-clients", line.rendezvous.legacy_clients,
               "Also serve Horovod's own clients, unsigned");
  app.add_flag("--help", help, "Print this");
  HVD_RETURN_IF_ERROR(parse_all(app, arguments, "hvdrun rendezvous"));
  if (help) {
    line.action = Action::help;
    line.help = app.help();
  } else if (line.rendezvous.bind.empty()) {
    return usage("hvdrun rendezvous: needs --bind ADDRESS:PORT");
  }
  return line;
}

Result<CommandLine> parse_agent(const std::vector<std::string>& arguments) {
  CLI::App app{"hvdrun agent: lets the job of an hvdrun elsewhere start workers on this machine",
               "hvdrun agent"};
  CommandLine line;
  line.action = Action::agent;
  AgentArguments& agent = line.agent;
  std::string url;
  std::string slots;
  std::string seconds = "300";
  bool help = false;
  app.set_help_flag();
  app.add_option("--join", url, "Where that hvdrun listens (its --join-bind)")
      ->type_name("tls://ADDRESS:PORT");
  app.add_option("--token-file", agent.token_file,
                 "A copy of its token file (default: ./hvd-token)")
      ->type_name("FILE");
  app.add_option("--host", agent.host, "What the job calls this machine (default: its own name)")
      ->type_name("NAME");
  app.add_option(
         "--slots", slots,
         "How many workers it has room for (default: one for each GPU that CUDA_VISIBLE_DEVICES "
         "leaves, without GPUs one for each core)")
      ->type_name("N");
  app.add_option("--join-timeout", seconds,
                 "Seconds until it gives up trying to join (default: 300)")
      ->type_name("SECONDS");
  app.add_flag("--help", help, "Print this");
  HVD_RETURN_IF_ERROR(parse_all(app, arguments, "hvdrun agent"));
  if (help) {
    line.action = Action::help;
    line.help = app.help();
    return line;
  }
  if (url.empty()) return usage("hvdrun agent: needs --join tls://ADDRESS:PORT");
  auto address = parse_join_url(url);
  if (!address.ok()) return address.status();
  agent.join = std::move(*address);
  if (!slots.empty()) {
    const auto number = parse_number<int>(slots);
    if (!number || *number < 1 || *number > kMaxSlots) {
      return usage(
          cat("hvdrun agent: --slots=", slots, ": must be an integer from 1 to ", kMaxSlots));
    }
    agent.slots = *number;
  }
  const auto number_of_seconds = parse_number<double>(seconds);
  if (!number_of_seconds || !(*number_of_seconds >= 0 && *number_of_seconds <= kMaxSeconds)) {
    return usage(cat("hvdrun agent: --join-timeout=", seconds, ": must be a number of seconds"));
  }
  agent.join_timeout = std::chrono::milliseconds(std::llround(*number_of_seconds * 1000));
  return line;
}

}  // namespace hvd::cli
