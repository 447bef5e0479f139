#include "runtime/trace/timeline_file.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"

namespace hvd::runtime::trace {
namespace {

constexpr std::string_view kClosing = "\n]\n";

}  // namespace

Result<TimelineFile> TimelineFile::create(const std::string& path, std::string_view first) {
  const auto refuse = [&](int error) {
    return Status::from_errno(cat("write the timeline to ", path), error);
  };
  // Whoever names a pipe shall not wait for its reader.
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666));
  if (!fd) return refuse(errno);
  struct stat about {};
  if (::fstat(fd.get(), &about) != 0) return refuse(errno);
  if (!S_ISREG(about.st_mode)) {
    return Status(Code::invalid_argument,
                  cat("write the timeline to ", path, ": it is not a regular file"));
  }
  if (::ftruncate(fd.get(), 0) != 0) return refuse(errno);
  TimelineFile file(path, std::move(fd));
  HVD_RETURN_IF_ERROR(file.write(cat("[\n", first, kClosing), 0));
  file.end_ = static_cast<std::int64_t>(2 + first.size());
  return file;
}

Status TimelineFile::append(std::string_view elements) {
  std::string text;
  text.reserve(elements.size() + 2 + kClosing.size());
  text.append(",\n").append(elements).append(kClosing);
  Status written = write(text, end_);
  if (written.ok()) {
    end_ += static_cast<std::int64_t>(2 + elements.size());
    return {};
  }
  // What lies there needs no new room.
  if (write(kClosing, end_).ok()) {
    [[maybe_unused]] const auto cut =
        ::ftruncate(fd_.get(), end_ + static_cast<std::int64_t>(kClosing.size()));
  }
  return written;
}

Status TimelineFile::write(std::string_view text, std::int64_t at) {
  while (!text.empty()) {
    const ssize_t put = ::pwrite(fd_.get(), text.data(), text.size(), at);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return Status::from_errno(cat("write the timeline to ", path_), errno);
    text.remove_prefix(static_cast<std::size_t>(put));
    at += put;
  }
  return {};
}

}  // namespace hvd::runtime::trace
