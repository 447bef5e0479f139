#include "worker/process/ledger.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <memory>
#include <string_view>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/knobs.h"
#include "base/security/written_file.h"
#include "base/text.h"
#include "runtime/trace/json_text.h"
#include "worker/process/settings.h"

namespace hvd::worker {
namespace {

constexpr std::string_view kLineBegin = R"({"step":)";

// Of the whole file, between processes; a lock of the open file, so that it ends with it.
class FileLock {
 public:
  explicit FileLock(int fd) : fd_(fd) {
    while (::flock(fd_, LOCK_EX) != 0 && errno == EINTR) continue;
  }
  ~FileLock() { ::flock(fd_, LOCK_UN); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_;
};

// The place behind the last end of a line before `end`; 0 without one; nothing: it cannot be read.
std::optional<off_t> behind_line_end(int fd, off_t end) {
  std::array<char, 4096> part{};
  while (end > 0) {
    const off_t begin = std::max<off_t>(0, end - static_cast<off_t>(part.size()));
    const auto size = static_cast<std::size_t>(end - begin);
    if (::pread(fd, part.data(), size, begin) != static_cast<ssize_t>(size)) return std::nullopt;
    const auto found = std::string_view(part.data(), size).rfind('\n');
    if (found != std::string_view::npos) return begin + static_cast<off_t>(found) + 1;
    end = begin;
  }
  return 0;
}

// The beginning of the line that ends there; 0 at the beginning of the file.
std::optional<off_t> line_begin(int fd, off_t end) {
  return end == 0 ? 0 : behind_line_end(fd, end - 1);
}

// The number at the beginning of a line.
std::optional<std::uint64_t> number_at(int fd, off_t begin) {
  std::array<char, 40> text{};
  const ssize_t size = ::pread(fd, text.data(), text.size(), begin);
  std::string_view line(text.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
  if (!line.starts_with(kLineBegin)) return std::nullopt;
  line.remove_prefix(kLineBegin.size());
  return parse_number<std::uint64_t>(line.substr(0, line.find(',')));
}

}  // namespace

std::string LedgerStep::line() const {
  std::string text = cat(kLineBegin, number, R"(,"digests":{)");
  const char* comma = "";
  for (const auto& [name, digest] : digests) {
    text += comma;
    runtime::trace::append_quoted(text, name);
    text += ':';
    runtime::trace::append_quoted(text, digest);
    comma = ",";
  }
  text += '}';
  if (samples.empty()) return text + "}\n";

  text += R"(,"samples":{)";
  comma = "";
  for (const auto& [shard, of_shard] : samples) {
    text += cat(comma, '"', shard, "\":[");
    comma = "";
    for (const auto sample : of_shard) {
      text += comma;
      text += std::to_string(sample);
      comma = ",";
    }
    text += ']';
    comma = ",";
  }
  return text + "}}\n";
}

Ledger* Ledger::of_process() {
  static const auto ledger = [] {
    const auto file = ledger_file(process_environment());
    const bool is_kept = file.ok() && !file->empty();
    return is_kept ? std::make_unique<Ledger>(*file) : nullptr;
  }();
  return ledger.get();
}

void Ledger::add_samples(const ShardSamples& samples) {
  const std::lock_guard lock(mutex_);
  for (const auto& [shard, added] : samples) {
    auto& all = samples_[shard];
    all.insert(all.end(), added.begin(), added.end());
  }
}

ShardSamples Ledger::take_samples() {
  const std::lock_guard lock(mutex_);
  return std::exchange(samples_, {});
}

Status Ledger::open() {
  if (fd_) return {};
  constexpr int kHow = O_RDWR | O_CREAT | O_APPEND;
  auto fd = open_file_to_write(file_, {.what = "ledger", .flags = kHow});
  HVD_RETURN_IF_ERROR(fd.status());
  fd_ = std::move(*fd);
  return {};
}

Status Ledger::look() {
  struct stat about {};
  if (::fstat(fd_.get(), &about) != 0) return Status::from_errno(cat("look at ", file_), errno);
  if (about.st_size == end_) return {};

  // What stands behind the last end of a line is of a writer that could not write more.
  const auto end = behind_line_end(fd_.get(), about.st_size);
  if (!end) return Status::from_errno(cat("read ", file_), errno);
  const auto begin = line_begin(fd_.get(), *end);
  if (!begin) return Status::from_errno(cat("read ", file_), errno);
  const auto number = about.st_size == 0 ? 0 : number_at(fd_.get(), *begin);
  if (!number) {
    return {Code::data_loss, cat("go on with ", file_, ": its last line is not that of a ledger")};
  }
  if (*end != about.st_size && ::ftruncate(fd_.get(), *end) != 0) {
    return Status::from_errno(cat("shorten ", file_), errno);
  }
  end_ = *end;
  last_ = *end == 0 ? 0 : *number;
  return {};
}

Status Ledger::begin() {
  const std::lock_guard lock(mutex_);
  HVD_RETURN_IF_ERROR(open());
  const FileLock file_lock(fd_.get());
  HVD_RETURN_IF_ERROR(look());  // another file is not lost by a slip of the fingers
  return cut(0, 0);
}

Status Ledger::cut(off_t end, std::uint64_t last) {
  if (::ftruncate(fd_.get(), end) != 0) return Status::from_errno(cat("shorten ", file_), errno);
  end_ = end;
  last_ = last;
  return {};
}

Result<std::uint64_t> Ledger::go_back_to(std::uint64_t step) {
  const std::lock_guard lock(mutex_);
  HVD_RETURN_IF_ERROR(open());
  const FileLock file_lock(fd_.get());
  HVD_RETURN_IF_ERROR(look());
  off_t end = end_;
  std::uint64_t last = last_;
  while (last > step) {
    const auto begin = line_begin(fd_.get(), end);
    if (!begin) return Status::from_errno(cat("read ", file_), errno);
    end = *begin;
    const auto before = line_begin(fd_.get(), end);
    if (!before) return Status::from_errno(cat("read ", file_), errno);
    const auto number = end == 0 ? 0 : number_at(fd_.get(), *before);
    if (!number) {
      return Status(Code::data_loss,
                    cat("go on with ", file_, ": a line in it is not that of a ledger"));
    }
    last = *number;
  }
  if (end != end_) HVD_RETURN_IF_ERROR(cut(end, last));
  return last_;
}

Result<std::uint64_t> Ledger::last_step() {
  const std::lock_guard lock(mutex_);
  HVD_RETURN_IF_ERROR(open());
  const FileLock file_lock(fd_.get());
  HVD_RETURN_IF_ERROR(look());
  return last_;
}

Status Ledger::write(const LedgerStep& step) {
  const std::lock_guard lock(mutex_);
  HVD_RETURN_IF_ERROR(open());
  const FileLock file_lock(fd_.get());
  HVD_RETURN_IF_ERROR(look());
  return last_ >= step.number ? Status() : append(step);
}

Status Ledger::append(const LedgerStep& step) {
  const std::string line = step.line();
  if (!write_all(fd_.get(), line)) {
    Status why = Status::from_errno(cat("write ", file_), errno);
    if (::ftruncate(fd_.get(), end_) == 0) return why;
    return {why.code(), cat(why.message(), "; its last line is cut off")};
  }
  end_ += static_cast<off_t>(line.size());
  last_ = step.number;
  return {};
}

}  // namespace hvd::worker
