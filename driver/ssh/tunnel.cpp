#include "driver/ssh/tunnel.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <utility>
#include <vector>

#include "base/machine/child_process.h"
#include "base/text.h"
#include "driver/job/job_io.h"

namespace hvd::driver::ssh {
namespace {

// Rounds of copying for one tunnel before the others have their turn.
constexpr int kMaxRounds = 16;
// The agent's exit status and the end of its output follow each other, normally at once.
constexpr std::chrono::milliseconds kEndTimeout{1'000};

std::string last_lines(const StderrTail& tail) {
  constexpr std::size_t kMost = 5;
  std::vector<std::string> lines = tail.lines();
  if (lines.size() > kMost) lines.erase(lines.begin(), lines.end() - kMost);
  return join(lines, "; ");
}

}  // namespace

Tunnel::Tunnel(TunnelPayload payload, UniqueFd socket, std::shared_ptr<TunnelEnd> end)
    : payload_(std::move(payload)),
      socket_(std::move(socket)),
      end_(std::move(end)),
      to_driver_(std::move(payload_.first_bytes)) {
  ssh_callbacks_init(&callbacks_);
  callbacks_.userdata = this;
  callbacks_.channel_exit_status_function = [](ssh_session, ssh_channel, int status, void* self) {
    static_cast<Tunnel*>(self)->exit_ = end_text(status, 0, false);
  };
  callbacks_.channel_exit_signal_function = [](ssh_session, ssh_channel, const char* signal,
                                               int core, const char*, const char*, void* self) {
    static_cast<Tunnel*>(self)->exit_ =
        cat("was killed by SIG", signal, core != 0 ? " (core dumped)" : "");
  };
  ssh_set_channel_callbacks(payload_.channel, &callbacks_);
  session_fd_ = ssh_get_fd(session());
}

Tunnel::~Tunnel() {
  if (payload_.session != nullptr) ssh_remove_channel_callbacks(payload_.channel, &callbacks_);
}

bool Tunnel::pump(Buffer& buffer) {
  for (int round = 0; round < kMaxRounds; ++round) {
    bool progress = false;
    if (payload_.session != nullptr) {
      progress |= read_errors(buffer);
      progress |= read_output(buffer);
      progress |= write_input(buffer);
      close_if_ended();
    }
    progress |= flush_to_driver();
    if (!progress) return false;
  }
  return true;
}

void Tunnel::close(const std::string& reason) {
  if (payload_.session == nullptr) return;
  {
    const std::scoped_lock lock(end_->mutex);
    end_->reason = reason;
    if (const std::string errors = last_lines(errors_); !errors.empty()) {
      end_->reason += ", saying: " + errors;
    }
  }

  ssh_remove_channel_callbacks(payload_.channel, &callbacks_);
  payload_.session.reset();
  payload_.proxy.reset();
  close_at_ = kNever;
  end_->ended.set();
  if (to_driver_.empty() || driver_closed_) socket_.reset();
}

void Tunnel::drop() {
  close("was given up");
  socket_.reset();
}

std::uint32_t Tunnel::session_events() const {
  const bool out = (ssh_get_poll_flags(session()) & SSH_WRITE_PENDING) != 0;
  return EPOLLIN | (out ? static_cast<std::uint32_t>(EPOLLOUT) : 0U);
}

std::uint32_t Tunnel::socket_events() const {
  std::uint32_t events = 0;
  if (!to_driver_.empty() && !driver_closed_) events |= EPOLLOUT;
  if (payload_.session != nullptr && may_take_input()) events |= EPOLLIN;
  return events;
}

bool Tunnel::may_take_input() const {
  return !input_ended_ && to_agent_.empty() && ssh_channel_is_open(payload_.channel) != 0 &&
         ssh_channel_window_size(payload_.channel) > 0 &&
         (ssh_get_status(session()) & SSH_WRITE_PENDING) == 0;
}

bool Tunnel::read_errors(Buffer& buffer) {
  const int count = ssh_channel_read_nonblocking(payload_.channel, buffer.data(), buffer.size(), 1);
  if (count <= 0) return false;
  errors_.feed({buffer.data(), static_cast<std::size_t>(count)});
  return true;
}

bool Tunnel::read_output(Buffer& buffer) {
  if (!to_driver_.empty() || output_ended_) return false;
  const int count = ssh_channel_read_nonblocking(payload_.channel, buffer.data(), buffer.size(), 0);
  if (count == SSH_EOF) {
    output_ended_ = true;
    ::shutdown(socket_.get(), SHUT_WR);
    close_at_ = Clock::now() + kEndTimeout;
    return true;
  }
  if (count <= 0) return false;
  to_driver_.assign(buffer.data(), static_cast<std::size_t>(count));
  return true;
}

bool Tunnel::flush_to_driver() {
  if (to_driver_.empty()) return false;
  if (driver_closed_) {
    to_driver_.clear();
    return true;
  }

  const ssize_t sent =
      ::send(socket_.get(), to_driver_.data(), to_driver_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0) {
    if (errno == EAGAIN || errno == EINTR) return false;
    driver_closed_ = true;
    if (payload_.session == nullptr) socket_.reset();
    return true;
  }
  to_driver_.erase(0, static_cast<std::size_t>(sent));
  if (to_driver_.empty() && payload_.session == nullptr) socket_.reset();
  return true;
}

bool Tunnel::write_input(Buffer& buffer) {
  if (!to_agent_.empty()) return write_to_agent();
  if (!may_take_input()) return false;

  const std::size_t room =
      std::min<std::size_t>(ssh_channel_window_size(payload_.channel), buffer.size());
  const ssize_t count = ::recv(socket_.get(), buffer.data(), room, MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (count <= 0) {
    input_ended_ = true;
    ssh_channel_send_eof(payload_.channel);
    return true;
  }
  to_agent_.assign(buffer.data(), static_cast<std::size_t>(count));
  return write_to_agent();
}

// libssh takes no bytes during a key re-exchange.
bool Tunnel::write_to_agent() {
  const int written = ssh_channel_write(payload_.channel, to_agent_.data(),
                                        static_cast<std::uint32_t>(to_agent_.size()));
  if (written < 0) {
    to_agent_.clear();
    return false;
  }
  to_agent_.erase(0, static_cast<std::size_t>(written));
  return written > 0;
}

void Tunnel::close_if_ended() {
  if (ssh_is_connected(session()) == 0 || (ssh_get_status(session()) & SSH_CLOSED_ERROR) != 0) {
    return close(cat("was lost with its SSH connection: ", error_text(session())));
  }
  if (!output_ended_) {
    if (ssh_channel_is_closed(payload_.channel) != 0) return close(exit_or("closed its link"));
    return close_if_held_open();
  }
  // The output has ended, so this call is the only one that makes libssh process what arrives.
  if (exit_.empty()) ssh_channel_get_exit_status(payload_.channel);
  if (!exit_.empty() || ssh_channel_is_closed(payload_.channel) != 0 || Clock::now() >= close_at_) {
    close(exit_or("closed its link"));
  }
}

// A process that the start files of the host's shell have left in the background holds the output
// open, and sshd the channel. The time runs while nothing arrives and the driver has taken all.
void Tunnel::close_if_held_open() {
  if (exit_.empty()) return;
  if (!to_driver_.empty()) {
    close_at_ = kNever;
  } else if (close_at_ == kNever) {
    close_at_ = Clock::now() + kEndTimeout;
  } else if (Clock::now() >= close_at_) {
    close(exit_);
  }
}

}  // namespace hvd::driver::ssh
