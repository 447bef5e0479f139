#include "base/protocol/state_memory.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <span>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "base/checksum.h"
#include "base/text.h"
#include "base/wire.h"

namespace hvd {
namespace {

constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kHeadBytes = 4 + 8 * 8;   // the version, and eight numbers
constexpr std::uint64_t kEntryDistance = 1024;  // in the first page
// Far more than any machine has: the regions need not move when a state grows.
constexpr std::uint64_t kRegion = std::uint64_t{1} << 44;
constexpr std::uint64_t kSizesInRegion = kRegion / 2;

// It becomes no smaller, so that no page goes that a worker uses; and nothing else has just these.
constexpr int kMemorySeals = F_SEAL_SHRINK | F_SEAL_SEAL;

std::uint64_t place_of(std::size_t entry) { return entry * kEntryDistance; }
std::uint64_t region_begin(std::size_t entry) { return (entry + 1) * kRegion; }

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

Status write_at(int file, std::uint64_t place, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(place));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return Status::from_errno("write to the memory of the agent", errno);
    place += static_cast<std::uint64_t>(wrote);
    bytes = bytes.subspan(static_cast<std::size_t>(wrote));
  }
  return {};
}

bool read_at(int file, std::uint64_t place, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = ::pread(file, bytes.data(), bytes.size(), static_cast<off_t>(place));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    place += static_cast<std::uint64_t>(got);
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
  return true;
}

struct Head {
  CommitId id;
  std::uint64_t shape = 0;
  std::uint64_t step = 0;
  std::uint64_t parts = 0;
  std::uint64_t sizes_checksum = 0;  // of the sizes of the parts, which lie in the region

  std::string encode() const {
    WireWriter out;
    out.u32(kVersion).u64(id.generation).u64(id.sequence).u64(id.run);
    out.u64(shape).u64(step).u64(parts).u64(sizes_checksum);
    out.u64(checksum_of(bytes_of(out.bytes())));
    return out.take();
  }
};

std::optional<Head> read_head(int file, std::size_t entry) {
  std::string text(kHeadBytes, '\0');
  if (!read_at(file, place_of(entry), std::as_writable_bytes(std::span(text)))) return {};
  WireReader in(text);
  if (in.u32() != kVersion) return {};
  Head head;
  head.id.generation = in.u64();
  head.id.sequence = in.u64();
  head.id.run = in.u64();
  head.shape = in.u64();
  head.step = in.u64();
  head.parts = in.u64();
  head.sizes_checksum = in.u64();
  if (head.encode() != text) return {};
  return head;
}

}  // namespace

Result<StateMemory> StateMemory::make() {
  UniqueFd file(::memfd_create("hvd-state", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file || ::fcntl(file.get(), F_ADD_SEALS, kMemorySeals) != 0) {
    return Status::from_errno("make memory for the state", errno);
  }
  return StateMemory(std::move(file));
}

Result<StateMemory> StateMemory::open(UniqueFd file) {
  if (::fcntl(file.get(), F_GET_SEALS) != kMemorySeals) {
    return Status(Code::failed_precondition, "the descriptor is not that of an agent's memory");
  }
  rlimit files{};
  const bool is_limited = ::getrlimit(RLIMIT_FSIZE, &files) == 0 && files.rlim_cur != RLIM_INFINITY;
  if (is_limited && files.rlim_cur < region_begin(kEntries)) {
    return Status(Code::failed_precondition,
                  "the size of files is limited (ulimit -f), also of those in memory");
  }
  return StateMemory(std::move(file));
}

CommitId StateMemory::newest() const {
  CommitId newest;
  for (std::size_t entry = 0; entry < kEntries; ++entry) {
    if (const auto head = read_head(file_.get(), entry)) newest = std::max(newest, head->id);
  }
  return newest;
}

std::optional<StateMemory::Entry> StateMemory::read(std::size_t entry) const {
  const auto head = read_head(file_.get(), entry);
  struct stat about {};
  if (!head || ::fstat(file_.get(), &about) != 0) return {};
  const std::uint64_t place = region_begin(entry) + kSizesInRegion;
  const auto file_size = static_cast<std::uint64_t>(about.st_size);
  if (file_size < place || head->parts > (file_size - place) / sizeof(std::uint64_t)) return {};
  Entry found{head->id, head->shape, head->step, std::vector<std::uint64_t>(head->parts)};
  const auto bytes = std::as_writable_bytes(std::span(found.sizes));
  if (!read_at(file_.get(), place, bytes) || checksum_of(bytes) != head->sizes_checksum) return {};
  return found;
}

Status StateMemory::write(std::size_t entry, const Entry& what) const {
  const auto sizes = std::as_bytes(std::span(what.sizes));
  HVD_RETURN_IF_ERROR(write_at(file_.get(), region_begin(entry) + kSizesInRegion, sizes));
  const Head head{what.id, what.shape, what.step, what.sizes.size(), checksum_of(sizes)};
  return write_at(file_.get(), place_of(entry), bytes_of(head.encode()));
}

Status StateMemory::make_void(std::size_t entry) const {
  return write_at(file_.get(), place_of(entry), bytes_of(std::string(kHeadBytes, '\0')));
}

UniqueFd StateMemory::duplicate() const {
  return UniqueFd(::fcntl(file_.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
}

FileRegion StateMemory::region(std::size_t entry) const {
  return {file_.get(), region_begin(entry)};
}

}  // namespace hvd
