#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/security/trusted_file.h"
#include "base/text.h"
#include "driver/ssh/small_thread.h"
#include "driver/ssh/steps.h"

namespace hvd::driver::ssh {
namespace {

constexpr std::size_t kLargestKey = std::size_t{256} << 10;

// What became of the keys, for the error.
struct Trials {
  std::vector<std::string> refused;  // by the host
  std::vector<std::string> protected_by_passphrase;
  std::vector<std::string> unusable;  // "/x/key: Permission denied"
};

struct LoadedKey {
  KeyPtr key;
  bool has_passphrase = false;
  std::string trouble;  // why there is none
  bool missing = false;
};

// libssh asks for the passphrase here. Nobody is there to be asked.
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
    loaded.trouble = text.status().message();
    return loaded;
  }
  ssh_key key = nullptr;
  if (ssh_pki_import_privkey_base64(text->c_str(), nullptr, refuse_passphrase,
                                    &loaded.has_passphrase, &key) == SSH_OK) {
    loaded.key.reset(key);
  } else if (!loaded.has_passphrase) {
    loaded.trouble = cat(file, ": not a private key, or of a kind that libssh does not know");
  }
  ::explicit_bzero(text->data(), text->size());
  return loaded;
}

// The SSH agent is spoken to by blocking calls of libssh. This ends them by force when the time is
// up or the attempt is given up.
class AgentWatch {
 public:
  static Result<std::unique_ptr<AgentWatch>> connect(const std::string& path, ssh_session session,
                                                     const Patience& patience) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) {
      return Status(Code::invalid_argument, "the path is too long for a socket");
    }
    std::memcpy(address.sun_path, path.data(), path.size());
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket) return Status::from_errno("make a socket", errno);
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      return Status(Code::unavailable, std::strerror(errno));
    }
    auto watch = std::unique_ptr<AgentWatch>(new AgentWatch);
    watch->shared_->socket.reset(::fcntl(socket.get(), F_DUPFD_CLOEXEC, 0));
    HVD_RETURN_IF_ERROR(start_small_thread([shared = watch->shared_, patience] {
      if (!patience.wait_for(shared->done.fd(), POLLIN).ok()) {
        ::shutdown(shared->socket.get(), SHUT_RDWR);
      }
      shared->ended.raise();
    }));
    watch->running_ = true;
    if (ssh_set_agent_socket(session, socket.get()) != SSH_OK) {
      return Status(Code::internal, "libssh does not take the SSH agent's socket");
    }
    (void)socket.release();  // the session closes it
    return watch;
  }
  ~AgentWatch() {
    shared_->done.raise();
    // It refers to the attempt's patience, which ends with the attempt.
    if (running_) (void)Patience{}.wait_for(shared_->ended.fd(), POLLIN);
  }
  AgentWatch(const AgentWatch&) = delete;
  AgentWatch& operator=(const AgentWatch&) = delete;

 private:
  struct Shared {
    UniqueFd socket;
    Signal done;
    Signal ended;
  };
  AgentWatch() = default;
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  bool running_ = false;
};

class Authenticator {
 public:
  Authenticator(ssh_session session, const Route& route, const Patience& patience)
      : session_(session), route_(route), patience_(patience) {}

  // ok: let in. unauthenticated: not with any of these keys. Else the session is of no use.
  Status run() {
    const bool files_first = route_.identities_only;
    const auto demanded = [](const Route::Identity& identity) { return identity.demanded; };
    for (const Route::Identity& identity : route_.identities) {
      if (demanded(identity) || files_first) HVD_RETURN_IF_ERROR(try_file(identity));
      if (done_) return {};
    }
    HVD_RETURN_IF_ERROR(try_agent());
    if (done_) return {};
    for (const Route::Identity& identity : route_.identities) {
      if (!demanded(identity) && !files_first) HVD_RETURN_IF_ERROR(try_file(identity));
      if (done_) return {};
    }
    return nothing_helped();
  }

