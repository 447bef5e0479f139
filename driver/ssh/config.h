// What ~/.ssh/config says about a host: the keywords that matter to a launcher, read as ssh reads
// them (the first value found wins, identity files add up, patterns, Include, Match). A library of
// SSH could read the file, too, but would tell neither all identity files nor how host keys shall
// be checked. Pure but for the files read; values; safe from any thread.
//
// Not honoured: Match exec, canonical, final, localnetwork and tagged (such a block is passed
// over), and everything that this list does not name.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hvd::driver::ssh {

struct HostConfig {
  std::string host_name;  // what to connect to; the name itself if nothing was said
  std::string user;       // empty: not said
  int port = 0;           // 0: not said
  std::vector<std::string> identity_files;
  std::vector<std::string> certificate_files;
  bool identities_only = false;
  std::string identity_agent;  // a path, "none", "SSH_AUTH_SOCK" or "$NAME"; empty: not said
  std::string proxy_command;   // as written; empty or "none": no proxy
  std::string proxy_jump;
  std::vector<std::string> user_known_hosts;
  std::vector<std::string> global_known_hosts;
  std::string strict_host_key_checking;
  std::string host_key_alias;
  std::string address_family;  // "inet", "inet6"; else any
  std::string bind_address;
  std::string ciphers;
  std::string macs;
  std::string kex_algorithms;
  std::string host_key_algorithms;
  std::string pubkey_algorithms;
  std::string compression;
};

// What the person asked for; the files are read for it.
struct ConfigQuery {
  std::string host;
  std::string user;        // empty: not said
  std::string local_user;  // this process's
  std::string home;        // of this process's user: for "~"
};

// `file`: -F, which must exist; "none": no file at all; empty: ~/.ssh/config and
// /etc/ssh/ssh_config, if they are there.
Result<HostConfig> read_host_config(const ConfigQuery& query, const std::string& file);

// One file's text on top of what was found before. `source` stands in errors: "x/config:3: ...".
// Include looks relative to `include_directory`.
Status apply_config_text(std::string_view text, const std::string& source,
                         const std::string& include_directory, const ConfigQuery& query,
                         HostConfig& into);

// '*' and '?' as ssh_config has them, without regard to case.
bool matches_pattern(std::string_view text, std::string_view pattern);

// "~/x", "%d/x", "${NAME}/x" and the other tokens of a path in the configuration.
struct Tokens {
  std::string home;
  std::string local_user;
  std::string host;           // %h: what is connected to
  std::string original_host;  // %n
  std::string user;           // %r
  int port = 22;              // %p
};
std::string expand(std::string_view text, const Tokens& tokens);
std::string expand_path(std::string_view path, const Tokens& tokens);

}  // namespace hvd::driver::ssh
