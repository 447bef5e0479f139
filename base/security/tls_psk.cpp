#include "base/security/tls_psk.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <utility>

#include "base/text.h"

namespace hvd {
namespace {

constexpr std::string_view kIdentity = "hvd";
constexpr std::string_view kNamedIdentity = "hvd ";  // before the name of a key
constexpr std::string_view kNamedText = "hvd-join-";
constexpr std::size_t kMostOfName = 32;
// Both hash with SHA-256, which the pre-shared key is bound to.
constexpr const char* kCipherSuites = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";
constexpr std::array<unsigned char, 2> kKeyedSuite{0x13, 0x01};  // TLS_AES_128_GCM_SHA256

template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Context = std::unique_ptr<SSL_CTX, Freed<SSL_CTX_free>>;
using Connection = std::unique_ptr<SSL, Freed<SSL_free>>;

// The newest reason in OpenSSL's queue of this thread, which is emptied.
unsigned long newest_error() {
  const unsigned long error = ERR_peek_last_error();
  ERR_clear_error();
  return error;
}

std::string reason_text(unsigned long error) {
  const char* const reason = ERR_reason_error_string(error);
  return reason == nullptr ? "it broke off" : reason;
}

Status internal(std::string_view what) {
  return {Code::internal, cat(what, ": ", reason_text(newest_error()))};
}

Status failure_of(unsigned long error) {
  switch (ERR_GET_REASON(error)) {
    case SSL_R_BINDER_DOES_NOT_VERIFY:
    case SSL_R_BAD_PSK:
    case SSL_R_BAD_PSK_IDENTITY:
    case SSL_R_PSK_IDENTITY_NOT_FOUND:
    case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
    case SSL_R_NO_SHARED_CIPHER:
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
    case SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER:
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
    case SSL_R_TLSV1_ALERT_UNKNOWN_PSK_IDENTITY:
      return {Code::unauthenticated, "it does not hold the same token"};
    default:
      return {Code::data_loss,
              cat("it does not speak TLS 1.3 as expected here (", reason_text(error), ")")};
  }
}

SecretBytes psk_of(const Token& secret) {
  Digest digest = Mac(secret)({"hvd TLS 1.3 pre-shared key"});
  SecretBytes key;
  key.assign(digest.data());
  wipe(digest);
  return key;
}

bool is_name(std::string_view id) {
  return !id.empty() && id.size() <= kMostOfName && std::all_of(id.begin(), id.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0;
  });
}

}  // namespace

std::string to_text(const PskKey& key) {
  const std::string digits = to_hex(key.secret.bytes());
  return key.id.empty() ? digits : cat(kNamedText, key.id, "-", digits);
}

Result<PskKey> psk_key_from_text(std::string_view text) {
  std::string id;
  if (text.starts_with(kNamedText)) {
    text.remove_prefix(kNamedText.size());
    id = text.substr(0, text.find('-'));
    text.remove_prefix(std::min(id.size() + 1, text.size()));
    if (!is_name(id)) {
      return Status(Code::invalid_argument, cat("a join token is ", kNamedText, "NUMBER-, and ",
                                                2 * Token::kSize, " hexadecimal digits"));
    }
  }
  auto secret = Token::from_hex(text);
  HVD_RETURN_IF_ERROR(secret.status());
  return PskKey{*std::move(secret), std::move(id)};
}

struct TlsPsk::Shared {
  Side side = Side::client;
  SecretBytes key;
  std::string identity;  // of the key, on the wire
  FindSecret find;
  Context context;
};

struct TlsSession::State {
  std::shared_ptr<const TlsPsk::Shared> shared;
  Connection connection;
  BIO* in = nullptr;   // owned by the connection
  BIO* out = nullptr;  // likewise
  std::string received;
  std::string key_id;
  bool failed = false;

  Status fail(Status why) {
    failed = true;
    return why;
  }

