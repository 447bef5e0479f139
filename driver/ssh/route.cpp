#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "base/descriptors.h"
#include "base/machine/child_process.h"
#include "base/text.h"
#include "driver/ssh/config.h"
#include "driver/ssh/steps.h"

namespace hvd::driver::ssh {
namespace {

struct LocalUser {
  std::string name;
  std::string home;
};

// The home directory comes from the user database and not from HOME, as with ssh.
LocalUser local_user() {
  LocalUser user;
  std::vector<char> buffer(16'384);
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwuid_r(::geteuid(), &entry, buffer.data(), buffer.size(), &found) == 0 &&
      found != nullptr) {
    user.name = found->pw_name;
    user.home = found->pw_dir;
    return user;
  }

  // A user who is not in the database, as in containers.
  // NOLINTBEGIN(concurrency-mt-unsafe): hvdrun does not change its environment
  if (const char* const home = std::getenv("HOME")) user.home = home;
  if (const char* const name = std::getenv("USER")) user.name = name;
  // NOLINTEND(concurrency-mt-unsafe)
  return user;
}

// The command of a condition of the configuration, run by the user's shell as ssh runs it.
Result<bool> succeeds(const std::string& command, const Deadline& deadline) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): hvdrun does not change its environment
  const char* const shell = std::getenv("SHELL");
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null) return Status::from_errno("open /dev/null", errno);
  auto child =
      spawn_in_session({shell == nullptr || *shell == '\0' ? "/bin/sh" : shell, "-c", command},
                       {.input = null.get(), .output = null.get()});
  if (!child.ok()) return child.status();

  const auto ended = watch_child(child->pid());
  const Status in_time = ended.ok() ? deadline.wait_for(ended->get(), POLLIN) : ended.status();
  if (!in_time.ok()) child->signal_group(SIGKILL);
  const auto status = child->wait();
  HVD_RETURN_IF_ERROR(in_time);
  HVD_RETURN_IF_ERROR(status.status());
  return WIFEXITED(*status) && WEXITSTATUS(*status) == 0;
}

bool exists(const std::string& file) {
  struct stat about {};
  return ::stat(file.c_str(), &about) == 0;
}

std::string ssh_agent_socket(const std::string& configured, const Tokens& tokens) {
  // NOLINTBEGIN(concurrency-mt-unsafe): hvdrun does not change its environment
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  // NOLINTEND(concurrency-mt-unsafe)
  if (configured == "none") return {};
  if (configured.empty() || configured == "SSH_AUTH_SOCK") return variable("SSH_AUTH_SOCK");
  if (configured.starts_with('$') && !configured.starts_with("${")) {
    return variable(configured.substr(1).c_str());
  }
  return expand_path(configured, tokens);
}

// The same as ssh's own ProxyJump: an ssh to the last hop, which goes through the others.
std::string jump_command(const std::string& jumps, const Options& options, const Route& route) {
  const std::size_t comma = jumps.rfind(',');
  std::string last = jumps.substr(comma == std::string::npos ? 0 : comma + 1);

  std::vector<std::string> arguments{"ssh", "-o", "BatchMode=yes"};
  if (!options.config_file.empty()) arguments.insert(arguments.end(), {"-F", options.config_file});
  for (const std::string& file : options.identity_files) {
    arguments.insert(arguments.end(), {"-i", file});
  }
  if (!options.known_hosts_file.empty()) {
    arguments.insert(arguments.end(), {"-o", "UserKnownHostsFile=" + options.known_hosts_file});
  }
  const char* check = "accept-new";
  if (route.host_key_check == HostKeyCheck::strict) check = "yes";
  if (route.host_key_check == HostKeyCheck::off) check = "no";
  arguments.insert(arguments.end(), {"-o", cat("StrictHostKeyChecking=", check)});
  if (comma != std::string::npos) arguments.insert(arguments.end(), {"-J", jumps.substr(0, comma)});

  // The last hop: [ssh://][user@]host[:port], where the host may be an IPv6 address in brackets.
  if (last.starts_with("ssh://")) last.erase(0, 6);
  const std::size_t bracket = last.rfind(']');
  const std::size_t colon = last.rfind(':');
  const bool has_port = colon != std::string::npos &&
                        (bracket == std::string::npos ? last.find(':') == colon : colon > bracket);
  if (has_port) {
    arguments.insert(arguments.end(), {"-p", last.substr(colon + 1)});
    last.resize(colon);
  }
  const std::size_t at = last.rfind('@');
  if (at != std::string::npos) {
    arguments.insert(arguments.end(), {"-l", last.substr(0, at)});
    last.erase(0, at + 1);
  }
  if (last.starts_with('[') && last.ends_with(']')) last = last.substr(1, last.size() - 2);
  arguments.insert(arguments.end(), {"-W", cat("[", route.host, "]:", route.port), "--", last});

  std::vector<std::string> quoted;
  quoted.reserve(arguments.size());
  for (const std::string& argument : arguments) quoted.push_back(shell_quote(argument));
  return join(quoted, " ");
}

