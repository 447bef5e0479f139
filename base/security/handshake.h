// How two members of one world prove to each other that they hold its key, before anything else is
// said on a connection. Pure: bytes in, bytes out; the caller owns the socket. Used for the
// connections of the control tree, for data connections and for shared memory; `purpose` keeps a
// proof made for one from serving another. (Agents that join prove theirs by TLS: tls_psk.h.)
//
//     acceptor                                   connector
//        | -- challenge: version, acceptor's nonce --> |
//        | <- proof: nonce, identity, generation, MAC- |
//        | -- welcome: MAC ------------------------->  |   or  refusal: reason
//
// The version is that of the wire between workers (base/versions.h). Both MACs cover it,
// the purpose, both nonces, both identities and the generation (SIGMA-style mutual authentication
// with a shared key; compare ISO/IEC 9798-4, three-pass). A stranger learns nothing but a nonce,
// and is refused before anything is allocated for it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/frame.h"
#include "base/security/crypto.h"
#include "base/security/sealing.h"
#include "base/status.h"

namespace hvd {

inline constexpr std::size_t kMaxHandshakeFrame = 4096;

// Frame kinds of the handshake; a protocol that starts with it uses kinds from 16 on.
enum class HandshakeFrame : std::uint16_t { challenge = 1, proof = 2, welcome = 3, refusal = 4 };

// The name that one side gives itself: "rank 3", "a#1". Free text of at most 1,000 bytes.
struct HandshakeIdentity {
  std::string name;
  std::uint64_t generation = 0;
};

// A peer that has proved who it is, and the keys for what follows on the connection.
struct ProvedPeer : HandshakeIdentity {
  SessionKeys keys;
};

class HandshakeAcceptor {
 public:
  // `self` is our own name and the generation that we serve.
  HandshakeAcceptor(const Token& key, std::string_view purpose, HandshakeIdentity self);

  // The text to send as soon as somebody has connected.
  std::string challenge() const;
  // The connector's answer. On success `reply` is to be sent and the peer's identity is returned;
  // on failure `reply` is a refusal to be sent before closing. A right key with another
  // generation is failed_precondition (a stale or an early peer), anything else unauthenticated.
  Result<ProvedPeer> accept(const Frame& proof, std::string& reply) const;

 private:
  Mac mac_;
  std::string purpose_;
  HandshakeIdentity self_;
  std::string nonce_;
};

class HandshakeConnector {
 public:
  // `peer` is whom we expect to find: a stranger at its address will be refused by us, too.
  HandshakeConnector(const Token& key, std::string_view purpose, HandshakeIdentity self,
                     HandshakeIdentity peer);

  // The acceptor's challenge; returns what to send back.
  Result<std::string> prove(const Frame& challenge);
  // The acceptor's verdict on it: the keys for what follows on the connection, or why it refused.
  Result<SessionKeys> check(const Frame& verdict) const;

 private:
  Mac mac_;
  std::string purpose_;
  HandshakeIdentity self_;
  HandshakeIdentity peer_;
  std::string own_nonce_;
  std::string peer_nonce_;
};

}  // namespace hvd
