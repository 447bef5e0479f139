#include <cerrno>
#include <filesystem>
#include <fstream>
#include <set>
#include <unistd.h>

#include "base/security/trusted_file.h"
#include "base/text.h"
#include "driver/ssh/agent_filter.h"
#include "driver/ssh/steps.h"

namespace hvd::driver::ssh {
namespace {

constexpr std::size_t kLargestKey = std::size_t{256} << 10;

// The outcome for each key, for the error message.
struct Trials {
  std::vector<std::string> refused;  // by the host
  std::vector<std::string> protected_by_passphrase;
  std::vector<std::string> only_public;  // the SSH agent does not hold the private half
  std::vector<std::string> unusable;     // "/x/key: Permission denied"
};

struct LoadedKey {
  KeyPtr key;
  bool has_passphrase = false;
  std::string error;  // empty: there is a key
  bool missing = false;
};

// libssh asks for the passphrase here. hvdrun has no terminal dialogue, so it has none to give.
int refuse_passphrase(const char* /*prompt*/, char* /*buffer*/, std::size_t /*size*/, int /*echo*/,
                      int /*verify*/, void* asked) {
  *static_cast<bool*>(asked) = true;
  return -1;
}

Result<std::string> read_key(const std::string& file) {
  const auto fd = open_trusted_file(file, "key file", FileTrust::private_key, FileKind::any);
  HVD_RETURN_IF_ERROR(fd.status());
  std::string text(kLargestKey, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(fd->get(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status::from_errno(cat("read key file ", file), errno);
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  text.resize(size);
  return text;
}

LoadedKey load_key(const std::string& file) {
  LoadedKey loaded;
  auto text = read_key(file);
  if (!text.ok()) {
    loaded.missing = text.status().code() == Code::not_found;
    loaded.error = text.status().message();
    return loaded;
  }

  ssh_key key = nullptr;
  if (ssh_pki_import_privkey_base64(text->c_str(), nullptr, refuse_passphrase,
                                    &loaded.has_passphrase, &key) == SSH_OK) {
    loaded.key.reset(key);
  } else if (!loaded.has_passphrase) {
    loaded.error = cat(file, ": not a private key, or of a type that libssh does not support");
  }
  wipe(*text);
  return loaded;
}

// A public key in place of a private one names a key of the SSH agent.
bool holds_public_key(const std::string& file) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) return false;
  std::ifstream in(file);
  std::string type;
  in >> type;
  return ssh_key_type_from_name(type.c_str()) != SSH_KEYTYPE_UNKNOWN;
}

// The public half of an identity, in base64: of its own file, even if that has a passphrase, or of
// the file beside it. Empty: there is none.
std::string public_half(const std::string& file) {
  for (const std::string& place : {file, file + ".pub"}) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(place, error)) continue;
    ssh_key key = nullptr;
    if (ssh_pki_import_pubkey_file(place.c_str(), &key) != SSH_OK) continue;
    return public_base64(KeyPtr(key).get());
  }
  return {};
}

KeyPtr load_certificate(const std::string& file) {
  ssh_key key = nullptr;
  return KeyPtr(ssh_pki_import_cert_file(file.c_str(), &key) == SSH_OK ? key : nullptr);
}

class Authenticator {
 public:
  Authenticator(ssh_session session, const Route& route, const Deadline& deadline)
      : session_(session), route_(route), deadline_(deadline) {}

  // ok: the host accepts the user. unauthenticated: it accepts none of these keys. With any other
  // error the session cannot be used any more.
  Status run() {
    const bool files_first = route_.identities_only;
    const auto demanded = [](const Route::Identity& identity) { return identity.demanded; };
    for (const Route::Identity& identity : route_.identities) {
      if (demanded(identity) || files_first) HVD_RETURN_IF_ERROR(try_file(identity));
      if (done_) return {};
    }

    HVD_RETURN_IF_ERROR(try_kerberos());
    if (done_) return {};
    HVD_RETURN_IF_ERROR(try_agent());
    if (done_) return {};

    for (const Route::Identity& identity : route_.identities) {
      if (!demanded(identity) && !files_first) HVD_RETURN_IF_ERROR(try_file(identity));
      if (done_) return {};
    }
    return all_refused();
  }

