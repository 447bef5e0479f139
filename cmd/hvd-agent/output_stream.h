// One of a worker's two output pipes, read by the agent and sent on to the driver as bytes.
//
// The driver grants credit: at most agent_link::kOutputWindow bytes are in flight. When the window
// is used up the pipe is not read any more, and the worker blocks once the pipe is full. The
// OutputPump serves the streams in turns, one chunk each, until the link has enough to write.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>

#include "base/descriptors.h"
#include "base/protocol/agent_link.h"
#include "base/status.h"
#include "cmd/hvd-agent/driver_link.h"
#include "cmd/hvd-agent/event_loop.h"

namespace hvd::agent {

class OutputStream;

class OutputPump {
 public:
  explicit OutputPump(DriverLink& link) : link_(link) {}
  // Moves output until nothing is left, every window is used up or the link has enough.
  void run();
  // True if run() would move something now.
  bool ready() const { return !turns_.empty() && link_.has_room(); }

 private:
  friend class OutputStream;
  DriverLink& link_;
  std::deque<OutputStream*> turns_;  // readable, and with window left; each once
};

class OutputStream {
 public:
  // `changed` is called when the stream has ended or has_unsent() becomes false; it must not
  // destroy the stream.
  OutputStream(OutputPump& pump, agent_link::Incarnation worker, agent_link::Stream stream,
               std::function<void()> changed);
  OutputStream(const OutputStream&) = delete;
  OutputStream& operator=(const OutputStream&) = delete;
  ~OutputStream();

  // Takes over the pipe's read end, which is non-blocking. Nothing is read yet.
  void open(UniqueFd pipe) { pipe_ = std::move(pipe); }
  // From now on, for a worker that was launched.
  Status start(EventLoop& loop);
  void credit(std::uint64_t bytes);
  // The link is cut: the window is whole again. Returns the bytes that are in flight, of which the
  // driver may have read some.
  std::uint64_t renew_window();
  // Bytes that were read while the link was cut, at most a window with those of all streams, go out
  // on the renewed link.
  void use_window(std::uint64_t bytes);
  // The worker itself has exited: has_unsent() is true until what is in the pipe now was sent. (Its
  // descendants may go on writing without end.)
  void worker_exited();
  bool has_unsent() const { return unsent_ > 0; }
  // All processes of the worker have ended: the stream ends after what is in the pipe now, even if
  // an unrelated process has inherited the pipe.
  void end_after_what_is_there();
  bool closed() const { return !pipe_; }
  // Closes without a message to the driver: the launch has failed.
  void drop();
  // Closes, and tells the driver that no more comes.
  void close(DriverLink& link);

 private:
  friend class OutputPump;
  void queue();
  void transfer(DriverLink& link);
  std::uint64_t bytes_in_pipe() const;

  OutputPump& pump_;
  agent_link::Incarnation worker_;
  agent_link::Stream stream_;
  std::function<void()> changed_;
  UniqueFd pipe_;
  Watch watch_;
  std::uint64_t window_ = agent_link::kOutputWindow;
  std::uint64_t unsent_ = 0;
  bool readable_ = false;  // the pipe was not yet seen to be empty since the last event
  bool ending_ = false;
  bool queued_ = false;
};

}  // namespace hvd::agent
