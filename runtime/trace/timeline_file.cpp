#include "runtime/trace/timeline_file.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/security/written_file.h"
#include "base/text.h"

namespace hvd::runtime::trace {
namespace {

constexpr std::string_view kClosing = "\n]\n";
constexpr std::string_view kBetween = ",\n";  // between elements; never inside one

// A fatal signal can cut a write short only at the boundary between two pages of the file: so no
// write crosses more than one boundary.
constexpr std::size_t kPage = 4096;

// How many bytes of `elements`, in whole elements, go into one write at offset `at`: as many as end
// within the current page, or else one element.
std::size_t piece_of(std::string_view elements, std::int64_t at) {
  const std::size_t room = kPage - static_cast<std::size_t>(at) % kPage;
  const std::size_t around = kBetween.size() + kClosing.size();
  if (elements.size() + around <= room) return elements.size();
  if (room > around) {
    const auto last = elements.rfind(kBetween, room - around);
    if (last != std::string_view::npos && last > 0) return last;
  }
  return std::min(elements.find(kBetween), elements.size());
}

}  // namespace

Result<TimelineFile> TimelineFile::create(const std::string& path, std::string_view first) {
  const auto refuse = [&](int error) {
    return Status::from_errno(cat("write the timeline to ", path), error);
  };

  // O_NONBLOCK: opening a named pipe must not block until it has a reader.
  constexpr int kHow = O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK;
  auto fd = open_file_to_write(path, {.what = "timeline", .flags = kHow, .mode = 0666});
  HVD_RETURN_IF_ERROR(fd.status());
  struct stat about {};
  if (::fstat(fd->get(), &about) != 0) return refuse(errno);
  if (!S_ISREG(about.st_mode)) {
    return Status(Code::invalid_argument,
                  cat("write the timeline to ", path, ": it is not a regular file"));
  }

  TimelineFile file(path, std::move(*fd));
  HVD_RETURN_IF_ERROR(file.write(cat("[\n", first, kClosing), 0));
  file.end_ = static_cast<std::int64_t>(2 + first.size());
  return file;
}

Status TimelineFile::append(std::string_view elements) {
  const std::int64_t before = end_;
  std::string text;
  while (!elements.empty()) {
    const std::size_t size = piece_of(elements, end_);
    text.assign(kBetween).append(elements.substr(0, size)).append(kClosing);
    Status written = write(text, end_);
    if (!written.ok()) {
      // Overwriting existing bytes needs no disk space, so this works on a full disk.
      end_ = before;
      if (write(kClosing, end_).ok()) {
        [[maybe_unused]] const auto cut =
            ::ftruncate(fd_.get(), end_ + static_cast<std::int64_t>(kClosing.size()));
      }
      return written;
    }
    end_ += static_cast<std::int64_t>(kBetween.size() + size);
    elements.remove_prefix(std::min(size + kBetween.size(), elements.size()));
  }
  return {};
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
