#include "base/security/written_file.h"

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <unistd.h>
#include <utility>

#include "base/security/path_walk.h"
#include "base/security/random.h"
#include "base/text.h"

namespace hvd {
namespace {

Status refusal(std::string_view what, const std::string& path, std::string_view why) {
  return {Code::failed_precondition, cat(what, " ", path, " ", why)};
}

// A file that was there is checked first, and emptied only then.
Status take_what_was_there(const WalkedPath& walked, const std::string& path,
                           const FileToWrite& options) {
  struct stat about {};
  struct stat around {};
  if (::fstat(walked.file.get(), &about) != 0 || ::fstat(walked.directory.get(), &around) != 0) {
    return Status::from_errno(cat("look at ", options.what, " ", path), errno);
  }
  HVD_RETURN_IF_ERROR(check_file_to_write(about, around, ::geteuid(), path, options.what));
  const bool empties = (options.flags & O_TRUNC) != 0 && S_ISREG(about.st_mode);
  if (!empties || ::ftruncate(walked.file.get(), 0) == 0) return {};
  return Status::from_errno(cat("empty ", options.what, " ", path), errno);
}

Result<WalkedPath> open_walked(const std::string& path, const FileToWrite& options) {
  PathWalk walk;
  walk.what = options.what;
  walk.user = ::geteuid();
  walk.flags = options.flags & ~O_TRUNC;
  walk.mode = options.mode;
  walk.makes_directories = options.makes_directories;
  auto walked = walk_path(path, walk);
  HVD_RETURN_IF_ERROR(walked.status());
  if (!walked->is_new) HVD_RETURN_IF_ERROR(take_what_was_there(*walked, path, options));
  return walked;
}

// The error's number, or 0.
int write_whole(int fd, std::string_view text, bool is_synced) {
  return write_all(fd, text) && (!is_synced || ::fsync(fd) == 0) ? 0 : errno;
}

int give_name(int directory, const std::string& from, const std::string& to, WhenThere when_there) {
  const int failed = when_there == WhenThere::replace
                         ? ::renameat(directory, from.c_str(), directory, to.c_str())
                         : ::linkat(directory, from.c_str(), directory, to.c_str(), 0);
  return failed == 0 ? 0 : errno;
}

}  // namespace

Status check_file_to_write(const struct stat& about, const struct stat& around, uid_t user,
                           const std::string& path, std::string_view what) {
  if (S_ISDIR(about.st_mode)) {
    return {Code::invalid_argument, cat(what, " ", path, " is a directory")};
  }
  if (S_ISCHR(about.st_mode)) return {};  // a terminal, /dev/null
  const bool is_ours = about.st_uid == user || about.st_uid == 0;
  const bool is_its_directory = about.st_uid == around.st_uid;
  const bool is_open_to_all = (around.st_mode & S_IWOTH) != 0;
  if (!is_ours && !is_its_directory && is_open_to_all) {
    return refusal(what, path,
                   cat("belongs to user ", about.st_uid,
                       ", and lies in a directory that everybody may write to: its maker may have "
                       "meant it to be found here; name another one"));
  }
  // A second name of another file, which our permissions would let us destroy.
  const bool may_be_a_trap = is_open_to_all || (around.st_mode & S_IWGRP) != 0;
  if (S_ISREG(about.st_mode) && about.st_nlink > 1 && may_be_a_trap) {
    return refusal(what, path,
                   "has more than one name (hard links), and lies in a directory that others may "
                   "write to: the other names may be those of a file that is to be kept; name "
                   "another one");
  }
  return {};
}

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
  return true;
}

Result<UniqueFd> open_file_to_write(const std::string& path, const FileToWrite& options) {
  auto walked = open_walked(path, options);
  HVD_RETURN_IF_ERROR(walked.status());
  return std::move(walked->file);
}

Result<UniqueFd> open_directory_to_write(const std::string& path, std::string_view what,
                                         WhenMissing when_missing) {
  PathWalk walk;
  walk.what = what;
  walk.user = ::geteuid();
  walk.flags = O_PATH | O_DIRECTORY;
  walk.makes_directories = when_missing == WhenMissing::make;
  // The walk makes the directories before the last name.
  auto walked = walk_path(walk.makes_directories ? cat(path, "/.") : path, walk);
  HVD_RETURN_IF_ERROR(walked.status());
  return std::move(walked->file);
}

Status write_whole_file(const std::string& path, std::string_view text, WhenThere when_there,
                        const FileToWrite& options) {
  const std::string suffix = cat(".", to_hex(random_bytes(4)));
  FileToWrite beside = options;
  beside.flags = O_WRONLY | O_CREAT | O_EXCL | (options.flags & O_NONBLOCK);
  auto walked = open_walked(path + suffix, beside);
  HVD_RETURN_IF_ERROR(walked.status());

  const std::string name = path.substr(path.rfind('/') + 1);
  int error = write_whole(walked->file.get(), text, options.is_synced);
  const bool is_written = error == 0;
  if (is_written) error = give_name(walked->directory.get(), name + suffix, name, when_there);
  if (error != 0 || when_there == WhenThere::keep) {
    ::unlinkat(walked->directory.get(), (name + suffix).c_str(), 0);
  }
  if (error != 0) return Status::from_errno(cat("write ", options.what, " ", path), error);
  return {};
}

}  // namespace hvd
