#include "base/frame_sender.h"

#include <cerrno>
#include <poll.h>
#include <sys/socket.h>

#include "base/socket.h"

namespace hvd {

Status send_off(int fd, std::string_view& bytes, TimePoint deadline) {
  while (!bytes.empty()) {
    HVD_RETURN_IF_ERROR(wait_for(fd, POLLOUT, deadline).with_context("send"));
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno != EINTR && errno != EAGAIN) {
      return Status::from_errno("send", errno);
    }
  }
  return {};
}

Status FrameSender::send(int fd, std::string_view frame, TimePoint deadline) {
  std::string_view rest = begun_;
  Status sent = send_off(fd, rest, deadline);
  if (sent.ok()) {
    rest = frame;
    sent = send_off(fd, rest, deadline);
    if (rest.size() == frame.size()) rest = {};
  }
  begun_ = std::string(rest);
  return sent;
}

}  // namespace hvd
