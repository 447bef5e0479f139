// The frames between driver and agent, in both directions.
#include "base/protocol/agent_link.h"

#include "tests/fuzz/frames.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hvd::agent_link;
  const hvd::fuzz::Input input(data, size);
  hvd::fuzz::for_each_frame(input.rest(), std::size_t{1} << 20, [](const hvd::Frame& frame) {
    hvd::fuzz::decode_as_one_of<
        Hello, Program, Launch, Signal, Stop, Kill, Credit, World, WorldKeys, Rendezvous, Heartbeat,
        Pause, AskActivity, Shutdown, Check, Probe, Describe, Ready, Launched, LaunchFailed, Output,
        OutputClosed, Exited, WorkerInitialised, WorkerDone, WorkerReady, WorkerLeaves, WorkerLeft,
        WorkerCannotReach, Described, WorldCommitted, HostLeaves, ActivityWanted, WorkerActivity,
        WorkReports, Paused, HeartbeatAck, Checked, Probed, Problem, Bye>(frame);
  });
  return 0;
}
