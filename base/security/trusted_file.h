// Opens files on whose content it depends who is let in, or what is run: tokens, keys, lists of
// known hosts, configurations that name commands. Somebody else's file is refused, and so is a link
// that somebody else has made: on a shared machine both may have been put there for us to find.
//
// A link is followed if it belongs to this user or to root, and so does the directory in which it
// lies, which must not be open to everybody unless it is sticky. That is how Kubernetes lays out a
// mounted Secret (token -> ..data/token, ..data -> ..2026_01_01). Safe from any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <vector>

#include "base/descriptors.h"
#include "base/status.h"

namespace hvd {

// The access to the file that others may have. The file's owner is this user or root in any case.
enum class FileTrust {
  // Nobody else may read it. Root may share its own file with a group of ours, for reading: this is
  // what `fsGroup` makes of a Secret.
  secret,
  // As ssh asks of private keys: nobody else may read one of this user's; root's may be readable.
  private_key,
  // Others may read it, only its group may write it.
  known_hosts,
  // Others may read it, nobody else may write it. Its group may if it has no other member: with
  // umask 002, files of a user who has a group of their own are like that. Debian's ssh allows it.
  configuration,
};

enum class FileKind {
  regular,
  regular_or_null,  // also /dev/null, which stands for an empty file
  any,              // also a pipe or a device, of which nothing but its owner is looked at
};

// Opens `path` for reading. `what` names it in errors: "token file". not_found: there is no such
// file; failed_precondition: it is not to be trusted, and the message says why and what to do.
Result<UniqueFd> open_trusted_file(const std::string& path, std::string_view what, FileTrust trust,
                                   FileKind kind = FileKind::regular);

// The same of a descriptor that is open already.
Status check_trusted_file(int fd, const std::string& path, std::string_view what, FileTrust trust,
                          FileKind kind = FileKind::regular);

// The rule itself, for a process of this user and these groups. Pure.
struct FileUser {
  uid_t uid = 0;
  std::vector<gid_t> groups;
  std::optional<gid_t> own_group;  // has no other member
};
Status check_trusted_file(const struct stat& about, const FileUser& user, const std::string& path,
                          std::string_view what, FileTrust trust, FileKind kind);

}  // namespace hvd
