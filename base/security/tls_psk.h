// TLS 1.3 between two programs that hold the same token, and nothing else: no certificates, no
// resumption, a fresh Diffie-Hellman exchange each time. The key is derived from the token, so that
// a side that finishes the handshake has proved that it holds it, and the token itself never
// travels. OpenSSL does the work.
//
// Only the arithmetic: bytes of the wire go in and come out, and the caller carries them.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/security/crypto.h"
#include "base/status.h"

namespace hvd {

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
  enum class Side { client, server };
  static Result<TlsPsk> create(Side side, const Token& token);

  Result<TlsSession> session() const;

 private:
  struct Shared;
  explicit TlsPsk(std::shared_ptr<const Shared> shared) : shared_(std::move(shared)) {}
  friend class TlsSession;
  std::shared_ptr<const Shared> shared_;
};

}  // namespace hvd
