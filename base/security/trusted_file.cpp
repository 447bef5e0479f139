#include "base/security/trusted_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <grp.h>
#include <mutex>
#include <pwd.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <utility>

#include "base/security/path_walk.h"
#include "base/text.h"

namespace hvd {
namespace {

constexpr mode_t kOfOthers = S_IRWXG | S_IRWXO;

bool is_ours(uid_t owner, uid_t user) { return owner == user || owner == 0; }

std::string octal(mode_t mode) {
  std::array<char, 8> digits{};
  std::snprintf(digits.data(), digits.size(), "%04o", mode & 07777U);
  return digits.data();
}

bool is_null_device(const struct stat& about) {
  return S_ISCHR(about.st_mode) && about.st_rdev == makedev(1, 3);
}

Status refuse(std::string_view what, const std::string& path, std::string_view why) {
  return {Code::failed_precondition, cat(what, " ", path, " ", why)};
}

// Root's own group is no such group: many daemons have it.
bool is_shared_with(const FileUser& user, const struct stat& about) {
  return about.st_gid != 0 &&
         std::find(user.groups.begin(), user.groups.end(), about.st_gid) != user.groups.end();
}

// Root's file that others may use, for a process that is not root's: a Secret that Kubernetes has
// mounted.
Status check_shared_secret(const struct stat& about, const FileUser& user, const std::string& path,
                           std::string_view what) {
  if ((about.st_mode & kOfOthers) != S_IRGRP) {
    return refuse(what, path,
                  cat("belongs to root and has mode ", octal(about.st_mode),
                      ", but others may use it at most through its group, and only for reading; "
                      "run: chmod 440 ",
                      shell_quote(path), " (in Kubernetes: defaultMode 0400 and fsGroup)"));
  }
  if (!is_shared_with(user, about)) {
    return refuse(
        what, path,
        cat("is readable for group ", about.st_gid, ", to which this process (user ", user.uid,
            ") does not belong; run it with that group (in Kubernetes: fsGroup)"));
  }
  return {};
}

// Refuses a mode that allows more to others than `trust` does.
Status check_mode(const struct stat& about, const FileUser& user, const std::string& path,
                  std::string_view what, FileTrust trust) {
  const auto fix = [&](std::string_view mode) {
    return cat("chmod ", mode, " ", shell_quote(path));
  };
  const mode_t others = about.st_mode & kOfOthers;
  switch (trust) {
    case FileTrust::secret:
      if (others == 0) return {};
      if (about.st_uid == 0 && user.uid != 0) return check_shared_secret(about, user, path, what);
      if (about.st_uid == 0 && others == S_IRGRP && is_shared_with(user, about)) return {};
      return refuse(what, path, cat("can be used by others than its owner; run: ", fix("600")));
    case FileTrust::private_key:
      if (others == 0 || (about.st_uid == 0 && user.uid != 0 && (others & 022) == 0)) return {};
      return refuse(what, path, cat("can be used by others than its owner; run: ", fix("600")));
    case FileTrust::known_hosts:
      if ((others & S_IWOTH) == 0) return {};
      return refuse(what, path, cat("can be written by everybody; run: ", fix("o-w")));
    case FileTrust::configuration:
      if ((others & (user.own_group == about.st_gid ? S_IWOTH : S_IWGRP | S_IWOTH)) == 0) return {};
      return refuse(what, path, cat("can be written by others than its owner; run: ", fix("go-w")));
  }
  return {};
}

bool has_only(const struct group& group, const std::string& name) {
  const char* const* member = group.gr_mem;
  while (*member != nullptr && name == *member) ++member;
  return *member == nullptr;
}

// The user's primary group, if the databases list nobody else in it.
std::optional<gid_t> own_group_of(uid_t uid) {
  std::vector<char> buffer(std::size_t{64} << 10);
  passwd entry{};
  passwd* user = nullptr;
  if (::getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &user) != 0 || user == nullptr) {
    return std::nullopt;
  }
  const std::string name = user->pw_name;
  const gid_t own = user->pw_gid;
  struct group group {};
  struct group* found = nullptr;
  if (::getgrgid_r(own, &group, buffer.data(), buffer.size(), &found) != 0 || found == nullptr ||
      !has_only(*found, name)) {
    return std::nullopt;
  }