void plan_identities(const Options& options, const HostConfig& config, const Tokens& tokens,
                     Route& route) {
  const auto add = [&](const std::string& written, bool demanded) {
    Route::Identity identity{
        .file = expand_path(written, tokens), .certificate = {}, .demanded = demanded};
    for (const Route::Identity& earlier : route.identities) {
      if (earlier.file == identity.file) return;
    }
    if (const std::string certificate = identity.file + "-cert.pub"; exists(certificate)) {
      identity.certificate = certificate;
    }
    route.identities.push_back(std::move(identity));
  };

  for (const std::string& file : options.identity_files) add(file, true);
  for (const std::string& file : config.identity_files) {
    if (file != "none") add(file, false);
  }
  if (config.identity_files.empty()) {
    for (const char* const name : {"id_ed25519", "id_ecdsa", "id_rsa"}) {
      add(cat("~/.ssh/", name), false);
    }
  }
  for (const std::string& file : config.certificate_files) {
    // Only the keys themselves show to which of them it belongs, and they are not read yet: each
    // key without a certificate of its own tries this one.
    for (Route::Identity& identity : route.identities) {
      if (identity.certificate.empty()) identity.certificate = expand_path(file, tokens);
    }
  }
}

HostKeyCheck settle_check(HostKeyCheck wanted, const std::string& configured) {
  if (wanted != HostKeyCheck::accept_new) return wanted;
  if (configured == "yes") return HostKeyCheck::strict;
  if (configured == "no" || configured == "off") return HostKeyCheck::off;
  return wanted;
}

void plan_known_hosts(const Options& options, const HostConfig& config, const Tokens& tokens,
                      Route& route) {
  route.host_key_check = settle_check(options.host_key_check, config.strict_host_key_checking);
  route.key_name = config.host_key_alias;
  if (route.key_name.empty()) {
    route.key_name = known_hosts_name(route.host, route.port);
    if (route.port != 22) route.name_without_port = known_hosts_name(route.host, 22);
  }
  route.hash_known_hosts = config.hash_known_hosts == "yes";
  if (!options.known_hosts_file.empty()) {
    route.known_hosts = {expand_path(options.known_hosts_file, tokens)};
  } else if (!config.user_known_hosts.empty()) {
    for (const std::string& file : config.user_known_hosts) {
      route.known_hosts.push_back(file == "none" ? "/dev/null" : expand_path(file, tokens));
    }
  } else {
    route.known_hosts = {tokens.home + "/.ssh/known_hosts", tokens.home + "/.ssh/known_hosts2"};
  }
  if (!config.global_known_hosts.empty()) {
    for (const std::string& file : config.global_known_hosts) {
      route.global_known_hosts.push_back(expand_path(file, tokens));
    }
  } else {
    route.global_known_hosts = {"/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"};
  }
}

}  // namespace

Result<Route> plan_route(const Options& options, const Target& target, const Deadline& deadline,
                         const Warn& warn) {
  const LocalUser user = local_user();
  std::string destination = target.destination;
  if (destination.starts_with('[') && destination.ends_with(']')) {
    destination = destination.substr(1, destination.size() - 2);
  }
  if (destination.empty() || destination.find_first_of(" \t\n\r") != std::string::npos ||
      destination.front() == '-') {
    return Status(Code::invalid_argument, cat("\"", target.destination, "\" is not a host name"));
  }
  auto config = read_host_config(
      {.host = destination,
       .user = target.user,
       .local_user = user.name,
       .home = user.home,
       .run_command = [&](const std::string& command) { return succeeds(command, deadline); },
       .warn = warn},
      options.config_file);
  if (!config.ok()) return config.status();

  Route route;
  route.destination = destination;
  route.host = config->host_name;
  if (route.host.starts_with('[') && route.host.ends_with(']')) {
    route.host = route.host.substr(1, route.host.size() - 2);
  }
  route.user = target.user;
  if (route.user.empty()) route.user = config->user;
  if (route.user.empty()) route.user = user.name;
  route.port = target.port;
  if (route.port == 0) route.port = options.port;
  if (route.port == 0) route.port = config->port;
  if (route.port == 0) route.port = 22;
  route.address_family = config->address_family;
  route.bind_address = config->bind_address;
  const Tokens tokens{.home = user.home,
                      .local_user = user.name,
                      .host = route.host,
                      .original_host = destination,
                      .user = route.user,
                      .port = route.port};

  plan_known_hosts(options, *config, tokens, route);
  plan_identities(options, *config, tokens, route);
  route.identities_only = config->identities_only;
  route.agent_socket = ssh_agent_socket(config->identity_agent, tokens);
  route.kerberos = config->gssapi_authentication == "yes";
  route.delegates_credentials = config->gssapi_delegate_credentials == "yes";
  route.kerberos_name = config->gssapi_server_identity;
  if (route.kerberos_name.empty()) route.kerberos_name = route.host;

  if (!config->proxy_jump.empty() && config->proxy_jump != "none") {
    route.proxy_command = jump_command(config->proxy_jump, options, route);
  } else if (!config->proxy_command.empty() && config->proxy_command != "none") {
    route.proxy_command = expand(config->proxy_command, tokens);
    if (route.proxy_command.starts_with("exec ")) route.proxy_command.erase(0, 5);
  }

  route.ciphers = config->ciphers;
  route.macs = config->macs;
  route.kex_algorithms = config->kex_algorithms;
  route.host_key_algorithms = config->host_key_algorithms;
  route.pubkey_algorithms = config->pubkey_algorithms;
  route.compression = config->compression == "yes";
  return route;
}

}  // namespace hvd::driver::ssh
