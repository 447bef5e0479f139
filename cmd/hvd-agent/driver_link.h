// The agent's end of the link to the driver (base/protocol/agent_link.h): frames in, frames out,
// never blocking. Owned by the supervisor.
//
// Frames wait in three queues. Answers to heartbeats overtake everything. A message about one
// worker stays behind that worker's output, but overtakes the output of others; all other messages
// overtake output. So the report of an exit never waits for another worker's output.
//
// The link of a job whose agents hold their workers may be cut, when its driver has ended, and
// later renewed. The agent's reports on workers are kept, and go out once more when the link was
// renewed. Of the output that comes while it is cut the newest part is kept, and goes out then, in
// its place among the reports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/descriptors.h"
#include "base/frame.h"
#include "base/protocol/agent_link.h"
#include "base/status.h"

namespace hvd::agent {

class DriverLink {
 public:
  // Both descriptors are non-blocking; they may be two numbers of one socket.
  DriverLink(UniqueFd in, UniqueFd out) : in_(std::move(in)), out_(std::move(out)) {}

  // From now on reports are kept. To be called before the first of them.
  void keep_reports() { keeps_reports_ = true; }
  // The link has ended: closes it and drops what waits.
  void cut();
  bool is_cut() const { return !out_; }
  // The link of the next driver, on which `received` has arrived.
  void renew(UniqueFd in, UniqueFd out, std::string_view received);
  // Sends all reports since keep_reports(), and the output that was kept, of which `on_output`
  // hears each piece: it counts against the window of its stream.
  void repeat_reports(const std::function<void(const agent_link::Output&)>& on_output);
  // The link for another agent to serve, with what has arrived and was not given out by next();
  // this one is cut.
  struct Parts {
    UniqueFd in;
    UniqueFd out;
    std::string received;
  };
  Parts release();
  // Bytes of output that were dropped since the last call.
  std::uint64_t take_dropped_output() { return std::exchange(dropped_output_, 0); }

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
  void send_output(const agent_link::Output& output);
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
  // Output that is kept while the link is cut; with it no stream exceeds its window.
  static constexpr std::size_t kMostKeptOutput = agent_link::kOutputWindow;
  // A piece of it costs memory also if it has one byte.
  static constexpr std::size_t kCostOfPiece = 128;
  struct KeptOutput {
    agent_link::Output output;
    std::size_t reports_before = 0;
  };
  struct Item {
    agent_link::Incarnation worker = 0;
    std::string frame;
  };

  // False: the link is cut, and the frame is dropped.
  bool takes(const std::string& frame);
  void keep_output(const agent_link::Output& output);

  UniqueFd in_;
  UniqueFd out_;
  FrameDecoder decoder_;
  std::string writing_;  // begun: nothing may come between its bytes
  std::size_t written_ = 0;
  std::deque<Item> urgent_;
  std::deque<Item> first_;
  std::deque<Item> ordered_;
  std::size_t waiting_bytes_ = 0;
  bool keeps_reports_ = false;
  std::vector<std::string> reports_;    // in the order in which they were made
  std::deque<KeptOutput> kept_output_;  // oldest first
  std::size_t kept_size_ = 0;           // with what the pieces cost
  std::uint64_t dropped_output_ = 0;
};

}  // namespace hvd::agent
