#include "runtime/net/connection.h"

#include <array>
#include <cerrno>
#include <sys/socket.h>

namespace hvd::runtime {

Status Connection::send(std::string_view frames) {
  unsent_ += frames;
  return flush();
}

Status Connection::flush() {
  while (has_unsent()) {
    const ssize_t sent = ::send(fd_.get(), unsent_.data() + sent_, unsent_.size() - sent_,
                                MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      sent_ += static_cast<std::size_t>(sent);
    } else if (errno == EAGAIN) {
      return {};
    } else if (errno != EINTR) {
      return Status::from_errno("send", errno);
    }
  }
  unsent_.clear();
  sent_ = 0;
  return {};
}

Status Connection::receive(std::size_t most) {
  std::array<char, 16384> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init): read into
  std::size_t taken = 0;
  while (taken <= most) {
    const ssize_t got = ::recv(fd_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got > 0) {
      decoder_.feed({buffer.data(), static_cast<std::size_t>(got)});
      taken += static_cast<std::size_t>(got);
    } else if (got == 0) {
      return {Code::unavailable, "closed its connection"};
    } else if (errno == EAGAIN) {
      return {};
    } else if (errno != EINTR) {
      return Status::from_errno("connection lost", errno);
    }
  }
  return {};
}

}  // namespace hvd::runtime
