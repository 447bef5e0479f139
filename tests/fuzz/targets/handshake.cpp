// The frames of the handshake, as either end reads them from somebody without the token.
#include "base/security/handshake.h"

#include "tests/fuzz/frames.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hvd;
  static const Token token = Token::random();
  fuzz::Input input(data, size);
  const HandshakeAcceptor acceptor(token, "tree", {"rank 0", 1});
  HandshakeConnector connector(token, "tree", {"rank 1", 1}, {"rank 0", 1});
  fuzz::for_each_frame(input.rest(), kMaxHandshakeFrame, [&](const Frame& frame) {
    std::string reply;
    fuzz::must(!acceptor.accept(frame, reply).ok(), "who does not hold the token is refused");
    fuzz::must(!reply.empty(), "who is refused is told so");
    (void)connector.prove(frame);
    fuzz::must(!connector.check(frame).ok(), "who does not hold the token is not believed");
  });
  return 0;
}