  // The session that stands for the key, as if it had been agreed on before.
  static SSL_SESSION* make_psk(SSL* ssl, const SecretBytes& key) {
    SSL_SESSION* const session = SSL_SESSION_new();
    const SSL_CIPHER* const suite = SSL_CIPHER_find(ssl, kKeyedSuite.data());
    if (session == nullptr || suite == nullptr ||
        SSL_SESSION_set1_master_key(session, key.data(), SecretBytes::kSize) != 1 ||
        SSL_SESSION_set_cipher(session, suite) != 1 ||
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) != 1) {
      SSL_SESSION_free(session);
      return nullptr;
    }
    return session;
  }

  static State* of(SSL* ssl) { return static_cast<State*>(SSL_get_app_data(ssl)); }

  // The types are OpenSSL's.
  static int offer_key(SSL* ssl, const EVP_MD* digest, const unsigned char** identity,
                       std::size_t* identity_size, SSL_SESSION** session) {
    *session = nullptr;
    *identity = nullptr;
    *identity_size = 0;
    if (digest != nullptr && EVP_MD_get_size(digest) != static_cast<int>(sizeof(Digest))) return 1;
    const auto& shared = *of(ssl)->shared;
    *session = make_psk(ssl, shared.key);
    if (*session == nullptr) return 0;
    *identity = reinterpret_cast<const unsigned char*>(shared.identity.data());
    *identity_size = shared.identity.size();
    return 1;
  }
  static int find_key(SSL* ssl, const unsigned char* identity, std::size_t identity_size,
                      SSL_SESSION** session) {
    *session = nullptr;
    const std::string_view name(reinterpret_cast<const char*>(identity), identity_size);
    const auto key = of(ssl)->find_psk(name);
    if (!key) return 1;  // no such key; without a certificate the handshake ends there
    *session = make_psk(ssl, *key);
    return *session == nullptr ? 0 : 1;
  }
  std::optional<SecretBytes> find_psk(std::string_view identity) {
    if (identity == kIdentity) return shared->key;
    if (!identity.starts_with(kNamedIdentity) || !shared->find) return std::nullopt;
    const auto id = identity.substr(kNamedIdentity.size());
    const auto secret = is_name(id) ? shared->find(id) : std::nullopt;
    if (!secret) return std::nullopt;
    key_id = id;
    return psk_of(*secret);
  }
};

Result<TlsPsk> TlsPsk::client(const PskKey& key) { return create(Side::client, key, {}); }

Result<TlsPsk> TlsPsk::server(const Token& token, FindSecret find) {
  return create(Side::server, {token, {}}, std::move(find));
}

Result<TlsPsk> TlsPsk::create(Side side, const PskKey& key, FindSecret find) {
  auto shared = std::make_shared<Shared>();
  shared->side = side;
  shared->key = psk_of(key.secret);
  shared->identity = key.id.empty() ? std::string(kIdentity) : cat(kNamedIdentity, key.id);
  shared->find = std::move(find);
  shared->context.reset(
      SSL_CTX_new(side == Side::client ? TLS_client_method() : TLS_server_method()));
  SSL_CTX* const context = shared->context.get();
  if (context == nullptr || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(context, kCipherSuites) != 1 ||
      SSL_CTX_set1_groups_list(context, "X25519:P-256") != 1 ||
      SSL_CTX_set_num_tickets(context, 0) != 1) {
    return internal("set up TLS");
  }
  // The key alone would do for a handshake; without the exchange, a thief of the token
  // could read what was captured before.
  SSL_CTX_clear_options(context, SSL_OP_ALLOW_NO_DHE_KEX);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
  if (side == Side::client) {
    // A server that does not know the key could still show a certificate: none is trusted.
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
    SSL_CTX_set_psk_use_session_callback(context, TlsSession::State::offer_key);
  } else {
    SSL_CTX_set_psk_find_session_callback(context, TlsSession::State::find_key);
  }
  return TlsPsk(std::move(shared));
}