 private:
  Status evaluate(const Result<int>& result, const std::string& what) {
    if (!result.ok()) return result.status();
    switch (*result) {
      case SSH_AUTH_SUCCESS:
        done_ = true;
        return {};
      case SSH_AUTH_DENIED:
        trials_.refused.push_back(what);
        return {};
      case SSH_AUTH_PARTIAL:
        return {Code::unauthenticated,
                cat(what, " is accepted, but the host asks for another method as well (", offered(),
                    "), which hvdrun does not support")};
      default:
        trials_.refused.push_back(what);
        return {Code::unavailable,
                cat(summary(), "; then the host ended the session: ", error_text(session_))};
    }
  }

  // The host names its methods in the answer.
  Status ask_for_methods() {
    auto result = drive(session_, SSH_AUTH_AGAIN, deadline_,
                        [&] { return ssh_userauth_none(session_, nullptr); });
    if (!result.ok()) return result.status();
    done_ = *result == SSH_AUTH_SUCCESS;
    return {};
  }

  // Before keys that nobody has named, as ssh does it: the host counts each of these as an attempt.
  Status try_kerberos() {
    if (!route_.kerberos) return {};
    if (trials_.refused.empty()) HVD_RETURN_IF_ERROR(ask_for_methods());
    const int methods = ssh_userauth_list(session_, nullptr);
    if (done_ || (methods & SSH_AUTH_METHOD_GSSAPI_MIC) == 0) return {};
    const auto result =
        drive(session_, SSH_AUTH_AGAIN, deadline_, [&] { return ssh_userauth_gssapi(session_); });
    HVD_RETURN_IF_ERROR(deadline_.check());
    const bool is_refused =
        result.ok() && (*result == SSH_AUTH_DENIED || *result == SSH_AUTH_ERROR);
    // Such an error is a missing ticket, too, after which the session goes on.
    if (is_refused && ssh_is_connected(session_) == 1) {
      trials_.unusable.push_back(cat(
          "Kerberos: no ticket for the host, or it refuses the ticket's owner (see klist, kinit",
          route_.kerberos_name == route_.host ? "" : cat("; its name is ", route_.kerberos_name),
          ")"));
      return {};
    }
    return evaluate(result, "Kerberos");
  }

  Status try_file(const Route::Identity& identity) {
    LoadedKey loaded = load_key(identity.file);
    if (loaded.has_passphrase) {
      trials_.protected_by_passphrase.push_back(identity.file);
      return {};
    }
    if (loaded.key == nullptr) {
      if (holds_public_key(identity.file) ||
          (loaded.missing && !public_half(identity.file).empty())) {
        trials_.only_public.push_back(identity.file);
        return {};
      }
      if (identity.demanded) {
        return {Code::invalid_argument, cat("the identity file cannot be used: ", loaded.error)};
      }
      if (!loaded.missing) trials_.unusable.push_back(loaded.error);
      return {};
    }

    if (!identity.certificate.empty()) {
      HVD_RETURN_IF_ERROR(try_certificate(identity, loaded.key.get()));
      if (done_) return {};
      loaded = load_key(identity.file);  // without the certificate
    }
    if (loaded.key == nullptr || offered_.contains(public_base64(loaded.key.get()))) return {};
    return evaluate(offer(loaded.key.get()), identity.file);
  }

  Status try_certificate(const Route::Identity& identity, ssh_key key) {
    const KeyPtr certificate = load_certificate(identity.certificate);
    if (certificate == nullptr) {
      trials_.unusable.push_back(cat(identity.certificate, ": not a certificate"));
      return {};
    }
    if (ssh_pki_copy_cert_to_privkey(certificate.get(), key) != SSH_OK) return {};
    if (offered_.contains(public_base64(key))) return {};
    return evaluate(offer(key), identity.certificate);
  }

  Result<int> offer(ssh_key key) {
    offered_.insert(public_base64(key));
    return drive(session_, SSH_AUTH_AGAIN, deadline_,
                 [&] { return ssh_userauth_publickey(session_, nullptr, key); });
  }

