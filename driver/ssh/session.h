// libssh's objects with owners, and the one way in which they are used before they are handed to
// the multiplexer: by non-blocking calls, each repeated until its deadline. For the sources of this
// folder.
//
// One session is used by one thread at a time; it may be handed to another.
#pragma once

#include <functional>
#include <libssh/libssh.h>
#include <memory>
#include <string>

#include "base/status.h"
#include "driver/ssh/deadline.h"

namespace hvd::driver::ssh {

struct FreeSession {
  // Closes the socket without a goodbye: that could block.
  void operator()(ssh_session session) const {
    ssh_silent_disconnect(session);
    ssh_free(session);
  }
};
struct FreeKey {
  void operator()(ssh_key key) const { ssh_key_free(key); }
};
using SessionPtr = std::unique_ptr<ssh_session_struct, FreeSession>;
using KeyPtr = std::unique_ptr<ssh_key_struct, FreeKey>;

// Repeats `call` as long as it returns `again`, waiting for the session's socket in between.
// Returns its last return value, or the reason why the waiting ended.
Result<int> drive(ssh_session session, int again, const Deadline& deadline,
                  const std::function<int()>& call);

// A public key, or the public half of a private one, or a certificate, in base64; empty: it cannot
// be exported.
std::string public_base64(ssh_key key);

// libssh's text for its last error, without its prefixes.
std::string error_text(ssh_session session);

}  // namespace hvd::driver::ssh
