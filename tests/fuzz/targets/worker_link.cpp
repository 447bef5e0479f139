// The frames between an agent and its worker, in both directions.
#include "base/protocol/worker_link.h"

#include "tests/fuzz/frames.h"

namespace {

using namespace hvd::worker_link;

void decode_welcome(std::string_view payload) {
  const auto head = WelcomeHead::decode(payload);
  const auto welcome = Welcome::decode(payload);
  if (!welcome.ok()) return hvd::fuzz::must_explain(welcome.status());
  hvd::fuzz::must(head.ok(), "a welcome that is whole has a head");
  const auto written = welcome->encode();
  const auto again = Welcome::decode(hvd::fuzz::payload_of(written));
  hvd::fuzz::must(again.ok() && again->encode() == written, "a welcome is decoded to the same one");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const hvd::fuzz::Input input(data, size);
  hvd::fuzz::for_each_frame(input.rest(), std::size_t{64} << 10, [](const hvd::Frame& frame) {
    if (frame.kind == static_cast<std::uint16_t>(Kind::welcome)) decode_welcome(frame.payload);
    hvd::fuzz::decode_as_one_of<World, Stop, Ping, Initialised, Done, Ready, Leave, Committed,
                                AskActivity, Activity, WorkReport, ActivityWanted, Left,
                                Unreachable, DriverGone, Mark, Alive>(frame);
  });
  return 0;
}