  // The agent's keys that are identities come first, and alone if IdentitiesOnly says so.
  AgentChoice choice() const {
    AgentChoice choice{.first = {}, .only_first = route_.identities_only, .never = offered_};
    for (const Route::Identity& identity : route_.identities) {
      if (const KeyPtr certificate = load_certificate(identity.certificate)) {
        choice.first.push_back(public_base64(certificate.get()));
      }
      choice.first.push_back(public_half(identity.file));
    }
    return choice;
  }

  Status try_agent() {
    if (route_.agent_socket.empty()) return {};
    const std::string name = cat("the SSH agent at ", route_.agent_socket);
    auto agent = AgentFilter::connect(route_.agent_socket, deadline_);
    HVD_RETURN_IF_ERROR(deadline_.check());
    if (!agent.ok()) {
      trials_.unusable.push_back(cat(name, ": ", agent.status().message()));
      return {};
    }
    const std::vector<AgentKey> keys = choose_keys((*agent)->keys(), choice());
    if (keys.empty()) {
      trials_.unusable.push_back(
          cat(name, (*agent)->keys().empty() ? " holds no key" : " holds no other key to offer",
              route_.identities_only ? " (IdentitiesOnly)" : ""));
      return {};
    }

    for (const AgentKey& key : keys) offered_.insert(key.key);
    HVD_RETURN_IF_ERROR((*agent)->serve(session_, keys));
    auto result = drive(session_, SSH_AUTH_AGAIN, deadline_,
                        [&] { return ssh_userauth_agent(session_, nullptr); });
    HVD_RETURN_IF_ERROR(deadline_.check());
    return evaluate(result, cat(keys.size(), " of the keys of ", name));
  }

  std::string offered() const {
    const int methods = ssh_userauth_list(session_, nullptr);
    std::vector<std::string> names;
    if ((methods & SSH_AUTH_METHOD_PUBLICKEY) != 0) names.emplace_back("public keys");
    if ((methods & SSH_AUTH_METHOD_PASSWORD) != 0) names.emplace_back("passwords");
    if ((methods & SSH_AUTH_METHOD_INTERACTIVE) != 0) names.emplace_back("questions and answers");
    if ((methods & SSH_AUTH_METHOD_HOSTBASED) != 0) {
      names.emplace_back("trusted hosts (HostbasedAuthentication, which libssh cannot do)");
    }
    if ((methods & SSH_AUTH_METHOD_GSSAPI_MIC) != 0) {
      names.emplace_back(route_.kerberos ? "Kerberos"
                                         : "Kerberos (GSSAPIAuthentication yes in the "
                                           "configuration of SSH has hvdrun try it)");
    }
    return names.empty() ? "no method known to hvdrun" : join(names, ", ");
  }

  std::string summary() const {
    std::vector<std::string> parts;
    parts.push_back(trials_.refused.empty() ? cat("no key could be offered for user ", route_.user)
                                            : cat("user ", route_.user, " is refused with ",
                                                  join(trials_.refused, ", ")));
    for (const std::string& file : trials_.protected_by_passphrase) {
      parts.push_back(cat(file, " is protected by a passphrase: ssh-add it"));
    }
    for (const std::string& file : trials_.only_public) {
      parts.push_back(cat(file, " is a public key, whose private key is not in the SSH agent"));
    }
    for (const std::string& error : trials_.unusable) parts.push_back(error);
    return join(parts, "; ");
  }

  Status all_refused() {
    // Else it has named them.
    if (trials_.refused.empty()) HVD_RETURN_IF_ERROR(ask_for_methods());
    if (done_) return {};
    return {Code::unauthenticated, cat(summary(), "; the host accepts ", offered())};
  }

  ssh_session session_;
  const Route& route_;
  const Deadline& deadline_;
  Trials trials_;
  std::set<std::string> offered_;  // public keys and certificates in base64
  bool done_ = false;
};

}  // namespace

Status authenticate(ssh_session session, const Route& route, const Deadline& deadline) {
  Status status = Authenticator(session, route, deadline).run();
  if (status.code() == Code::deadline_exceeded) {
    return {status.code(), cat("authentication as user ", route.user, " did not end in time")};
  }
  return status;
}

}  // namespace hvd::driver::ssh
