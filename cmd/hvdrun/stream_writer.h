// Writes to one of hvdrun's own streams from a thread of its own, so that a slow or stalled reader
// holds up nothing else. The queue is bounded: up to `limit` bytes release their credit at once;
// beyond that, bytes keep their credit until they are written, which holds back the workers. If the
// reader accepts nothing for `stall_timeout` in that state, the queue is dropped and its bytes are
// counted, so that workers do not wait for ever.
//
// write() and drain() are safe from any thread; only drain() waits for the reader. The callbacks
// run on the writer's thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <sys/types.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/status.h"
#include "base/threads.h"

namespace hvd::cli {

// A callback that runs when the last copy is gone.
using Credit = std::shared_ptr<void>;
Credit make_credit(std::function<void()> released);

enum class WriteFailure {
  broken_pipe,  // its reader is gone
  hung_up,      // its terminal is gone
  other,
};

struct StreamWriterOptions {
  std::string name = {};                     // "standard output", for errors
  std::size_t limit = std::size_t{8} << 20;  // bytes
  std::chrono::milliseconds stall_timeout{10'000};
  // Called once, when the stream cannot be written any more. Later output is discarded.
  std::function<void(const Status& why, WriteFailure kind)> on_failure = {};
  // Called when the reader continues after `bytes` were dropped.
  std::function<void(std::uint64_t bytes)> on_resumed = {};
};

class StreamWriter {
 public:
  // The caller keeps `fd` and must not close it before this ends. It is not set non-blocking, since
  // other processes may share it. Throws std::runtime_error if the system gives no thread.
  StreamWriter(int fd, StreamWriterOptions options);
  ~StreamWriter();  // drops what has not been written
  StreamWriter(const StreamWriter&) = delete;
  StreamWriter& operator=(const StreamWriter&) = delete;

  void write(std::string bytes, Credit credit = {});
  // A terminal's line below all output, which is drawn when nothing else is to be written, cut
  // to the width of the terminal, and wiped before what is written next. Empty: there is none. It
  // is not drawn behind the beginning of a line.
  void set_live_line(std::string text);
  // Waits until all is written or writing has failed; false at the deadline, or with one as soon as
  // output was dropped: the reader has stalled, and there is no use in waiting for it again.
  bool drain(TimePoint deadline = kNever);
  // Bytes that were dropped, or are yet to be written.
  std::uint64_t unread();

 private:
  struct Item {
    std::string bytes;
    Credit credit;
    enum class Kind { output, live_line, wipe } kind = Kind::output;
  };

  void run();
  bool has_live_line_to_draw() const { return live_line_ != drawn_live_line_ && !line_open_; }
  void draw_live_line();
  void wipe_live_line();
  void write_front(std::unique_lock<std::mutex>& lock);
  ssize_t write_some(const char* bytes, std::size_t size) const;
  bool wait_writable(std::unique_lock<std::mutex>& lock);
  void take_and_drop_all(std::unique_lock<std::mutex>& lock);
  void resume(std::unique_lock<std::mutex>& lock);
  void fail(std::unique_lock<std::mutex>& lock, int error);
  bool full() const { return waiting_ > options_.limit; }
  void wake() const;

  const StreamWriterOptions options_;
  const int fd_;
  UniqueFd own_;         // the same pipe or terminal, opened once more as non-blocking
  bool socket_ = false;  // non-blocking by a flag of each send
  bool terminal_ = false;
  bool small_ = false;  // it could not be opened again: write only what poll() says will fit
  UniqueFd wake_;       // ends a wait for the reader

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queue_;
  std::size_t offset_ = 0;   // of the front item
  std::size_t waiting_ = 0;  // bytes in the queue
  TimePoint full_since_{};
  TimePoint moved_at_{};       // when the reader last took something
  std::uint64_t dropped_ = 0;  // since it did
  bool blocked_ = false;       // it took nothing when last asked
  bool line_open_ = false;     // the last byte of output written ended no line
  std::string live_line_;      // that is wanted
  std::string drawn_live_line_;
  bool failed_ = false;
  bool stopping_ = false;
  ThreadGroup threads_;  // one
};

}  // namespace hvd::cli
