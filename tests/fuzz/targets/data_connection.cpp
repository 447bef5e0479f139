// The stream of a data connection, as a rank reads it: headers, messages, records with their tags.
// The first byte says how it is protected, and whether a member has sent it, whose records are what
// it has sealed, or a stranger.
#include <sys/socket.h>

#include "base/descriptors.h"
#include "base/socket.h"
#include "runtime/transport/incoming.h"
#include "tests/fuzz/input.h"

namespace {

using namespace hvd;
using namespace hvd::runtime;
using fuzz::must;

const Token& key() {
  static const Token value = Token::random();
  return value;
}

// Each piece as a record: a length of two bytes, then the bytes.
std::string sealed(fuzz::Input input, Protection protection) {
  RecordCipher cipher(key(), protection);
  std::string bytes;
  while (!input.at_end()) {
    const std::size_t low = input.byte();
    std::string record(input.take(low | std::size_t{input.byte()} << 8));
    const std::span<std::byte> raw(reinterpret_cast<std::byte*>(record.data()), record.size());
    if (raw.empty()) continue;
    const auto tag = cipher.seal(raw, raw.data());
    bytes += record;
    bytes.append(reinterpret_cast<const char*>(tag.data()), tag.size());
  }
  return bytes;
}

// Two messages are expected, of 10 bytes and of 3,000, and little room is left for others.
struct Rank {
  Endpoint endpoint;
  Unexpected unexpected{.bytes_left = 4096};
  Incoming incoming{0, 1, unexpected};
  std::vector<std::byte> small = std::vector<std::byte>(10);
  std::vector<std::byte> large = std::vector<std::byte>(3000);

  std::shared_ptr<Receive> receive(std::uint64_t slot, std::vector<std::byte>& into) {
    return std::make_shared<Receive>(
        Receive{.endpoint = &endpoint, .slot = slot, .data = into.data(), .bytes = into.size()});
  }
};

// A third receive comes late, when its message may be waiting.
void read(std::string_view stream, Protection protection) {
  Rank rank;
  if (protection != Protection::none) {
    rank.incoming.protect(RecordCipher(key(), protection));
  }
  rank.incoming.open();
  rank.incoming.expect(rank.receive(0, rank.small));
  rank.incoming.expect(rank.receive(1, rank.large));
  auto pair = socket_pair();
  must(pair.ok(), "there are sockets");
  const auto written = ::send(pair->second.get(), stream.data(), stream.size(), MSG_DONTWAIT);
  must(stream.empty() || written == static_cast<ssize_t>(stream.size()), "the socket takes it all");
  ::shutdown(pair->second.get(), SHUT_WR);

  std::vector<Ended> ended;
  std::vector<std::byte> late(20);
  bool readable = true;
  Status status;
  for (int turn = 0; status.ok() && turn < 4; ++turn) {
    status = rank.incoming.read(pair->first.get(), readable, true, ended);
    rank.incoming.keep_what_holds_up();
    const auto waits = rank.receive(2, late);
    if (status.ok() && rank.incoming.waiting_since(*waits) > 0) {
      status = rank.incoming.take_waiting(waits, ended);
    }
  }
  must(rank.unexpected.bytes_left <= 4096, "memory for messages that nobody expects is bounded");
  must(ended.size() <= 6, "only messages that are expected end");
  (void)rank.incoming.explain();
  rank.incoming.close();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kMost = 60'000;  // a socket takes it at once
  if (size > kMost) return 0;
  fuzz::Input input(data, size);
  const int mode = input.byte();
  const auto protection = static_cast<Protection>(mode % 3);
  const bool is_member = (mode / 3) % 2 == 0;
  if (protection == Protection::none || !is_member) {
    read(input.rest(), protection);
  } else {
    read(sealed(input, protection), protection);
  }
  return 0;
}