  static std::mutex one_at_a_time;  // the enumeration is the process's
  const std::scoped_lock lock(one_at_a_time);
  bool listed = false;  // a database that lists not even this user may keep others to itself, too
  bool others = false;
  int end = 0;
  // NOLINTBEGIN(concurrency-mt-unsafe): nothing else here enumerates users
  ::setpwent();
  while ((end = ::getpwent_r(&entry, buffer.data(), buffer.size(), &user)) == 0) {
    if (user->pw_gid != own) continue;
    (user->pw_uid == uid ? listed : others) = true;
  }
  ::endpwent();
  // NOLINTEND(concurrency-mt-unsafe)
  return end == ENOENT && listed && !others ? std::optional<gid_t>(own) : std::nullopt;
}

FileUser this_user(const struct stat& about, FileTrust trust) {
  FileUser user{::geteuid(), {::getegid()}, {}};
  // The databases may be large, and on another machine.
  const bool asks = trust == FileTrust::configuration && (about.st_mode & S_IWGRP) != 0;
  if (asks) user.own_group = own_group_of(user.uid);
  const int count = ::getgroups(0, nullptr);
  if (count <= 0) return user;
  std::vector<gid_t> more(static_cast<std::size_t>(count));
  if (::getgroups(count, more.data()) > 0) {
    user.groups.insert(user.groups.end(), more.begin(), more.end());
  }
  return user;
}

}  // namespace

Status check_trusted_file(const struct stat& about, const FileUser& user, const std::string& path,
                          std::string_view what, FileTrust trust, FileKind kind) {
  const bool may_be_null = kind == FileKind::regular_or_null && is_null_device(about);
  if (kind != FileKind::any && !S_ISREG(about.st_mode) && !may_be_null) {
    return {Code::invalid_argument, cat(what, " ", path, " is not a regular file")};
  }
  if (!is_ours(about.st_uid, user.uid)) {
    return refuse(what, path,
                  cat("belongs to user ", about.st_uid, ", neither to this user (", user.uid,
                      ") nor to root: its maker may have meant it to be found here"));
  }
  return S_ISREG(about.st_mode) ? check_mode(about, user, path, what, trust) : Status();
}

Status check_trusted_file(int fd, const std::string& path, std::string_view what, FileTrust trust,
                          FileKind kind) {
  struct stat about {};
  if (::fstat(fd, &about) != 0) return Status::from_errno(cat("look at ", what, " ", path), errno);
  return check_trusted_file(about, this_user(about, trust), path, what, trust, kind);
}

Result<UniqueFd> open_trusted_file(const std::string& path, std::string_view what, FileTrust trust,
                                   FileKind kind) {
  PathWalk walk;
  walk.what = what;
  walk.user = ::geteuid();
  walk.flags = O_RDONLY | (kind == FileKind::any ? 0 : O_NONBLOCK);
  walk.distrusts_directories = true;
  auto walked = walk_path(path, walk);
  if (walked.status().code() == Code::permission_denied) {
    // The rule that the file breaks says more than the kernel's refusal.
    struct stat about {};
    if (::stat(path.c_str(), &about) != 0) return walked.status();
    const Status why = check_trusted_file(about, this_user(about, trust), path, what, trust, kind);
    return why.ok() ? walked.status() : Status(Code::permission_denied, why.message());
  }
  HVD_RETURN_IF_ERROR(walked.status());
  HVD_RETURN_IF_ERROR(check_trusted_file(walked->file.get(), path, what, trust, kind));
  return std::move(walked->file);
}

}  // namespace hvd
