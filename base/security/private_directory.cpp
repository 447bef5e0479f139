#include "base/security/private_directory.h"

#include <cerrno>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"

namespace hvd {

bool is_private_directory(const std::string& path, uid_t user) {
  struct stat about {};
  return ::lstat(path.c_str(), &about) == 0 && S_ISDIR(about.st_mode) && about.st_uid == user &&
         (about.st_mode & 077) == 0;
}

Status make_private_directory(const std::string& path, std::string_view variable) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return Status::from_errno(cat("make the directory ", path), errno);
  }
  if (is_private_directory(path, ::geteuid())) return {};
  return {Code::failed_precondition,
          cat(path, " is not a directory of this user that is closed to others (mode 0700); ",
              variable, " names another one")};
}

}  // namespace hvd
