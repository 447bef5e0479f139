#include "worker/elastic/saved_state.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/descriptors.h"
#include "base/log.h"
#include "base/security/crypto.h"
#include "base/security/trusted_file.h"
#include "base/security/written_file.h"
#include "base/text.h"
#include "base/wire.h"
#include "runtime/core/threads.h"

namespace hvd::worker {
namespace {

constexpr std::string_view kMagic = "hvdstate";
constexpr std::uint32_t kVersion = 2;
// Magic, version, shape, number in the ledger, number of parts.
constexpr std::size_t kFixedHead = 8 + 4 + 8 + 8 + 8;
constexpr std::size_t kNumber = 8;  // bytes of a size, and of the checksum

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// All that stands before the checksum.
std::string head_of(const StateToSave& state) {
  WireWriter rest;
  rest.u32(kVersion).u64(state.shape).u64(state.step).u64(state.copy.sizes.size());
  for (const auto size : state.copy.sizes) rest.u64(size);
  return std::string(kMagic) + rest.take();
}

std::uint64_t checksum_of_file(std::string_view head, std::span<const std::byte> bytes) {
  Checksum checksum;
  checksum.add(bytes_of(head));
  checksum.add(bytes);
  return checksum.value();
}

Status write_bytes(int fd, std::span<const std::byte> bytes) {
  if (write_all(fd, {reinterpret_cast<const char*>(bytes.data()), bytes.size()})) return {};
  return Status::from_errno("write", errno);
}

Status read_all(int fd, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = ::read(fd, bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status::from_errno("read", errno);
    if (got == 0) return {Code::data_loss, "it is cut off"};
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
  return {};
}

Status read_text(int fd, std::size_t size, std::string& text) {
  text.resize(size);
  return read_all(fd, std::as_writable_bytes(std::span(text.data(), text.size())));
}

// Where a state file is: its directory stays the same one, whatever its path leads to later.
struct StatePlace {
  UniqueFd directory;  // opened with O_PATH
  std::string name;
};

Result<StatePlace> place_of(const std::string& file) {
  const std::filesystem::path path(file);
  const auto folder = path.parent_path().string();
  auto directory = open_directory_to_write(folder.empty() ? "." : folder, "directory");
  HVD_RETURN_IF_ERROR(directory.status());
  return StatePlace{std::move(*directory), path.filename().string()};
}

// The name counts only when the directory has it on disk.
Status sync_directory(const StatePlace& place, const std::string& file) {
  const UniqueFd fd(::openat(place.directory.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd && ::fsync(fd.get()) == 0) return {};
  return Status::from_errno(cat("sync the directory of ", file), errno);
}

// What the state is written with.
struct Writing {
  std::string_view head;
  std::span<const std::byte> bytes;
  SaveMeter& meter;
  const std::atomic<bool>& is_given_up;
};

Status check_not_given_up(const Writing& writing) {
  if (!writing.is_given_up) return {};
  return {Code::aborted, "it was given up"};
}

// Piece by piece, each of which is on the disk before the one after the next is written: so the
// meter moves as the disk does, and little is left for the last sync.
Status write_pieces(int fd, const Writing& writing) {
  constexpr std::size_t kPiece = std::size_t{16} << 20;
  const off_t begin = ::lseek(fd, 0, SEEK_CUR);
  constexpr unsigned kToDisk =
      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  std::size_t done = 0;
  while (done < writing.bytes.size()) {
    HVD_RETURN_IF_ERROR(check_not_given_up(writing));
    const std::size_t size = std::min(kPiece, writing.bytes.size() - done);
    HVD_RETURN_IF_ERROR(write_bytes(fd, writing.bytes.subspan(done, size)));
    // Errors come again with the last sync.
    const off_t at = begin + static_cast<off_t>(done);
    (void)::sync_file_range(fd, at, static_cast<off_t>(size), SYNC_FILE_RANGE_WRITE);
    if (done > 0) (void)::sync_file_range(fd, at - static_cast<off_t>(kPiece), kPiece, kToDisk);
    done += size;
    writing.meter.wrote(size);
  }
  return {};
}

Status write_file(int fd, const Writing& writing) {
  const runtime::WriteSignalShield shield(SIGXFSZ);
  const std::string checksum =
      WireWriter().u64(checksum_of_file(writing.head, writing.bytes)).take();
  HVD_RETURN_IF_ERROR(write_bytes(fd, bytes_of(writing.head)));
  HVD_RETURN_IF_ERROR(write_bytes(fd, bytes_of(checksum)));
  HVD_RETURN_IF_ERROR(write_pieces(fd, writing));
  if (::fsync(fd) != 0) return Status::from_errno("sync", errno);
  return check_not_given_up(writing);
}

// None where the file system lacks O_TMPFILE, or no file can be made.
UniqueFd make_nameless(const StatePlace& place) {
  constexpr int kHow = O_WRONLY | O_TMPFILE | O_CLOEXEC;
  return UniqueFd(::openat(place.directory.get(), ".", kHow, S_IRUSR | S_IWUSR));
}

UniqueFd make_new(const StatePlace& place, const std::string& name) {
  constexpr int kHow = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  return UniqueFd(::openat(place.directory.get(), name.c_str(), kHow, S_IRUSR | S_IWUSR));
}

// The file has no name while it is written, if the file system can do that: then nothing is left of
// it when this process is killed.
Status write_new_file(const StatePlace& place, const std::string& name, const Writing& writing) {
  const UniqueFd nameless = make_nameless(place);
  if (!nameless) {
    const UniqueFd fd = make_new(place, name);
    if (!fd) return Status::from_errno(cat("create ", name), errno);
    return write_file(fd.get(), writing);
  }
  HVD_RETURN_IF_ERROR(write_file(nameless.get(), writing));
  const std::string link = cat("/proc/self/fd/", nameless.get());
  if (::linkat(AT_FDCWD, link.c_str(), place.directory.get(), name.c_str(), AT_SYMLINK_FOLLOW) ==
      0) {
    return {};
  }
  return Status::from_errno(cat("create ", name), errno);
}

// The sizes of the parts, and what the checksum must be.
struct Head {
  std::string text;
  std::uint64_t step = 0;
  std::vector<std::uint64_t> sizes;
  std::uint64_t total = 0;
  std::uint64_t checksum = 0;
};

Status read_head(int fd, std::uint64_t file_size, const Store& store, Head& head) {
  HVD_RETURN_IF_ERROR(read_text(fd, kFixedHead, head.text));
  if (!head.text.starts_with(kMagic)) return {Code::data_loss, "it is not the state of a job"};
  WireReader fixed(std::string_view(head.text).substr(kMagic.size()));
  const auto version = fixed.u32();
  if (version != kVersion) {
    return {Code::failed_precondition,
            cat("it is of version ", version, "; this hvd reads version ", kVersion)};
  }
  const auto shape = fixed.u64();
  head.step = fixed.u64();
  const auto parts = fixed.u64();
  if (shape != store.shape() || parts != store.parts()) {
    return {Code::invalid_argument,
            "it holds the state of another program, or of another version of this one: what is "
            "added to the state, the names and their order have to be the same; to begin from the "
            "beginning, remove the file"};
  }

  std::string rest;
  HVD_RETURN_IF_ERROR(read_text(fd, (parts + 1) * kNumber, rest));
  head.text += rest.substr(0, parts * kNumber);
  WireReader numbers(rest);
  for (std::uint64_t i = 0; i < parts; ++i) {
    head.sizes.push_back(numbers.u64());
    if (head.sizes.back() > file_size - head.total) return {Code::data_loss, "it is cut off"};
    head.total += head.sizes.back();
  }
  head.checksum = numbers.u64();
  if (head.text.size() + kNumber + head.total != file_size) {
    return {Code::data_loss, "its size is not the one that it names"};
  }
  return {};
}

Status read_checked(int fd, Store& store, Head& head) {
  struct stat about {};
  if (::fstat(fd, &about) != 0) return Status::from_errno("look at it", errno);
  HVD_RETURN_IF_ERROR(read_head(fd, static_cast<std::uint64_t>(about.st_size), store, head));
  Copy& copy = store.to_receive();
  copy.sizes = head.sizes;
  copy.bytes.resize(head.total);
  HVD_RETURN_IF_ERROR(read_all(fd, copy.bytes.bytes()));
  if (checksum_of_file(head.text, copy.bytes.bytes()) != head.checksum) {
    return {Code::data_loss, "its checksum is wrong"};
  }
  return {};
}

// The name of the new file that is to take the place of the old one.
std::string name_beside(const StatePlace& place) {
  return cat(place.name, ".", to_hex(random_bytes(4)));
}

// Whether a file can be made beside it. Nothing is left, also if this process is killed, unless the
// file system lacks O_TMPFILE.
Status check_place(const std::string& file) {
  const std::string what = cat("keep the state in ", file);
  const auto place = place_of(file);
  if (!place.ok()) return {Code::failed_precondition, cat(what, ": ", place.status().message())};
  if (make_nameless(*place)) return {};
  const std::string beside = name_beside(*place);
  if (!make_new(*place, beside)) {
    const Status why = Status::from_errno(cat("create ", beside), errno);
    return {Code::failed_precondition, cat(what, ": ", why.message())};
  }
  ::unlinkat(place->directory.get(), beside.c_str(), 0);
  return {};
}

// The name that the state is to have may have been taken meanwhile, by a file of somebody else's
// that cannot be replaced. The state, which is whole, then stays under the name that it has.
Status put_in_place(const StatePlace& place, const std::string& beside) {
  const int directory = place.directory.get();
  if (::renameat(directory, beside.c_str(), directory, place.name.c_str()) == 0) return {};
  const Status why = Status::from_errno(cat("rename ", beside), errno);
  return {why.code(), cat(why.message(), "; the whole state is in ", beside,
                          ", in the same directory: move it to its name, or name it by "
                          "--state-file")};
}

}  // namespace

Status save_copy(const std::string& file, const StateToSave& state, SaveMeter& meter,
                 const std::atomic<bool>& is_given_up) {
  const std::string what = cat("keep the state in ", file);
  const auto place = place_of(file);
  if (!place.ok()) return place.status().with_context(what);
  const auto bytes = state.copy.bytes.bytes();
  meter.begin(std::max<std::uint64_t>(1, bytes.size()));
  const std::string head = head_of(state);
  const std::string beside = name_beside(*place);
  const Status written = write_new_file(*place, beside, {head, bytes, meter, is_given_up});
  if (!written.ok()) {
    ::unlinkat(place->directory.get(), beside.c_str(), 0);
    return written.with_context(what);
  }
  HVD_RETURN_IF_ERROR(put_in_place(*place, beside).with_context(what));
  meter.put_in_place();
  return sync_directory(*place, file);
}

Status save_state(const std::string& file, Store& store, std::uint64_t step, SaveMeter& meter,
                  const std::atomic<bool>& is_given_up) {
  if (!store.device().empty()) {
    return {Code::failed_precondition,
            cat("keep the state in ", file, ": tensors of a GPU cannot be kept in a file")};
  }
  Status saved = save_copy(file, {store.shape(), step, store.to_send()}, meter, is_given_up);
  store.let_go();
  if (saved.ok() || !meter.read().is_in_place) return saved;
  HVD_LOG(warning, "the state is in "
                       << file << ", but a crash of the machine may lose it: " << saved.message());
  return {};
}

Result<std::uint64_t> read_saved_state(const std::string& file, Store& store) {
  // An obstacle to save_state() is to be known when the job begins.
  if (!store.device().empty()) {
    return Status(Code::failed_precondition,
                  cat("use the state file ", file, ": it cannot hold tensors of a GPU"));
  }
  HVD_RETURN_IF_ERROR(check_place(file));
  // Parts of a program in Python are pickled objects, which could run anything.
  const auto fd = open_trusted_file(file, "state file", FileTrust::configuration);
  if (!fd.ok()) {
    const bool is_missing = fd.status().code() == Code::not_found;
    return is_missing ? fd.status() : fd.status().with_context("read the state");
  }
  Head head;
  HVD_RETURN_IF_ERROR(
      read_checked(fd->get(), store, head).with_context(cat("read the state file ", file)));
  return head.step;
}

Status remove_saved_state(const std::string& file) {
  if (::unlink(file.c_str()) == 0 || errno == ENOENT) return {};
  return Status::from_errno(cat("remove the state file ", file), errno);
}

}  // namespace hvd::worker
