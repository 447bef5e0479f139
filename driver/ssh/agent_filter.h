// A filter between libssh and the user's SSH agent. It shows libssh only the keys to offer, in
// order. libssh itself offers every key of an agent, and a host ends the session after a few
// (MaxAuthTries).
//
// libssh talks to an agent with blocking calls. It gets one end of a socket pair; a thread at the
// other end passes its requests on, and closes the pair at the deadline. For one thread; internal
// header of this folder.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptors.h"
#include "base/status.h"
#include "base/threads.h"
#include "driver/ssh/deadline.h"
#include "driver/ssh/session.h"

namespace hvd::driver::ssh {

// A key as the agent lists it (draft-miller-ssh-agent, 4.4).
struct AgentKey {
  std::string key;  // the public key or certificate, in base64
  std::string blob;
  std::string comment;
};

// Public keys in base64.
struct AgentChoice {
  std::vector<std::string> first;  // in this order
  bool only_first = false;         // else the others follow
  std::set<std::string> never;
};
std::vector<AgentKey> choose_keys(std::vector<AgentKey> held, const AgentChoice& choice);

// The agent's answer to a request for its keys; one that is not understood lists none.
std::vector<AgentKey> parse_identities(std::string_view message);
std::string identities_message(const std::vector<AgentKey>& keys);

class AgentFilter {
 public:
  // Connects to the agent's socket and asks for its keys.
  static Result<std::unique_ptr<AgentFilter>> connect(const std::string& path,
                                                      const Deadline& deadline);
  ~AgentFilter();
  AgentFilter(const AgentFilter&) = delete;
  AgentFilter& operator=(const AgentFilter&) = delete;

  const std::vector<AgentKey>& keys() const { return keys_; }
  // From now on the session's agent is this one, with these keys alone. Once.
  Status serve(ssh_session session, const std::vector<AgentKey>& keys);

 private:
  explicit AgentFilter(const Deadline& deadline) : deadline_(deadline) {}
  Status connect_to(const std::string& path);
  Result<std::string> receive(int fd) const;
  Status send(int fd, std::string_view message) const;
  Result<std::string> ask(std::string_view request) const;
  void pass_on(const std::string& identities) const;

  Deadline deadline_;
  std::vector<AgentKey> keys_;
  UniqueFd agent_;
  UniqueFd libssh_;  // our end of the pair
  EventFlag done_;
  ThreadGroup thread_;
};

}  // namespace hvd::driver::ssh
