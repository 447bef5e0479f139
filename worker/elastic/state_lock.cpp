#include "worker/elastic/state_lock.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/security/written_file.h"
#include "base/text.h"

namespace hvd::worker {
namespace {

// A lock of this process, which a forked child neither has nor ends.
bool lock_whole(int fd) {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  return ::fcntl(fd, F_SETLK, &whole) == 0;
}

// False once a process that had the lock has removed the file.
bool has_name(int fd, const std::string& name) {
  struct stat open {};
  struct stat named {};
  return ::fstat(fd, &open) == 0 && ::stat(name.c_str(), &named) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

std::string content_of(int fd) {
  std::array<char, 64> text{};
  const ssize_t size = ::pread(fd, text.data(), text.size(), 0);
  return size > 0 ? std::string(text.data(), static_cast<std::size_t>(size)) : std::string();
}

Status write_content(int fd, const std::string& text) {
  const auto size = static_cast<ssize_t>(text.size());
  if (::ftruncate(fd, 0) == 0 && ::pwrite(fd, text.data(), text.size(), 0) == size) return {};
  return Status::from_errno("write", errno);
}

}  // namespace

Status StateLock::take() {
  if (fd_ || file_.empty()) return {};
  Status taken;
  for (bool again = true; again;) taken = try_to_take(again);
  if (taken.ok()) return {};
  return {Code::failed_precondition, cat("keep the state in ", file_, ": ", taken.message())};
}

Status StateLock::try_to_take(bool& again) {
  again = false;
  constexpr int kHow = O_RDWR | O_CREAT | O_NOFOLLOW;
  auto fd = open_file_to_write(name(), {.what = "lock", .flags = kHow});
  HVD_RETURN_IF_ERROR(fd.status());
  if (!lock_whole(fd->get())) {
    if (errno == EACCES || errno == EAGAIN) return check_owner(fd->get());
    HVD_LOG(info, Status::from_errno(cat("lock ", name()), errno).message());
  }
  again = !has_name(fd->get(), name());
  if (again) return {};
  HVD_RETURN_IF_ERROR(write_content(fd->get(), job_).with_context(name()));
  fd_ = std::move(*fd);
  return {};
}

Status StateLock::check_owner(int fd) const {
  const std::string owner = content_of(fd);
  if (!job_.empty() && owner == job_) return {};
  return {Code::failed_precondition,
          cat("it is in use by ", owner.empty() ? "another job" : cat("job ", owner))};
}

void StateLock::release() {
  if (!fd_) return;
  ::unlink(name().c_str());
  fd_.reset();
}

}  // namespace hvd::worker
