// The steps for one host, each a function: combine options and configuration into a route, connect,
// check the host's key, authenticate, start the agent. They run on a thread of the launcher, one
// after the other, and block only with a Deadline. Internal header of this folder.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "driver/job/preflight.h"
#include "driver/ssh/deadline.h"
#include "driver/ssh/host_connection.h"
#include "driver/ssh/known_hosts.h"
#include "driver/ssh/launcher.h"
#include "driver/ssh/session.h"

namespace hvd::driver::ssh {

// Says one line to the user and goes on.
using Warn = std::function<void(const std::string& text)>;

// All parameters of the connection to one host, settled before the first packet is sent.
struct Route {
  std::string destination;        // as the user named it
  std::string host;               // to connect to
  std::string key_name;           // its name in known_hosts
  std::string name_without_port;  // where the key may stand instead; empty: nowhere
  std::string user;
  int port = 22;
  std::string proxy_command;  // for /bin/sh; empty: none
  std::string address_family;
  std::string bind_address;

  struct Identity {
    std::string file;
    std::string certificate;  // empty: none
    bool demanded = false;    // by -i: it is an error if it cannot be read
  };
  std::vector<Identity> identities;
  bool identities_only = false;
  std::string agent_socket;  // of the SSH agent; empty: none
  bool kerberos = false;     // GSSAPIAuthentication
  bool delegates_credentials = false;
  std::string kerberos_name;  // of the host, for Kerberos

  HostKeyCheck host_key_check = HostKeyCheck::accept_new;
  std::vector<std::string> known_hosts;  // the first one is written to
  std::vector<std::string> global_known_hosts;
  bool hash_known_hosts = false;

  // As configured (algorithms.h); empty: libssh's defaults.
  std::string ciphers;
  std::string macs;
  std::string kex_algorithms;
  std::string host_key_algorithms;
  std::string pubkey_algorithms;
  bool compression = false;
};

// `deadline`: for commands of the configuration.
Result<Route> plan_route(const Options& options, const Target& target, const Deadline& deadline,
                         const Warn& warn);

struct Connected {
  // Declared first, ended last: an open session holds the proxy's socket.
  std::unique_ptr<Proxy> proxy;
  SessionPtr session;
  std::string local_address;
  std::string peer_address;
};
// Up to the end of the key exchange. `step` is called at the beginning of each step.
Result<Connected> connect(const Route& route, const Deadline& deadline,
                          const std::function<void(Step)>& step);

Status check_host_key(ssh_session session, const Route& route, const Warn& warn);

Status authenticate(ssh_session session, const Route& route, const Deadline& deadline);

// The executable of the agent, which is copied to the hosts; read once.
struct AgentImage {
  std::string path;
  std::string bytes;
  std::string hash;  // SHA-256 in hexadecimal digits
};
Result<std::shared_ptr<const AgentImage>> read_agent(const std::string& path);

struct Started {
  ssh_channel channel = nullptr;  // of the session
  std::string first_bytes;        // from the agent, if it has sent any already
};
// `quiet_for`: the longest time without any progress. `on_progress` is called when a copy
// begins, and about once a second during it.
Result<Started> start_agent(ssh_session session, const AgentImage& image,
                            const std::string& cache_directory, const EventFlag& stop,
                            std::chrono::milliseconds quiet_for,
                            const std::function<void()>& on_progress);

}  // namespace hvd::driver::ssh
