// known_hosts: the keys of hosts that were seen before. The files are read anew for each host, and
// each new line is appended with one write, so that several sessions, jobs and ssh itself may use
// them at once.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "driver/ssh/session.h"

namespace hvd::driver::ssh {

struct KnownKey {
  std::string file;
  int line = 0;
  std::string type;  // "ssh-ed25519"
  std::string fingerprint;
  bool revoked = false;
  bool same = false;          // as the `key` of look_up()
  std::string place() const;  // "FILE:LINE"
};

// failed_precondition: one of these files belongs to another user, or every user may write it.
Status check_known_hosts(const std::vector<std::string>& files);
// The entries for `name` ("host", or "[host]:port" if the port is not 22). `key`: the host's key;
// may be null. Files that do not exist have no entries.
std::vector<KnownKey> look_up(const std::vector<std::string>& files, const std::string& name,
                              ssh_key key);
// The first entry that names a certificate authority for the host, which libssh cannot use.
std::optional<KnownKey> find_authority(const std::vector<std::string>& files,
                                       const std::string& name);
// "host", "[host]:2222", in lower case.
std::string known_hosts_name(std::string_view host, int port);
// Appends a line; creates the file and its directory if they do not exist. `hashed`: the file does
// not tell the name (HashKnownHosts). Any thread.
Status append_known_host(const std::string& file, const std::string& name, ssh_key key,
                         bool hashed = false);
// "SHA256:..."
std::string fingerprint_of(ssh_key key);

}  // namespace hvd::driver::ssh
