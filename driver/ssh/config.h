// The parameters of a host in ~/.ssh/config: the keywords that matter to a launcher, read as ssh
// reads them (the first value found wins, identity files add up, patterns, Include, Match). libssh
// can read the file, too, but reports neither all identity files nor StrictHostKeyChecking. Pure
// but for the files that are read and the commands of Match exec; values; safe from any thread.
//
// Not supported: CanonicalizeHostname; Match final, localnetwork and tagged (such a block is
// skipped); and every keyword without a field in HostConfig. Where that changes which host is
// reached, or how its key is checked, there is a warning.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hvd::driver::ssh {

struct HostConfig {
  std::string host_name;  // to connect to; the name itself if the files name no other
  std::string user;       // empty: not configured
  int port = 0;           // 0: not configured
  std::vector<std::string> identity_files;
  std::vector<std::string> certificate_files;
  bool identities_only = false;
  // A path, "none", "SSH_AUTH_SOCK" or "$NAME"; empty: not configured.
  std::string identity_agent;
  std::string proxy_command;  // as written; empty or "none": no proxy
  std::string proxy_jump;
  std::vector<std::string> user_known_hosts;
  std::vector<std::string> global_known_hosts;
  std::string strict_host_key_checking;
  std::string host_key_alias;
  std::string hash_known_hosts;
  std::string address_family;  // "inet", "inet6"; else any
  std::string bind_address;
  std::string ciphers;
  std::string macs;
  std::string kex_algorithms;
  std::string host_key_algorithms;
  std::string pubkey_algorithms;
  std::string compression;
  std::string gssapi_authentication;
  std::string gssapi_delegate_credentials;
  std::string gssapi_server_identity;
};

// The host and users that the patterns of the files are matched against.
struct ConfigQuery {
  std::string host;
  std::string user;        // empty: not given
  std::string local_user;  // this process's
  std::string home;        // of this process's user: for "~"
  // Whether the command of Match exec succeeds; an error ends the reading.
  std::function<Result<bool>(const std::string& command)> run_command = {};
  // A part that has no effect, with its file and line.
  std::function<void(const std::string& text)> warn = {};
};

// `file`: -F, which must exist; "none": no file at all; empty: ~/.ssh/config and
// /etc/ssh/ssh_config, if they exist.
Result<HostConfig> read_host_config(const ConfigQuery& query, const std::string& file);

// Adds the text of one file to `into`. `source` is its name in errors: "x/config:3: ...". Include
// is relative to `include_directory`.
Status apply_config_text(std::string_view text, const std::string& source,
                         const std::string& include_directory, const ConfigQuery& query,
                         HostConfig& into);

// '*' and '?' as in ssh_config, without regard to case.
bool matches_pattern(std::string_view text, std::string_view pattern);

// "~/x", "%d/x", "${NAME}/x" and the other tokens of a path in the configuration.
struct Tokens {
  std::string home;
  std::string local_user;
  std::string host;           // %h: the name to connect to
  std::string original_host;  // %n
  std::string user;           // %r
  int port = 22;              // %p
};
std::string expand(std::string_view text, const Tokens& tokens);
std::string expand_path(std::string_view path, const Tokens& tokens);

}  // namespace hvd::driver::ssh
