// Makes and opens every file that hvd writes: output of workers, events, timelines, states, tokens.
// In a directory that others may write to, somebody may have put a link, a pipe or a file of that
// name there for us to find: what we write would destroy a file of ours, or be theirs to read. Such
// a thing is refused, as Linux does it with fs.protected_symlinks, protected_regular,
// protected_fifos and protected_hardlinks in sticky directories, wherever these are off.
//
// Safe from any thread.
#pragma once

#include <fcntl.h>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/descriptors.h"
#include "base/status.h"

namespace hvd {

struct FileToWrite {
  std::string_view what;  // names it in errors: "events file"
  // As open(2) has them. A file is emptied for O_TRUNC once it is known that it may be written.
  // O_EXCL: it has to be new. O_NOFOLLOW: it must not be a link.
  int flags = O_WRONLY | O_CREAT;
  mode_t mode = S_IRUSR | S_IWUSR;  // of a new file, less the umask
  bool makes_directories = false;   // those that are missing
  bool is_synced = false;           // a whole file gets its name when it is on the disk
};

// Opens or makes the file. failed_precondition: it is not to be written, and the message says why;
// others: as open(2) failed.
Result<UniqueFd> open_file_to_write(const std::string& path, const FileToWrite& options);

enum class WhenMissing { fail, make };

// A directory in which files are to be made, for openat(2) and its like: opened with O_PATH. It is
// made if it is missing, and so are those around it, where that is asked for.
Result<UniqueFd> open_directory_to_write(const std::string& path, std::string_view what,
                                         WhenMissing when_missing = WhenMissing::fail);

enum class WhenThere { replace, keep };

// Writes a whole file: others find all of it under its name, or what was there before. `keep`: a
// file that is there stays, and the code is already_exists. Nothing is left of it after an error.
Status write_whole_file(const std::string& path, std::string_view text, WhenThere when_there,
                        const FileToWrite& options);

// False: errno says why not all of them are written.
bool write_all(int fd, std::string_view bytes);

// The rule itself, for a process of this user and a file that was there, in the directory `around`.
// Pure.
Status check_file_to_write(const struct stat& about, const struct stat& around, uid_t user,
                           const std::string& path, std::string_view what);

}  // namespace hvd