 private:
  Status judge(const Result<int>& result, const std::string& what) {
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
                cat(what, " is accepted, but the host wants something else besides (", offered(),
                    "), which hvdrun cannot give")};
      default:
        trials_.refused.push_back(what);
        return {Code::unavailable,
                cat(summary(), "; then the host ended it: ", error_text(session_))};
    }
  }

  Status try_file(const Route::Identity& identity) {
    LoadedKey loaded = load_key(identity.file);
    if (loaded.has_passphrase) {
      trials_.protected_by_passphrase.push_back(identity.file);
      return {};
    }
    if (loaded.key == nullptr) {
      if (identity.demanded) {
        return {Code::invalid_argument, cat("the identity file cannot be used: ", loaded.trouble)};
      }
      if (!loaded.missing) trials_.unusable.push_back(loaded.trouble);
      return {};
    }
    if (!identity.certificate.empty()) {
      HVD_RETURN_IF_ERROR(try_certificate(identity, loaded.key.get()));
      if (done_) return {};
      loaded = load_key(identity.file);  // without the certificate
    }
    if (loaded.key == nullptr) return {};
    return judge(offer(loaded.key.get()), identity.file);
  }

  Status try_certificate(const Route::Identity& identity, ssh_key key) {
    ssh_key raw = nullptr;
    if (ssh_pki_import_cert_file(identity.certificate.c_str(), &raw) != SSH_OK) {
      trials_.unusable.push_back(cat(identity.certificate, ": not a certificate"));
      return {};
    }
    const KeyPtr certificate(raw);
    if (ssh_pki_copy_cert_to_privkey(certificate.get(), key) != SSH_OK) return {};
    return judge(offer(key), identity.certificate);
  }

  Result<int> offer(ssh_key key) {
    return drive(session_, SSH_AUTH_AGAIN, patience_,
                 [&] { return ssh_userauth_publickey(session_, nullptr, key); });
  }

  Status try_agent() {
    if (route_.agent_socket.empty()) return {};
    const std::string name = cat("the keys of the SSH agent at ", route_.agent_socket);
    auto watch = AgentWatch::connect(route_.agent_socket, session_, patience_);
    if (!watch.ok()) {
      trials_.unusable.push_back(
          cat("the SSH agent at ", route_.agent_socket, ": ", watch.status().message()));
      return {};
    }
    auto result = drive(session_, SSH_AUTH_AGAIN, patience_,
                        [&] { return ssh_userauth_agent(session_, nullptr); });
    HVD_RETURN_IF_ERROR(patience_.left());
    return judge(result, name);
  }

  std::string offered() const {
    const int methods = ssh_userauth_list(session_, nullptr);
    std::vector<std::string> names;
    if ((methods & SSH_AUTH_METHOD_PUBLICKEY) != 0) names.emplace_back("public keys");
    if ((methods & SSH_AUTH_METHOD_PASSWORD) != 0) names.emplace_back("passwords");
    if ((methods & SSH_AUTH_METHOD_INTERACTIVE) != 0) names.emplace_back("questions and answers");
    if ((methods & SSH_AUTH_METHOD_HOSTBASED) != 0) names.emplace_back("trusted hosts");
    if ((methods & SSH_AUTH_METHOD_GSSAPI_MIC) != 0) names.emplace_back("Kerberos");
    return names.empty() ? "nothing that is known here" : join(names, ", ");
  }

  std::string summary() const {
    std::vector<std::string> parts;
    parts.push_back(trials_.refused.empty() ? cat("no key could be offered for user ", route_.user)
                                            : cat("not let in as user ", route_.user, " with ",
                                                  join(trials_.refused, ", ")));
    for (const std::string& file : trials_.protected_by_passphrase) {
      parts.push_back(cat(file, " is protected by a passphrase: ssh-add it"));
    }
    for (const std::string& trouble : trials_.unusable) parts.push_back(trouble);
    return join(parts, "; ");
  }

  Status nothing_helped() {
    if (trials_.refused.empty()) {
      // Nothing was said yet; the host tells what it wants when asked to let us in just so.
      auto result = drive(session_, SSH_AUTH_AGAIN, patience_,
                          [&] { return ssh_userauth_none(session_, nullptr); });
      if (!result.ok()) return result.status();
      if (*result == SSH_AUTH_SUCCESS) return {};
    }
    return {Code::unauthenticated, cat(summary(), "; the host accepts ", offered())};
  }

  ssh_session session_;
  const Route& route_;
  const Patience& patience_;
  Trials trials_;
  bool done_ = false;
};

}  // namespace

Status authenticate(ssh_session session, const Route& route, const Patience& patience) {
  Status status = Authenticator(session, route, patience).run();
  if (status.code() == Code::deadline_exceeded) {
    return {status.code(), cat("authentication as user ", route.user, " did not end in time")};
  }
  return status;
}

}  // namespace hvd::driver::ssh
