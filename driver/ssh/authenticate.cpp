#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/security/trusted_file.h"
#include "base/text.h"
#include "base/thread_group.h"
#include "driver/ssh/steps.h"

namespace hvd::driver::ssh {
namespace {

constexpr std::size_t kLargestKey = std::size_t{256} << 10;

// The outcome for each key, for the error message.
struct Trials {
  std::vector<std::string> refused;  // by the host
  std::vector<std::string> protected_by_passphrase;
  std::vector<std::string> unusable;  // "/x/key: Permission denied"
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
  ::explicit_bzero(text->data(), text->size());
  return loaded;
}

// The connection to the SSH agent. libssh talks to it with blocking calls, so a thread shuts the
// socket down at the deadline, which ends the call in progress.
class AgentWatch {
 public:
  static Result<std::unique_ptr<AgentWatch>> connect(const std::string& path, ssh_session session,
                                                     const Deadline& deadline) {
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
    watch->socket_.reset(::fcntl(socket.get(), F_DUPFD_CLOEXEC, 0));
    HVD_RETURN_IF_ERROR(watch->thread_.start([self = watch.get(), deadline] {
      if (!deadline.wait_for(self->done_.fd(), POLLIN).ok()) {
        ::shutdown(self->socket_.get(), SHUT_RDWR);
      }
    }));

    if (ssh_set_agent_socket(session, socket.get()) != SSH_OK) {
      return Status(Code::internal, "libssh does not take the SSH agent's socket");
    }
    (void)socket.release();  // the session closes it
    return watch;
  }
  ~AgentWatch() {
    done_.set();
    thread_.join();
  }
  AgentWatch(const AgentWatch&) = delete;
  AgentWatch& operator=(const AgentWatch&) = delete;

 private:
  AgentWatch() = default;

  UniqueFd socket_;
  EventFlag done_;
  ThreadGroup thread_;
};

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

  Status try_file(const Route::Identity& identity) {
    LoadedKey loaded = load_key(identity.file);
    if (loaded.has_passphrase) {
      trials_.protected_by_passphrase.push_back(identity.file);
      return {};
    }
    if (loaded.key == nullptr) {
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
    if (loaded.key == nullptr) return {};
    return evaluate(offer(loaded.key.get()), identity.file);
  }

  Status try_certificate(const Route::Identity& identity, ssh_key key) {
    ssh_key raw = nullptr;
    if (ssh_pki_import_cert_file(identity.certificate.c_str(), &raw) != SSH_OK) {
      trials_.unusable.push_back(cat(identity.certificate, ": not a certificate"));
      return {};
    }
    const KeyPtr certificate(raw);
    if (ssh_pki_copy_cert_to_privkey(certificate.get(), key) != SSH_OK) return {};
    return evaluate(offer(key), identity.certificate);
  }

  Result<int> offer(ssh_key key) {
    return drive(session_, SSH_AUTH_AGAIN, deadline_,
                 [&] { return ssh_userauth_publickey(session_, nullptr, key); });
  }

  Status try_agent() {
    if (route_.agent_socket.empty()) return {};
    const std::string name = cat("the keys of the SSH agent at ", route_.agent_socket);
    auto watch = AgentWatch::connect(route_.agent_socket, session_, deadline_);
    if (!watch.ok()) {
      trials_.unusable.push_back(
          cat("the SSH agent at ", route_.agent_socket, ": ", watch.status().message()));
      return {};
    }
    auto result = drive(session_, SSH_AUTH_AGAIN, deadline_,
                        [&] { return ssh_userauth_agent(session_, nullptr); });
    HVD_RETURN_IF_ERROR(deadline_.check());
    return evaluate(result, name);
  }

  std::string offered() const {
    const int methods = ssh_userauth_list(session_, nullptr);
    std::vector<std::string> names;
    if ((methods & SSH_AUTH_METHOD_PUBLICKEY) != 0) names.emplace_back("public keys");
    if ((methods & SSH_AUTH_METHOD_PASSWORD) != 0) names.emplace_back("passwords");
    if ((methods & SSH_AUTH_METHOD_INTERACTIVE) != 0) names.emplace_back("questions and answers");
    if ((methods & SSH_AUTH_METHOD_HOSTBASED) != 0) names.emplace_back("trusted hosts");
    if ((methods & SSH_AUTH_METHOD_GSSAPI_MIC) != 0) names.emplace_back("Kerberos");
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
    for (const std::string& error : trials_.unusable) parts.push_back(error);
    return join(parts, "; ");
  }

  Status all_refused() {
    if (trials_.refused.empty()) {
      // No request was made so far; the host names its methods in the answer to the first one.
      auto result = drive(session_, SSH_AUTH_AGAIN, deadline_,
                          [&] { return ssh_userauth_none(session_, nullptr); });
      if (!result.ok()) return result.status();
      if (*result == SSH_AUTH_SUCCESS) return {};
    }
    return {Code::unauthenticated, cat(summary(), "; the host accepts ", offered())};
  }

  ssh_session session_;
  const Route& route_;
  const Deadline& deadline_;
  Trials trials_;
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
