#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "base/text.h"
#include "driver/ssh/algorithms.h"
#include "driver/ssh/steps.h"

namespace hvd::driver::ssh {
namespace {

// sshd refuses connections at random when too many are in progress (MaxStartups), mostly without a
// message. Such a connection is tried again: until the deadline if there was a message, and a few
// times otherwise. The same holds for the sshd of a jump host, through which all hosts may lead.
constexpr int kSilentRefusals = 5;
constexpr std::chrono::milliseconds kFirstPause{100};
constexpr std::chrono::milliseconds kLongestPause{1'000};

constexpr const char* kHostKeyAlgorithms =
    "ssh-ed25519,ecdsa-sha2-nistp256,ecdsa-sha2-nistp384,ecdsa-sha2-nistp521,"
    "rsa-sha2-512,rsa-sha2-256";

// Algorithms of known keys come first: a host with several keys shall present the known one. A list
// that gives its own order keeps it, as with ssh.
std::string host_key_algorithms(const Route& route) {
  const std::string& configured = route.host_key_algorithms;
  std::string complete = complete_algorithms(configured, kHostKeyAlgorithms);
  const bool adds_or_removes = configured.starts_with('+') || configured.starts_with('-');
  if (!configured.empty() && !adds_or_removes) return complete;
  const std::vector<std::string> ours =
      split(configured.empty() ? kHostKeyAlgorithms : complete, ',');

  std::vector<std::string> wanted;
  const auto add = [&](const std::string& name) {
    const bool allowed = std::find(ours.begin(), ours.end(), name) != ours.end();
    const bool is_new = std::find(wanted.begin(), wanted.end(), name) == wanted.end();
    if (allowed && is_new) wanted.push_back(name);
  };

  if (route.host_key_check != HostKeyCheck::off) {
    std::vector<std::string> files = route.known_hosts;
    files.insert(files.end(), route.global_known_hosts.begin(), route.global_known_hosts.end());
    std::vector<KnownKey> keys = look_up(files, route.key_name, nullptr);
    if (keys.empty() && !route.name_without_port.empty()) {
      keys = look_up(files, route.name_without_port, nullptr);
    }
    for (const KnownKey& known : keys) {
      if (known.type == "ssh-rsa") {
        add("rsa-sha2-512");
        add("rsa-sha2-256");
      } else {
        add(known.type);
      }
    }
  }
  for (const std::string& name : ours) add(name);
  return join(wanted, ",");
}

Status set_up(ssh_session session, const Route& route) {
  const auto set = [&](ssh_options_e option, const std::string& value, std::string_view what) {
    if (value.empty() || ssh_options_set(session, option, value.c_str()) == SSH_OK) return Status();
    return Status(Code::invalid_argument,
                  cat(what, " ", value, " cannot be used: ", trim(ssh_get_error(session))));
  };

  // libssh gets only the options that it needs; this folder handles the rest of the configuration.
  const bool no = false;
  ssh_options_set(session, SSH_OPTIONS_PROCESS_CONFIG, &no);
  ssh_options_set(session, SSH_OPTIONS_HOST, "host");
  ssh_options_set(session, SSH_OPTIONS_KNOWNHOSTS, "/dev/null");
  ssh_options_set(session, SSH_OPTIONS_GLOBAL_KNOWNHOSTS, "/dev/null");

  HVD_RETURN_IF_ERROR(set(SSH_OPTIONS_USER, route.user, "the user"));
  const std::string ciphers = complete_algorithms(route.ciphers, kDefaultCiphers);
  HVD_RETURN_IF_ERROR(set(SSH_OPTIONS_CIPHERS_C_S, ciphers, "Ciphers"));
  HVD_RETURN_IF_ERROR(set(SSH_OPTIONS_CIPHERS_S_C, ciphers, "Ciphers"));
  const std::string macs = complete_algorithms(route.macs, kDefaultMacs);
  HVD_RETURN_IF_ERROR(set(SSH_OPTIONS_HMAC_C_S, macs, "MACs"));
  HVD_RETURN_IF_ERROR(set(SSH_OPTIONS_HMAC_S_C, macs, "MACs"));
  HVD_RETURN_IF_ERROR(set(SSH_OPTIONS_KEY_EXCHANGE,
                          complete_algorithms(route.kex_algorithms, kDefaultKexAlgorithms),
                          "KexAlgorithms"));
  HVD_RETURN_IF_ERROR(set(SSH_OPTIONS_PUBLICKEY_ACCEPTED_TYPES,
                          complete_algorithms(route.pubkey_algorithms, kDefaultPubkeyAlgorithms),
                          "PubkeyAcceptedAlgorithms"));
  HVD_RETURN_IF_ERROR(set(SSH_OPTIONS_HOSTKEYS, host_key_algorithms(route), "HostKeyAlgorithms"));
  if (route.kerberos) {
    HVD_RETURN_IF_ERROR(
        set(SSH_OPTIONS_GSSAPI_SERVER_IDENTITY, route.kerberos_name, "GSSAPIServerIdentity"));
    const int delegates = route.delegates_credentials ? 1 : 0;
    ssh_options_set(session, SSH_OPTIONS_GSSAPI_DELEGATE_CREDENTIALS, &delegates);
  }
  return set(SSH_OPTIONS_COMPRESSION, route.compression ? "yes" : "no", "Compression");
}

std::string where(const Route& route) {
  if (!route.proxy_command.empty()) return cat("through \"", route.proxy_command, "\"");
  return cat("port ", route.port);
}

// By what the proxy command reports: that of ssh ends like this where the jump host was too busy to
// send its banner.
Retry retry_of_proxy(const std::string& complaint, Retry without_one) {
  if (complaint.empty()) return without_one;
  const auto holds = [&](std::string_view text) {
    return complaint.find(text) != std::string::npos;
  };
  const bool is_refused =
      holds("exchange_identification: ") &&
      (holds("Connection closed by remote host") || holds("Connection reset by peer"));
  return is_refused ? Retry::until_deadline : Retry::never;
}

// Up to a socket on which the host has sent its SSH banner.
Status reach(const Route& route, const std::vector<Endpoint>& endpoints, const Deadline& deadline,
             Connected& into, UniqueFd& socket, Retry& retry) {
  retry = Retry::never;
  if (route.proxy_command.empty()) {
    auto connected_socket = connect_first(endpoints, route.bind_address, deadline);
    if (!connected_socket.ok()) return connected_socket.status();
    socket = std::move(connected_socket->socket);
    into.local_address = std::move(connected_socket->local_address);
    into.peer_address = std::move(connected_socket->peer_address);
  } else {
    auto proxy = Proxy::start(route.proxy_command);
    if (!proxy.ok()) return proxy.status();
    into.proxy = std::move(*proxy);
    socket = into.proxy->take_socket();
  }

  BannerResult banner = await_banner(socket.get(), deadline);
  if (banner.status.ok()) return {};
  retry = banner.retry;
  if (into.proxy == nullptr) return banner.status.with_context(into.peer_address);
  const std::string complaint = into.proxy->complaint();
  if (retry == Retry::a_few_times) retry = retry_of_proxy(complaint, retry);
  if (complaint.empty()) return banner.status;
  return {banner.status.code(),
          cat(banner.status.message(), "; the proxy command reports: ", complaint)};
}

Status with_advice(const Status& status, const Route& route, const Deadline& deadline) {
  if (status.code() == Code::aborted) return status;
  std::string message = cat("connect to ", route.host, " ", where(route), ": ", status.message());
  if (status.code() == Code::deadline_exceeded || !deadline.check().ok()) {
    message += " (gave up at --ssh-connect-timeout)";
  }
  return {status.code(), std::move(message)};
}

}  // namespace

Result<Connected> connect(const Route& route, const Deadline& deadline,
                          const std::function<void(Step)>& step) {
  std::vector<Endpoint> endpoints;
  if (route.proxy_command.empty()) {
    auto resolved = resolve(route.host, route.port, route.address_family, deadline);
    if (!resolved.ok()) {
      if (resolved.status().code() == Code::aborted) return resolved.status();
      return Status(resolved.status().code(),
                    cat("look up ", route.host, ": ", resolved.status().message()));
    }
    endpoints = std::move(*resolved);
  }
  step(Step::connect);

  Connected connected;
  UniqueFd socket;
  std::minstd_rand random{std::random_device()()};
  std::chrono::milliseconds pause = kFirstPause;
  for (int refusals = 1;; ++refusals) {
    Retry retry = Retry::never;
    const Status status = reach(route, endpoints, deadline, connected, socket, retry);
    if (status.ok()) break;
    const bool is_last = retry == Retry::never ||
                         (retry == Retry::a_few_times && refusals > kSilentRefusals) ||
                         !deadline.check().ok();
    if (is_last) return with_advice(status, route, deadline);
    // The pauses are random, so that the launcher's threads do not all try at the same moment.
    const auto some = pause / 2 + pause * static_cast<int>(random() % 100) / 100;
    if (const Status waited = deadline.poll({}, Clock::now() + some); !waited.ok()) {
      return with_advice(waited.code() == Code::aborted ? waited : status, route, deadline);
    }
    pause = std::min(2 * pause, kLongestPause);
  }

  connected.session.reset(ssh_new());
  if (connected.session == nullptr) return Status(Code::resource_exhausted, "out of memory");
  ssh_session session = connected.session.get();
  if (const Status status = set_up(session, route); !status.ok()) return status;
  ssh_set_blocking(session, 0);

  const int fd = socket.release();  // the session closes it
  if (ssh_options_set(session, SSH_OPTIONS_FD, &fd) != SSH_OK) {
    socket.reset(fd);
    return Status(Code::internal, "libssh does not take the socket");
  }

  auto result = drive(session, SSH_AGAIN, deadline, [&] { return ssh_connect(session); });
  if (ssh_get_fd(session) < 0 && !result.ok()) socket.reset(fd);  // never taken over
  if (!result.ok()) {
    return with_advice(result.status().with_context("the key exchange"), route, deadline);
  }
  if (*result != SSH_OK) {
    return with_advice({Code::unavailable, cat("the key exchange failed: ", error_text(session))},
                       route, deadline);
  }
  return connected;
}

}  // namespace hvd::driver::ssh
