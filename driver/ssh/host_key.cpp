#include <algorithm>

#include "base/text.h"
#include "driver/ssh/steps.h"

namespace hvd::driver::ssh {
namespace {

std::string type_name(ssh_key key) { return ssh_key_type_to_char(ssh_key_type(key)); }

std::string changed(const Route& route, const KnownKey& known, ssh_key key) {
  return cat(
      "the host showed another key than last time: now ", type_name(key), " ", fingerprint_of(key),
      ", but ", known.place(), " says ", known.type, " ", known.fingerprint,
      ". Either the connection is intercepted, or the host was set up anew. If you know that it "
      "was: ssh-keygen -f ",
      shell_quote(known.file), " -R ", shell_quote(route.key_name));
}

// Where nothing is known for the host with its port, the same key without a port will do, as with
// ssh. Another key there says nothing: a port may lead to another machine.
std::vector<KnownKey> known_keys(const std::vector<std::string>& files, const Route& route,
                                 ssh_key key) {
  std::vector<KnownKey> known = look_up(files, route.key_name, key);
  if (route.name_without_port.empty() || !std::ranges::all_of(known, &KnownKey::revoked)) {
    return known;
  }
  for (const KnownKey& entry : look_up(files, route.name_without_port, key)) {
    if (entry.same) known.push_back(entry);
  }
  return known;
}

Status judge_new_host(const std::vector<std::string>& files, const Route& route, ssh_key key,
                      const Warn& warn) {
  const auto authority = find_authority(files, route.key_name);
  if (route.host_key_check == HostKeyCheck::strict) {
    return {
        Code::permission_denied,
        cat("the host is unknown, and unknown hosts are refused: its key ", type_name(key), " ",
            fingerprint_of(key), " is in none of ", join(files, ", "),
            authority ? cat(" (@cert-authority, ", authority->place(), ", is not supported)") : "",
            ". Add it, or accept new hosts")};
  }
  if (authority) {
    warn(cat(authority->place(),
             ": @cert-authority is not supported; the keys of new hosts are accepted without it"));
  }
  // ssh goes on as well.
  const Status remembered =
      append_known_host(route.known_hosts.front(), route.key_name, key, route.hash_known_hosts);
  if (!remembered.ok()) {
    warn(cat("the keys of new hosts are accepted, but not remembered: ", remembered.message(),
             "; --ssh-known-hosts names another file"));
  }
  return {};
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
  const std::vector<KnownKey> known = known_keys(files, route, key.get());
  for (const KnownKey& entry : known) {
    if (entry.revoked && entry.same) {
      return {Code::permission_denied,
              cat("the host's key ", entry.fingerprint, " is revoked by ", entry.place())};
    }
  }
  if (std::any_of(known.begin(), known.end(),
                  [](const KnownKey& entry) { return entry.same && !entry.revoked; })) {
    return {};
  }
  const auto other = std::find_if(known.begin(), known.end(),
                                  [](const KnownKey& entry) { return !entry.revoked; });
  if (other != known.end()) return {Code::permission_denied, changed(route, *other, key.get())};

  return judge_new_host(files, route, key.get(), warn);
}

}  // namespace hvd::driver::ssh
