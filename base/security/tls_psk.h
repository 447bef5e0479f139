// TLS 1.3 between two programs that hold the same token, and nothing else: no certificates, no
// resumption, a fresh Diffie-Hellman exchange each time. The key is derived from the token, so that
// a side that finishes the handshake has proved that it holds it, and the token itself never
// travels. OpenSSL does the work.
//
// Only the arithmetic: bytes of the wire go in and come out, and the caller carries them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/security/crypto.h"
#include "base/status.h"

namespace hvd {

// A token with the name by which the server finds it among several. The one that both sides have in
// a file of their own has none.
struct PskKey {
  Token secret;
  std::string id;  // letters and digits
};

// As a file holds it: 64 hexadecimal digits, with "hvd-join-<id>-" before them if it has a name.
std::string to_text(const PskKey& key);
Result<PskKey> psk_key_from_text(std::string_view text);

// One connection. For one thread at a time.
class TlsSession {
 public:
  TlsSession(TlsSession&&) noexcept;
  TlsSession& operator=(TlsSession&&) noexcept;
  ~TlsSession();

  // Takes what arrived (of a client's new session: nothing, to make it speak first). After an error
  // the session is over; what take_outgoing() then gives tells the other side why. unauthenticated:
  // it does not hold the token; data_loss: it does not speak this.
  Status receive(std::string_view wire);
  bool established() const;
  // Of a server's session that is established: the name of the key with which the client has come.
  const std::string& key_id() const;
  // The text from the other side, as far as it was received.
  std::string take_received();
  // It has said that it will say nothing more.
  bool is_closed() const;

  // Only when established.
  Status send(std::string_view text);
  void close();  // says that nothing more will come
  // The bytes that are to be put on the wire now.
  std::string take_outgoing();
  std::size_t outgoing_size() const;

 private:
  friend class TlsPsk;
  struct State;
  explicit TlsSession(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The context that the sessions of one side have in common. For one thread at a time; sessions may
// outlive it.
class TlsPsk {
 public:
  // The secret of the key with this name; nothing if there is none.
  using FindSecret = std::function<std::optional<Token>(std::string_view id)>;

  static Result<TlsPsk> client(const PskKey& key);
  // `token` is the key without a name. `find` is called while a handshake goes on; null: there are
  // no other keys.
  static Result<TlsPsk> server(const Token& token, FindSecret find = {});

  Result<TlsSession> session() const;

 private:
  enum class Side { client, server };
  struct Shared;
  static Result<TlsPsk> create(Side side, const PskKey& key, FindSecret find);
  explicit TlsPsk(std::shared_ptr<const Shared> shared) : shared_(std::move(shared)) {}
  friend class TlsSession;
  std::shared_ptr<const Shared> shared_;
};

}  // namespace hvd
