// Secrets for this user's own processes on other nodes of a cluster, sealed by MUNGE, with which
// Slurm's nodes know each other: the credential is encrypted, only this user can open it, on every
// node only once, and after some minutes nobody can.
//
// MUNGE's library is loaded at run time. Every call asks the daemon on this machine and may block
// for a moment. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace hvd {

// One line of text without blanks. `socket` is that of the daemon; empty: the usual one. The error
// says what is missing: the library, the daemon.
Result<std::string> seal_with_munge(std::string_view secret, const std::string& socket);
// True for a text that seal_with_munge() has made.
bool is_sealed_with_munge(std::string_view text);
// The secret. An error, too, if somebody else has sealed it: a user who is neither this one nor
// root.
Result<std::string> open_sealed_with_munge(std::string_view text);

}  // namespace hvd
