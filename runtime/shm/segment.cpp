#include "runtime/shm/segment.h"

#include <cerrno>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <sys/mman.h>
#include <sys/stat.h>
#include <utility>

#include "base/text.h"

namespace hvd::runtime {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// What this process has mapped, by device and inode.
struct Mapped {
  std::mutex mutex;
  std::map<std::pair<dev_t, ino_t>, std::weak_ptr<Segment>> segments;
};

Mapped& mapped_here() {
  static Mapped mapped;
  return mapped;
}

}  // namespace

Result<std::shared_ptr<Segment>> Segment::create(std::size_t bytes) {
  UniqueFd fd(::memfd_create("hvd", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return Status::from_errno("memfd_create", errno);
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return Status::from_errno(cat("shared memory of ", bytes, " bytes"), errno);
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, kSizeSeals) != 0) {
    return Status::from_errno("sealing shared memory", errno);
  }
  return mapped(std::move(fd), bytes);
}

Result<std::shared_ptr<Segment>> Segment::adopt(UniqueFd fd, std::size_t bytes) {
  struct stat what {};
  if (::fstat(fd.get(), &what) != 0) return Status::from_errno("fstat of shared memory", errno);
  if (!S_ISREG(what.st_mode) || what.st_size != static_cast<off_t>(bytes)) {
    return Status(Code::failed_precondition,
                  cat("the shared memory has ", what.st_size, " bytes, not ", bytes));
  }
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSizeSeals) != kSizeSeals) {
    return Status(Code::failed_precondition, "the size of the shared memory is not sealed");
  }
  return mapped(std::move(fd), bytes);
}

Result<std::shared_ptr<Segment>> Segment::mapped(UniqueFd fd, std::size_t bytes) {
  struct stat what {};
  if (::fstat(fd.get(), &what) != 0) return Status::from_errno("fstat of shared memory", errno);
  auto& here = mapped_here();
  const std::lock_guard lock(here.mutex);
  std::erase_if(here.segments, [](const auto& entry) { return entry.second.expired(); });
  auto& known = here.segments[{what.st_dev, what.st_ino}];
  if (auto segment = known.lock(); segment && segment->is_mapped()) return segment;
  const std::shared_ptr<Segment> segment(new Segment(std::move(fd), bytes));
  HVD_RETURN_IF_ERROR(segment->map());
  known = segment;
  return segment;
}

Status Segment::map() {
  void* const memory =
      ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_.get(), 0);
  if (memory == MAP_FAILED) {
    return Status::from_errno(cat("mapping ", size_, " bytes of shared memory"), errno);
  }
  data_ = static_cast<std::byte*>(memory);
  // What the program forks is no rank: it neither needs this memory nor keeps it alive.
  ::madvise(memory, size_, MADV_DONTFORK);
  return {};
}

Segment::~Segment() {
  if (is_mapped()) ::munmap(data_, size_);
}

Status Segment::reserve(std::size_t offset, std::size_t bytes) const {
  if (bytes == 0) return {};
  for (;;) {
    if (::fallocate(fd_.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0) {
      return {};
    }
    if (errno == EINTR) continue;
    return {Code::resource_exhausted,
            cat("the machine cannot give ", bytes,
                " bytes of shared memory: ", Status::from_errno("fallocate", errno).message())};
  }
}

}  // namespace hvd::runtime
