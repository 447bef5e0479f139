#include "driver/ssh/session.h"

#include <algorithm>
#include <chrono>
#include <fcntl.h>
#include <poll.h>
#include <string_view>

#include "base/socket.h"
#include "base/text.h"

namespace hvd::driver::ssh {

Result<int> drive(ssh_session session, int again, const Deadline& deadline,
                  const std::function<int()>& call) {
  while (true) {
    HVD_RETURN_IF_ERROR(deadline.check());
    const int result = call();
    const int fd = ssh_get_fd(session);
    // libssh sets a socket that it is given to blocking mode.
    if (fd >= 0) (void)set_nonblocking(fd, true);
    if (result != again) return result;
    if (fd < 0) return SSH_ERROR;

    const int flags = ssh_get_poll_flags(session);
    pollfd socket{.fd = fd, .events = POLLIN, .revents = 0};
    if ((flags & SSH_WRITE_PENDING) != 0) socket.events |= POLLOUT;
    HVD_RETURN_IF_ERROR(deadline.poll({&socket, 1}, Clock::now() + kPollInterval));
  }
}

std::string public_base64(ssh_key key) {
  char* text = nullptr;
  if (ssh_pki_export_pubkey_base64(key, &text) != SSH_OK) return {};
  std::string result(text);
  ssh_string_free_char(text);
  return result;
}

std::string error_text(ssh_session session) {
  std::string_view text = trim(ssh_get_error(session));
  for (const std::string_view prefix : {"Socket error: ", "Received SSH_MSG_DISCONNECT: "}) {
    if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
  }
  if (text == "disconnected") return "it closed the connection";
  return text.empty() ? "no reason given" : std::string(text);
}

}  // namespace hvd::driver::ssh
