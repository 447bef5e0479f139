// One of a worker's two output pipes, read by the agent and sent on to the driver as bytes.
//
// Output is paid for: at most agent_link::kOutputWindow bytes are on their way to the driver
// without having been returned by Credit. When they are, the pipe is simply not read any more; the
// kernel then holds the worker back. The OutputPump takes turns between the streams, one chunk
// each, and stops when the link has enough to write.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>

#include "base/protocol/agent_link.h"
#include "base/status.h"
#include "base/unique_fd.h"
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
  // `changed` is called when the stream ended or no longer has_unsent; it must not destroy the
  // stream.
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
  // The worker itself has exited: from now until it has sent what is in the pipe at this moment,
  // the stream has_unsent. (Others may go on writing for ever.)
  void worker_exited();
  bool has_unsent() const { return unsent_ > 0; }
  // Nobody is left who could be waited for: ends after what is in the pipe at this moment, even if
  // a stranger to whom the pipe was handed still holds it.
  void end_after_what_is_there();
  bool closed() const { return !pipe_; }
  // Closes without a word: there was no worker after all.
  void drop();

 private:
  friend class OutputPump;
  void queue();
  void transfer(DriverLink& link);
  void close(DriverLink& link);
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
