#include "cmd/hvd-agent/output_stream.h"

#include <algorithm>
#include <cerrno>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <utility>

namespace hvd::agent {

void OutputPump::run() {
  while (ready()) {
    OutputStream* const stream = turns_.front();
    turns_.pop_front();
    stream->queued_ = false;
    stream->transfer(link_);
    stream->queue();
  }
}

OutputStream::OutputStream(OutputPump& pump, agent_link::Incarnation worker,
                           agent_link::Stream stream, std::function<void()> changed)
    : pump_(pump), worker_(worker), stream_(stream), changed_(std::move(changed)) {}

OutputStream::~OutputStream() {
  if (queued_) std::erase(pump_.turns_, this);
}

Status OutputStream::start(EventLoop& loop) {
  auto watch = loop.watch(pipe_.get(), EPOLLIN | EPOLLET, [this](std::uint32_t) {
    readable_ = true;
    queue();
  });
  HVD_RETURN_IF_ERROR(watch.status());
  watch_ = std::move(*watch);
  return {};
}

void OutputStream::queue() {
  if (queued_ || !pipe_ || !readable_ || window_ == 0) return;
  queued_ = true;
  pump_.turns_.push_back(this);
}

void OutputStream::credit(std::uint64_t bytes) {
  window_ += std::min(bytes, agent_link::kOutputWindow - window_);
  queue();
}

std::uint64_t OutputStream::renew_window() {
  const std::uint64_t in_flight = agent_link::kOutputWindow - window_;
  window_ = agent_link::kOutputWindow;
  queue();
  return in_flight;
}

void OutputStream::use_window(std::uint64_t bytes) { window_ -= std::min(bytes, window_); }

std::uint64_t OutputStream::bytes_in_pipe() const {
  int count = 0;
  if (!pipe_ || ::ioctl(pipe_.get(), FIONREAD, &count) != 0 || count < 0) return 0;
  return static_cast<std::uint64_t>(count);
}

void OutputStream::worker_exited() {
  unsent_ = bytes_in_pipe();
  readable_ = readable_ || unsent_ > 0;
  queue();
}

void OutputStream::end_after_what_is_there() {
  if (!pipe_ || ending_) return;
  ending_ = true;
  unsent_ = bytes_in_pipe();
  readable_ = true;
  queue();
}

void OutputStream::transfer(DriverLink& link) {
  if (!pipe_ || window_ == 0) return;
  if (ending_ && unsent_ == 0) return close(link);
  agent_link::Output output{worker_, stream_, {}};
  // Never more than the worker itself is owed while it is: its exit may not wait for others.
  std::uint64_t limit = std::min<std::uint64_t>(window_, agent_link::kMaxOutputChunk);
  if (unsent_ > 0) limit = std::min(limit, unsent_);
  output.bytes.resize(limit);
  const ssize_t got = ::read(pipe_.get(), output.bytes.data(), output.bytes.size());
  if (got < 0) {
    if (errno == EINTR) return;
    if (errno == EAGAIN) {
      readable_ = false;
      return;
    }
  }
  if (got <= 0) return close(link);
  const auto count = static_cast<std::uint64_t>(got);
  output.bytes.resize(count);
  // Nobody returns bytes of a link that is cut; for those that it keeps see use_window().
  if (!link.is_cut()) window_ -= count;
  link.send_output(output);
  if (unsent_ > 0) {
    unsent_ -= std::min(unsent_, count);
    if (unsent_ == 0) changed_();
  }
}

void OutputStream::drop() {
  watch_.end();
  pipe_.reset();
  unsent_ = 0;
}

void OutputStream::close(DriverLink& link) {
  drop();
  link.send_in_order(worker_, agent_link::OutputClosed{worker_, stream_}.encode());
  changed_();
}

}  // namespace hvd::agent
