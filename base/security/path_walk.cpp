#include "base/security/path_walk.h"

#include <array>
#include <cerrno>
#include <climits>
#include <deque>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <utility>

#include "base/text.h"

namespace hvd {
namespace {

constexpr int kMostLinks = 40;   // as the kernel
constexpr int kMostRetries = 8;  // while others make and remove the file
constexpr mode_t kNewDirectory = 0777;

class Walk {
 public:
  Walk(const std::string& path, const PathWalk& options) : path_(path), options_(options) {}

  Result<WalkedPath> run() {
    HVD_RETURN_IF_ERROR(take(path_));
    while (!rest_.empty()) {
      const std::string name = std::move(rest_.front());
      rest_.pop_front();
      const bool is_last = rest_.empty();
      UniqueFd step = look(name, is_last);
      if (!step && errno == ENOENT && is_last && (options_.flags & O_CREAT) != 0) {
        UniqueFd made = open(name, options_.flags | O_EXCL | O_NOFOLLOW);
        if (made) return WalkedPath{std::move(made), std::move(directory_), true};
        if (errno != EEXIST || ++retries_ > kMostRetries) return failed();
        rest_.push_front(name);  // somebody else was quicker
        continue;
      }

      struct stat about {};
      if (!step || ::fstat(step.get(), &about) != 0) return failed();
      const bool is_final = is_last && (options_.flags & (O_EXCL | O_NOFOLLOW)) != 0;
      if (S_ISLNK(about.st_mode) && !is_final) {
        // Links of the kernel: /proc/self, and our own descriptors, which have no path.
        const bool kernels = is_in_proc();
        if (kernels && is_last) return end(name, 0);
        if (kernels) {
          directory_.reset(::openat(directory_.get(), name.c_str(), O_PATH | O_CLOEXEC));
          continue;
        }
        HVD_RETURN_IF_ERROR(follow(step.get(), about, name));
      } else if (is_last) {
        return end(name, O_NOFOLLOW);
      } else {
        directory_ = std::move(step);
      }
    }
    return end(".", 0);
  }

 private:
  std::string shown() const {
    return options_.what.empty() ? path_ : cat(options_.what, " ", path_);
  }

  Status failed() const {
    const int error = errno;
    return Status::from_errno(cat("open ", shown()), error);
  }

  // The file, directory or link of this name. With O_DIRECTORY the kernel mounts a directory that
  // is mounted when it is used.
  UniqueFd look(const std::string& name, bool is_last) const {
    constexpr int kLook = O_PATH | O_NOFOLLOW | O_CLOEXEC;
    if (!is_last) {
      UniqueFd directory(::openat(directory_.get(), name.c_str(), kLook | O_DIRECTORY));
      if (directory) return directory;
      if (errno == ENOENT && options_.makes_directories) {
        if (::mkdirat(directory_.get(), name.c_str(), kNewDirectory) != 0 && errno != EEXIST) {
          return {};
        }
        directory.reset(::openat(directory_.get(), name.c_str(), kLook | O_DIRECTORY));
        if (directory) return directory;
      }
      if (errno == ENOENT) return {};
    }
    return UniqueFd(::openat(directory_.get(), name.c_str(), kLook));
  }

  UniqueFd open(const std::string& name, int flags) const {
    return UniqueFd(
        ::openat(directory_.get(), name.c_str(), flags | O_CLOEXEC | O_NOCTTY, options_.mode));
  }

  // O_CREAT stays out unless the file has to be new: a file that vanished in between may be made
  // again only by a walk that has found it missing.
  Result<WalkedPath> end(const std::string& name, int flags) {
    const bool has_to_be_new = (options_.flags & O_EXCL) != 0;
    const int create = has_to_be_new ? 0 : O_CREAT;
    UniqueFd file = open(name, (options_.flags & ~create) | flags);
    if (!file) return failed();
    return WalkedPath{std::move(file), std::move(directory_), has_to_be_new};
  }

  // Puts what this path names before what is left.
  Status take(const std::string& path) {
    const bool absolute = path.starts_with('/');
    if (absolute || !directory_) {
      directory_.reset(::open(absolute ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
      if (!directory_) return failed();
    }
    auto names = split(path, '/');
    std::erase(names, std::string());
    rest_.insert(rest_.begin(), names.begin(), names.end());
    return {};
  }

  bool is_in_proc() const {
    struct statfs system {};
    return ::fstatfs(directory_.get(), &system) == 0 && system.f_type == PROC_SUPER_MAGIC;
  }

  bool is_ours(uid_t owner) const { return owner == options_.user || owner == 0; }

  Status follow(int link, const struct stat& about, const std::string& name) {
    if (++links_ > kMostLinks) {
      errno = ELOOP;
      return failed();
    }
    struct stat around {};
    if (::fstat(directory_.get(), &around) != 0) return failed();
    const bool open_to_all = (around.st_mode & (S_IWOTH | S_ISVTX)) == S_IWOTH;
    const bool in_ours = is_ours(around.st_uid) || !options_.distrusts_directories;
    if (!is_ours(about.st_uid) || !in_ours || open_to_all) {
      return {Code::failed_precondition,
              cat(shown(), " is reached through the link \"", name, "\", which ",
                  is_ours(about.st_uid) ? "lies in a directory that others may change"
                                        : cat("belongs to user ", about.st_uid),
                  "; name the file itself")};
    }
    std::array<char, PATH_MAX> target{};
    const ssize_t size = ::readlinkat(link, "", target.data(), target.size());
    if (size < 0) return failed();
    return take({target.data(), static_cast<std::size_t>(size)});
  }

  const std::string& path_;
  const PathWalk& options_;
  UniqueFd directory_;
  std::deque<std::string> rest_;
  int links_ = 0;
  int retries_ = 0;
};

}  // namespace

Result<WalkedPath> walk_path(const std::string& path, const PathWalk& options) {
  return Walk(path, options).run();
}

}  // namespace hvd
