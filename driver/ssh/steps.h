// The steps that one host goes through, each a function: settle what the person and the
// configuration say, connect, check the host's key, prove who we are, start the agent. They run on
// a thread of the launcher, one after the other, and block with Patience only. Inner header of this
// room.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "driver/job/preflight.h"
#include "driver/ssh/dial.h"
#include "driver/ssh/known_hosts.h"
#include "driver/ssh/launcher.h"
#include "driver/ssh/patience.h"
#include "driver/ssh/session.h"

namespace hvd::driver::ssh {

// Everything that is known of the way to one host before the first packet is sent.
struct Route {
  std::string destination;  // as the person named it
  std::string host;         // what to connect to
  std::string key_name;     // what it is called in known_hosts
  std::string user;
  int port = 22;
  std::string proxy_command;  // for /bin/sh; empty: none
  std::string address_family;
  std::string bind_address;

  struct Identity {
    std::string file;
    std::string certificate;  // empty: none
    bool demanded = false;    // by -i: that it cannot be read is an error
  };
  std::vector<Identity> identities;
  bool identities_only = false;
  std::string agent_socket;  // of the SSH agent; empty: none

  HostKeyCheck host_key_check = HostKeyCheck::accept_new;
  std::vector<std::string> known_hosts;  // the first one is written to
  std::vector<std::string> global_known_hosts;

  // As libssh takes them; empty: its defaults.
  std::string ciphers;
  std::string macs;
  std::string kex_algorithms;
  std::string host_key_algorithms;
  std::string pubkey_algorithms;
  bool compression = false;
};

Result<Route> plan_route(const Options& options, const Target& target);

struct Connected {
  // Declared first, ended last: an open session holds the proxy's socket.
  std::unique_ptr<Proxy> proxy;
  SessionPtr session;
  std::string local_address;
  std::string peer_address;
};
// Up to the end of the key exchange. `step` follows what is being done.
Result<Connected> connect(const Route& route, const Patience& patience,
                          const std::function<void(Step)>& step);

Status check_host_key(ssh_session session, const Route& route);

Status authenticate(ssh_session session, const Route& route, const Patience& patience);

// The agent that is copied, read once.
struct AgentImage {
  std::string path;
  std::string bytes;
  std::string hash;  // SHA-256 in hexadecimal digits
};
Result<std::shared_ptr<const AgentImage>> read_agent(const std::string& path);

struct Started {
  ssh_channel channel = nullptr;  // of the session
  std::string first_bytes;        // what the agent said already, if anything
};
// `quiet_for`: how long nothing at all may happen. `on_progress` is called now and then while a
// copy goes on.
Result<Started> start_agent(ssh_session session, const AgentImage& image,
                            const std::string& cache_directory, const Signal& given_up,
                            std::chrono::milliseconds quiet_for,
                            const std::function<void()>& on_progress);

}  // namespace hvd::driver::ssh
