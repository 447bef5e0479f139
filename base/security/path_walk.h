// Opens a path from directory to directory, so that another user who may change one of them cannot
// lead a process elsewhere: a link of another user is refused. Nothing is opened by a name that
// was looked at before; every step goes through the descriptor of the step before it. Safe from any
// thread.
#pragma once

#include <string>
#include <string_view>
#include <sys/types.h>

#include "base/descriptors.h"
#include "base/status.h"

namespace hvd {

struct PathWalk {
  std::string_view what;  // names the file in errors: "token file"; empty: its path does
  uid_t user = 0;         // that opens it; its own links are followed, and root's
  int flags = 0;          // of open(2), for the file itself; O_CLOEXEC and O_NOCTTY are added
  mode_t mode = 0;        // of a file that O_CREAT makes
  bool makes_directories = false;  // those that are missing, as mkdir -p
  // Also the directory in which a link lies has to be this user's or root's.
  bool distrusts_directories = false;
};

struct WalkedPath {
  UniqueFd file;
  UniqueFd directory;   // in which the file has its name, opened with O_PATH
  bool is_new = false;  // the walk has made the file
};

// not_found, permission_denied and others: as open(2) failed; failed_precondition: the path leads
// through a link of another user, and the message says through which.
Result<WalkedPath> walk_path(const std::string& path, const PathWalk& options);

}  // namespace hvd
