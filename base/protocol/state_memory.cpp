#include "base/protocol/state_memory.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <span>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <utility>

#include "base/checksum.h"
#include "base/text.h"
#include "base/wire.h"

namespace hvd {
namespace {

constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kEntryBytes = 4 + 7 * 8;  // the version, six numbers, the checksum
constexpr std::uint64_t kEntryDistance = 1024;  // in the first page
// Far more than any machine has: the regions need not move when a state grows.
constexpr std::uint64_t kRegion = std::uint64_t{1} << 44;
constexpr std::uint64_t kSizesInRegion = kRegion / 2;
constexpr std::uint64_t kMostParts = std::uint64_t{1} << 32;

// It becomes no smaller, so that no page goes that a worker uses; and nothing else has just these.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_SEAL;

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

std::uint64_t checksum_of_entry(std::string_view head, std::span<const std::uint64_t> sizes) {
  Checksum checksum;
  checksum.add(bytes_of(head));
  checksum.add(std::as_bytes(sizes));
  return checksum.value();
}

}  // namespace

Result<StateMemory> StateMemory::make() {
  UniqueFd file(::memfd_create("hvd-state", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file || ::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) {
    return Status::from_errno("make memory for the state", errno);
  }
  return StateMemory(std::move(file));
}

Result<StateMemory> StateMemory::open(UniqueFd file) {
  if (::fcntl(file.get(), F_GET_SEALS) != kSeals) {
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
    if (const auto found = read(entry)) newest = std::max(newest, found->id);
  }
  return newest;
}

std::optional<StateMemory::Entry> StateMemory::read(std::size_t entry) const {
  std::string text(kEntryBytes, '\0');
  if (!read_at(file_.get(), place_of(entry), std::as_writable_bytes(std::span(text)))) return {};
  WireReader in(text);
  if (in.u32() != kVersion) return {};
  Entry found;
  found.id.generation = in.u64();
  found.id.sequence = in.u64();
  found.id.run = in.u64();
  found.shape = in.u64();
  found.step = in.u64();
  const auto parts = in.u64();
  const auto checksum = in.u64();
  if (parts > kMostParts) return {};
  found.sizes.resize(parts);
  const std::span sizes(found.sizes);
  const auto place = region_begin(entry) + kSizesInRegion;
  if (!read_at(file_.get(), place, std::as_writable_bytes(sizes))) return {};
  const std::string_view head(text.data(), kEntryBytes - sizeof(checksum));
  if (checksum_of_entry(head, sizes) != checksum) return {};
  return found;
}

Status StateMemory::write(std::size_t entry, const Entry& what) const {
  const std::span sizes(what.sizes);
  HVD_RETURN_IF_ERROR(
      write_at(file_.get(), region_begin(entry) + kSizesInRegion, std::as_bytes(sizes)));
  WireWriter out;
  out.u32(kVersion).u64(what.id.generation).u64(what.id.sequence).u64(what.id.run);
  out.u64(what.shape).u64(what.step).u64(sizes.size());
  out.u64(checksum_of_entry(out.bytes(), sizes));
  return write_at(file_.get(), place_of(entry), bytes_of(out.bytes()));
}

Status StateMemory::make_void(std::size_t entry) const {
  return write_at(file_.get(), place_of(entry), bytes_of(std::string(kEntryBytes, '\0')));
}

UniqueFd StateMemory::duplicate() const {
  return UniqueFd(::fcntl(file_.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
}

FileRegion StateMemory::region(std::size_t entry) const {
  return {file_.get(), region_begin(entry)};
}

}  // namespace hvd
