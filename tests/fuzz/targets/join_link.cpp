// The frames between a joining agent and the driver, in both directions.
#include "base/protocol/join_link.h"

#include "tests/fuzz/frames.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hvd::join_link;
  const hvd::fuzz::Input input(data, size);
  hvd::fuzz::for_each_frame(input.rest(), 4096, [](const hvd::Frame& frame) {
    hvd::fuzz::decode_as_one_of<Join, Accepted, Refused, Heartbeat, HeartbeatAck, Begin, Begun,
                                Dismissed>(frame);
  });
  return 0;
}