Result<TlsSession> TlsPsk::session() const {
  auto state = std::make_unique<TlsSession::State>();
  state->shared = shared_;
  state->connection.reset(SSL_new(shared_->context.get()));
  state->in = BIO_new(BIO_s_mem());
  state->out = BIO_new(BIO_s_mem());
  if (!state->connection || state->in == nullptr || state->out == nullptr) {
    BIO_free(state->in);
    BIO_free(state->out);
    return internal("begin a TLS session");
  }
  SSL* const ssl = state->connection.get();
  SSL_set_bio(ssl, state->in, state->out);
  SSL_set_app_data(ssl, state.get());
  if (shared_->side == Side::client) {
    SSL_set_connect_state(ssl);
  } else {
    SSL_set_accept_state(ssl);
  }
  return TlsSession(std::move(state));
}

TlsSession::TlsSession(std::unique_ptr<State> state) : state_(std::move(state)) {}
TlsSession::TlsSession(TlsSession&&) noexcept = default;
TlsSession& TlsSession::operator=(TlsSession&&) noexcept = default;
TlsSession::~TlsSession() = default;

Status TlsSession::receive(std::string_view wire) {
  State& s = *state_;
  if (s.failed) return {Code::failed_precondition, "the TLS session is over"};
  SSL* const ssl = s.connection.get();
  ERR_clear_error();
  while (!wire.empty()) {
    const auto size = std::min<std::size_t>(wire.size(), std::numeric_limits<int>::max());
    const int taken = BIO_write(s.in, wire.data(), static_cast<int>(size));
    if (taken <= 0) return s.fail(internal("take bytes for TLS"));
    wire.remove_prefix(static_cast<std::size_t>(taken));
  }
  if (SSL_is_init_finished(ssl) == 0) {
    const int result = SSL_do_handshake(ssl);
    if (result != 1) {
      if (SSL_get_error(ssl, result) == SSL_ERROR_WANT_READ) return {};
      return s.fail(failure_of(newest_error()));
    }
  }
  std::array<char, 16384> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  for (;;) {
    const int got = SSL_read(ssl, buffer.data(), static_cast<int>(buffer.size()));
    if (got > 0) {
      s.received.append(buffer.data(), static_cast<std::size_t>(got));
      continue;
    }
    const int error = SSL_get_error(ssl, got);
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_ZERO_RETURN) return {};
    return s.fail(failure_of(newest_error()));
  }
}

bool TlsSession::established() const {
  return !state_->failed && SSL_is_init_finished(state_->connection.get()) != 0;
}

const std::string& TlsSession::key_id() const { return state_->key_id; }

std::string TlsSession::take_received() { return std::exchange(state_->received, {}); }

bool TlsSession::is_closed() const {
  return (SSL_get_shutdown(state_->connection.get()) & SSL_RECEIVED_SHUTDOWN) != 0;
}

Status TlsSession::send(std::string_view text) {
  if (!established()) return {Code::failed_precondition, "the TLS session is not established"};
  ERR_clear_error();
  while (!text.empty()) {
    std::size_t written = 0;
    if (SSL_write_ex(state_->connection.get(), text.data(), text.size(), &written) != 1) {
      return state_->fail(internal("send through TLS"));
    }
    text.remove_prefix(written);
  }
  return {};
}

void TlsSession::close() {
  if (!established()) return;
  ERR_clear_error();
  SSL_shutdown(state_->connection.get());
}

std::string TlsSession::take_outgoing() {
  std::string wire(outgoing_size(), '\0');
  if (wire.empty()) return wire;
  const int got = BIO_read(state_->out, wire.data(), static_cast<int>(wire.size()));
  wire.resize(static_cast<std::size_t>(std::max(got, 0)));
  return wire;
}

std::size_t TlsSession::outgoing_size() const { return BIO_ctrl_pending(state_->out); }

}  // namespace hvd
