// known_hosts: which key a host had when it was last seen. Files are read anew for each host, and
// new lines appended whole, so that several sessions, jobs and ssh itself may use them at once.
#pragma once

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
  bool same = false;  // as the key that was asked about
};

// failed_precondition: one of these files belongs to somebody else, or everybody may write it.
Status check_known_hosts(const std::vector<std::string>& files);
// What the files say of `name` ("host", or "[host]:port" if the port is not 22). `key`: what the
// host showed; may be null. Files that are not there say nothing.
std::vector<KnownKey> look_up(const std::vector<std::string>& files, const std::string& name,
                              ssh_key key);
// "host", "[host]:2222", in lower case.
std::string known_hosts_name(std::string_view host, int port);
// One more line, at the end; makes the file and its directory if they are not there. Any thread.
Status append_known_host(const std::string& file, const std::string& name, ssh_key key);
// "SHA256:..."
std::string fingerprint_of(ssh_key key);

}  // namespace hvd::driver::ssh
