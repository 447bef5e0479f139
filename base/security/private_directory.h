// Directories of one user that are closed to all others: nobody else can have put a file there.
// Safe from any thread.
#pragma once

#include <string>
#include <string_view>
#include <sys/types.h>

#include "base/status.h"

namespace hvd {

// Whether it is a directory, no link, of the user with this number, with mode 0700 or less.
bool is_private_directory(const std::string& path, uid_t user);

// Makes the directory for this user, if it is missing; its parent must exist. failed_precondition:
// there is something else, or a directory of somebody else or open to others; the message says that
// the environment variable `variable` names another one.
Status make_private_directory(const std::string& path, std::string_view variable);

}  // namespace hvd
