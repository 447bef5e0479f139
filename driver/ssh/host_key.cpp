#include <algorithm>

#include "base/text.h"
#include "driver/ssh/steps.h"

namespace hvd::driver::ssh {
namespace {

std::string type_of(ssh_key key) { return ssh_key_type_to_char(ssh_key_type(key)); }

std::string changed(const Route& route, const KnownKey& known, ssh_key key) {
  return cat(
      "the host showed another key than last time: now ", type_of(key), " ", fingerprint_of(key),
      ", but ", known.file, ":", known.line, " says ", known.type, " ", known.fingerprint,
      ". Either the connection is intercepted, or the host was set up anew. If you know that it "
      "was: ssh-keygen -f ",
      shell_quote(known.file), " -R ", shell_quote(route.key_name));
}

}  // namespace

Status check_host_key(ssh_session session, const Route& route, const Warn& warn) {
  ssh_key raw = nullptr;
  if (ssh_get_server_publickey(session, &raw) != SSH_OK) {
    return {Code::internal, "the host's key cannot be read"};
  }
  const KeyPtr key(raw);
  if (route.host_key_check == HostKeyCheck::off) return {};

  std::vector<std::string> files = route.known_hosts;
  files.insert(files.end(), route.global_known_hosts.begin(), route.global_known_hosts.end());
  HVD_RETURN_IF_ERROR(check_known_hosts(files));
  const std::vector<KnownKey> known = look_up(files, route.key_name, key.get());
  for (const KnownKey& entry : known) {
    if (entry.revoked && entry.same) {
      return {Code::permission_denied, cat("the host's key ", entry.fingerprint, " is revoked by ",
                                           entry.file, ":", entry.line)};
    }
  }
  if (std::any_of(known.begin(), known.end(),
                  [](const KnownKey& entry) { return entry.same && !entry.revoked; })) {
    return {};
  }
  const auto other = std::find_if(known.begin(), known.end(),
                                  [](const KnownKey& entry) { return !entry.revoked; });
  if (other != known.end()) return {Code::permission_denied, changed(route, *other, key.get())};

  if (route.host_key_check == HostKeyCheck::strict) {
    return {Code::permission_denied,
            cat("the host is unknown, and unknown hosts are refused: its key ", type_of(key.get()),
                " ", fingerprint_of(key.get()), " is in none of ", join(files, ", "),
                ". Add it, or accept new hosts")};
  }
  // ssh goes on as well.
  const Status remembered = append_known_host(route.known_hosts.front(), route.key_name, key.get());
  if (!remembered.ok()) {
    warn(cat("the keys of new hosts are accepted, but not remembered: ", remembered.message(),
             "; --ssh-known-hosts names another file"));
  }
  return {};
}

}  // namespace hvd::driver::ssh
