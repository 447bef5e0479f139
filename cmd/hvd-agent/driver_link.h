// The agent's end of the link to the driver (base/protocol/agent_link.h): frames in, frames out,
// never blocking. Owned by the supervisor.
//
// Frames wait in three queues. Answers to heartbeats overtake everything. A message about one
// worker stays behind that worker's output, but overtakes the output of others; all other messages
// overtake output. So the report of an exit never waits for another worker's output.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>

#include "base/descriptors.h"
#include "base/frame.h"
#include "base/protocol/agent_link.h"
#include "base/status.h"

namespace hvd::agent {

class DriverLink {
 public:
  // Both descriptors are non-blocking; they may be two numbers of one socket.
  DriverLink(UniqueFd in, UniqueFd out) : in_(std::move(in)), out_(std::move(out)) {}

  int in_fd() const { return in_.get(); }
  int out_fd() const { return out_.get(); }

  // Takes in what has arrived; unavailable at end of file.
  Status receive();
  // The next whole frame, or nothing; data_loss if the received bytes are not a frame.
  Result<std::optional<Frame>> next() { return decoder_.next(); }

  // Overtakes everything.
  void send_first(std::string frame);
  // May overtake output.
  void send(std::string frame);
  // A worker's output: behind everything else.
  void send_output(agent_link::Incarnation worker, std::string frame);
  // Overtakes output, except that of this worker.
  void send_in_order(agent_link::Incarnation worker, std::string frame);
  // True while more output may be read from the workers' pipes.
  bool has_room() const { return waiting_bytes_ < kEnoughWaiting; }
  bool all_sent() const {
    return writing_.empty() && urgent_.empty() && first_.empty() && ordered_.empty();
  }
  // Writes what the other side takes. An error means that it is gone, or has stopped reading.
  Status flush();

 private:
  static constexpr std::size_t kEnoughWaiting = std::size_t{256} << 10;
  static constexpr std::size_t kFarTooMuchWaiting = std::size_t{256} << 20;
  struct Item {
    agent_link::Incarnation worker = 0;
    std::string frame;
  };

  UniqueFd in_;
  UniqueFd out_;
  FrameDecoder decoder_;
  std::string writing_;  // begun: nothing may come between its bytes
  std::size_t written_ = 0;
  std::deque<Item> urgent_;
  std::deque<Item> first_;
  std::deque<Item> ordered_;
  std::size_t waiting_bytes_ = 0;
};

}  // namespace hvd::agent
