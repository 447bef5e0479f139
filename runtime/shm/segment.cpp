#include "runtime/shm/segment.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "base/text.h"
#include "base/threads.h"

namespace hvd::runtime {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// The segments that this process has mapped, by device and inode.
struct Mapped {
  Mapped() { keep_free_in_children(mutex); }
  std::mutex mutex;
  std::map<std::pair<dev_t, ino_t>, std::weak_ptr<Segment>> segments;
};

Mapped& mapped_here() {
  static auto& mapped = *new Mapped;
  return mapped;
}

[[maybe_unused]] const auto& mapped_is_made = mapped_here();

}  // namespace

std::size_t page_bytes() {
  static const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

std::size_t whole_pages(std::size_t bytes) {
  return (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
}

std::uint64_t most_file_bytes() {
  rlimit files{};
  return ::getrlimit(RLIMIT_FSIZE, &files) == 0 ? files.rlim_cur : RLIM_INFINITY;
}

Result<UniqueFd> Segment::create_file(const char* name, std::size_t bytes) {
  if (bytes > most_file_bytes()) {
    return Status(Code::resource_exhausted, cat("shared memory of ", bytes,
                                                " bytes is beyond the limit of the size of files, ",
                                                most_file_bytes(), " bytes (ulimit -f)"));
  }
  UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return Status::from_errno("memfd_create", errno);
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return Status::from_errno(cat("shared memory of ", bytes, " bytes"), errno);
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, kSizeSeals) != 0) {
    return Status::from_errno("sealing shared memory", errno);
  }
  return fd;
}

Result<std::shared_ptr<Segment>> Segment::create(std::size_t bytes) {
  auto fd = create_file("hvd", bytes);
  HVD_RETURN_IF_ERROR(fd.status());
  return adopt(std::move(*fd), bytes);
}

Result<std::shared_ptr<Segment>> Segment::adopt(UniqueFd fd, std::size_t bytes) {
  const auto size = sealed_size(fd);
  HVD_RETURN_IF_ERROR(size.status());
  if (*size != bytes) {
    return Status(Code::failed_precondition,
                  cat("the shared memory has ", *size, " bytes, not ", bytes));
  }
  return mapped(std::move(fd), bytes, {});
}

Result<std::shared_ptr<Segment>> Segment::adopt_heap(UniqueFd fd, HeapOf whose) {
  const auto size = sealed_size(fd);
  HVD_RETURN_IF_ERROR(size.status());
  const bool own = whose == HeapOf::this_process;
  return mapped(std::move(fd), *size, {.writable = own, .in_children = own});
}

Result<std::size_t> Segment::sealed_size(const UniqueFd& fd) {
  struct stat what {};
  if (::fstat(fd.get(), &what) != 0) return Status::from_errno("fstat of shared memory", errno);
  if (!S_ISREG(what.st_mode)) {
    return Status(Code::failed_precondition,
                  "the descriptor received for shared memory is not a memory file");
  }
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSizeSeals) != kSizeSeals) {
    return Status(Code::failed_precondition, "the size of the shared memory is not sealed");
  }
  return static_cast<std::size_t>(what.st_size);
}

Result<std::shared_ptr<Segment>> Segment::mapped(UniqueFd fd, std::size_t bytes,
                                                 const Mapping& how) {
  struct stat what {};
  if (::fstat(fd.get(), &what) != 0) return Status::from_errno("fstat of shared memory", errno);
  auto& here = mapped_here();
  const std::lock_guard lock(here.mutex);
  std::erase_if(here.segments, [](const auto& entry) { return entry.second.expired(); });
  auto& known = here.segments[{what.st_dev, what.st_ino}];
  if (auto segment = known.lock(); segment && segment->is_mapped()) return segment;
  const std::shared_ptr<Segment> segment(new Segment(std::move(fd), bytes));
  HVD_RETURN_IF_ERROR(segment->map(how));
  known = segment;
  return segment;
}

Status Segment::map(const Mapping& how) {
  void* const memory = ::mmap(nullptr, size_, how.writable ? PROT_READ | PROT_WRITE : PROT_READ,
                              MAP_SHARED | MAP_NORESERVE, fd_.get(), 0);
  if (memory == MAP_FAILED) {
    return Status::from_errno(cat("mapping ", size_, " bytes of shared memory"), errno);
  }
  data_ = static_cast<std::byte*>(memory);
  if (!how.in_children) ::madvise(memory, size_, MADV_DONTFORK);
  ::madvise(memory, size_, MADV_DONTDUMP);
  return {};
}

Segment::~Segment() {
  if (is_mapped()) ::munmap(data_, size_);
}

// In pieces: before Linux 6.9 a signal undoes what is under way, and a program may get one every
// few milliseconds.
Status Segment::reserve(std::size_t offset, std::size_t bytes) const {
  constexpr std::size_t kPiece = std::size_t{8} << 20;
  std::size_t reserved = 0;
  while (reserved < bytes) {
    const std::size_t piece = std::min(kPiece, bytes - reserved);
    if (::fallocate(fd_.get(), 0, static_cast<off_t>(offset + reserved),
                    static_cast<off_t>(piece)) == 0) {
      reserved += piece;
    } else if (errno != EINTR) {
      const Status why = Status::from_errno("fallocate", errno);
      if (reserved > 0) give_back(offset, reserved);
      return {Code::resource_exhausted,
              cat("the machine cannot give ", bytes, " bytes of shared memory: ", why.message())};
    }
  }
  return {};
}

void Segment::give_back(std::size_t offset, std::size_t bytes) const {
  const int punched = ::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                  static_cast<off_t>(offset), static_cast<off_t>(bytes));
  if (punched != 0) std::memset(data_ + offset, 0, bytes);
}

}  // namespace hvd::runtime
