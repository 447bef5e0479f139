#include "base/security/handshake.h"

#include "base/text.h"
#include "base/versions.h"
#include "base/wire.h"

namespace hvd {
namespace {

constexpr std::size_t kNonceSize = 16;
constexpr std::size_t kMaxName = 1000;

std::uint16_t kind_of(HandshakeFrame frame) { return static_cast<std::uint16_t>(frame); }

struct Transcript {
  std::string_view purpose;
  std::string_view acceptor_nonce;
  std::string_view connector_nonce;
  std::string_view acceptor;
  std::string_view connector;
  std::uint64_t generation = 0;
};

Digest sign(const Mac& mac, std::string_view side, const Transcript& t) {
  const std::string numbers = WireWriter().u32(wire_versions().members).u64(t.generation).take();
  return mac({"hvd handshake 2", side, t.purpose, t.acceptor_nonce, t.connector_nonce, t.acceptor,
              t.connector, numbers});
}

// Only those who hold the world's key can derive it, and each connection and direction has another
// one.
Token session_key(const Mac& mac, std::string_view sender, const Transcript& transcript) {
  Digest bytes = sign(mac, cat("key of the ", sender), transcript);
  auto key = Token::from_bytes(as_view(bytes));
  wipe(bytes);
  return *key;
}

std::string refusal(const Status& why) {
  return encode_frame(
      kind_of(HandshakeFrame::refusal),
      WireWriter().u8(static_cast<std::uint8_t>(why.code())).str(why.message()).bytes());
}

}  // namespace

HandshakeAcceptor::HandshakeAcceptor(const Token& key, std::string_view purpose,
                                     HandshakeIdentity self)
    : mac_(key), purpose_(purpose), self_(std::move(self)), nonce_(random_bytes(kNonceSize)) {}

std::string HandshakeAcceptor::challenge() const {
  return encode_frame(kind_of(HandshakeFrame::challenge),
                      WireWriter().u32(wire_versions().members).str(nonce_).bytes());
}

Result<ProvedPeer> HandshakeAcceptor::accept(const Frame& proof, std::string& reply) const {
  const auto refuse = [&](Code code, std::string message) {
    Status why(code, std::move(message));
    reply = refusal(why);
    return why;
  };
  WireReader reader(proof.payload);
  const auto connector_nonce = reader.str();
  HandshakeIdentity peer;
  peer.name = reader.str();
  peer.generation = reader.u64();
  const auto digest = reader.view();
  if (proof.kind != kind_of(HandshakeFrame::proof) || !reader.finish("proof").ok() ||
      connector_nonce.size() != kNonceSize || peer.name.size() > kMaxName) {
    return refuse(Code::unauthenticated,
                  cat(purpose_, ": the peer sent a malformed proof of this world's key"));
  }
  const Transcript transcript{purpose_,   nonce_,    connector_nonce,
                              self_.name, peer.name, peer.generation};
  if (!equal_in_constant_time(digest, as_view(sign(mac_, "connector", transcript)))) {
    // Members of other worlds of this job have other keys.
    const std::string claim = peer.generation == self_.generation
                                  ? ""
                                  : cat("; it says that it comes from generation ", peer.generation,
                                        ", and this is ", self_.generation);
    return refuse(Code::unauthenticated,
                  cat(purpose_, ": the peer did not prove that it holds this world's key", claim));
  }
  if (peer.generation != self_.generation) {
    return refuse(Code::failed_precondition,
                  cat(purpose_, ": ", peer.name, " comes from generation ", peer.generation,
                      ", this is ", self_.generation));
  }
  reply = encode_frame(kind_of(HandshakeFrame::welcome),
                       WireWriter().str(as_view(sign(mac_, "acceptor", transcript))).bytes());
  // Before the name is moved, which the transcript views.
  SessionKeys keys{.to_send = session_key(mac_, "acceptor", transcript),
                   .to_receive = session_key(mac_, "connector", transcript)};
  return ProvedPeer{std::move(peer), std::move(keys)};
}

HandshakeConnector::HandshakeConnector(const Token& key, std::string_view purpose,
                                       HandshakeIdentity self, HandshakeIdentity peer)
    : mac_(key),
      purpose_(purpose),
      self_(std::move(self)),
      peer_(std::move(peer)),
      own_nonce_(random_bytes(kNonceSize)) {}

Result<std::string> HandshakeConnector::prove(const Frame& challenge) {
  WireReader reader(challenge.payload);
  const auto version = reader.u32();
  peer_nonce_ = reader.str();
  if (challenge.kind != kind_of(HandshakeFrame::challenge) || !reader.finish("challenge").ok() ||
      peer_nonce_.size() != kNonceSize) {
    return Status(Code::unauthenticated,
                  cat(purpose_, ": ", peer_.name, " does not speak hvd's handshake"));
  }
  if (const auto own = wire_versions().members; version != own) {
    return Status(Code::unauthenticated,
                  cat(purpose_, ": ", peer_.name, " speaks version ", version,
                      " of the protocol between workers, and this process version ", own));
  }
  const Transcript transcript{purpose_,   peer_nonce_, own_nonce_,
                              peer_.name, self_.name,  self_.generation};
  return encode_frame(kind_of(HandshakeFrame::proof),
                      WireWriter()
                          .str(own_nonce_)
                          .str(self_.name)
                          .u64(self_.generation)
                          .str(as_view(sign(mac_, "connector", transcript)))
                          .bytes());
}

Result<SessionKeys> HandshakeConnector::check(const Frame& verdict) const {
  WireReader reader(verdict.payload);
  if (verdict.kind == kind_of(HandshakeFrame::refusal)) {
    const auto code = reader.u8();
    const auto reason = reader.str();
    const bool stale = code == static_cast<std::uint8_t>(Code::failed_precondition);
    return Status(stale ? Code::failed_precondition : Code::unauthenticated,
                  cat(peer_.name, " refused us: ", reason.substr(0, kMaxName)));
  }
  const auto digest = reader.view();
  const Transcript transcript{purpose_,   peer_nonce_, own_nonce_,
                              peer_.name, self_.name,  self_.generation};
  if (verdict.kind != kind_of(HandshakeFrame::welcome) || !reader.finish("welcome").ok() ||
      !equal_in_constant_time(digest, as_view(sign(mac_, "acceptor", transcript)))) {
    return Status(Code::unauthenticated,
                  cat(purpose_, ": ", peer_.name, " did not prove that it holds this world's key"));
  }
  return SessionKeys{.to_send = session_key(mac_, "connector", transcript),
                     .to_receive = session_key(mac_, "acceptor", transcript)};
}

}  // namespace hvd
