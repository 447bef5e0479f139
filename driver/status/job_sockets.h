// The sockets at which running jobs answer questions (control_server.h), and where they lie:
// HVD_RUNTIME_DIR, else /run/user/UID/hvd if there is such a directory of a login, else
// /tmp/hvd-UID, where a job also is that has outlived the login. Which one it is does not depend on
// the terminal, so that another one finds the same jobs. Only the user and root can look into it.
// Safe from any thread.
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

#include "base/status.h"

namespace hvd::driver {

// The directory of this user; made if it is missing. failed_precondition: it is a link, somebody
// else's, or open to others.
Result<std::string> job_socket_directory();
// The socket of a job with this id, in `directory`.
std::string job_socket_path(const std::string& directory, const std::string& job_id);

struct JobSocket {
  std::string job_id;
  std::string path;
  uid_t owner = 0;  // of the directory, and of the file when it was looked at
};
// The sockets that belong to the owner of the directory: no links, which may lead anywhere. Empty
// for a directory of another user, unless this one is root.
std::vector<JobSocket> job_sockets_in(const std::string& directory);
// The sockets that this user may use: of all users if it is root and HVD_RUNTIME_DIR is not set. By
// id; some may be of jobs that were killed. Directories that cannot be read, or belong to the wrong
// user, are passed over.
std::vector<JobSocket> find_job_sockets();

}  // namespace hvd::driver
