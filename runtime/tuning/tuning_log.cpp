#include "runtime/tuning/tuning_log.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/log.h"
#include "base/security/written_file.h"
#include "base/text.h"

namespace hvd::runtime {
namespace {

// A call that takes longer hangs.
constexpr std::chrono::seconds kPatience{5};
constexpr std::size_t kMaxWaiting = std::size_t{1} << 20;  // some thousand lines

double milliseconds(Duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

}  // namespace

struct TuningLog::File {
  explicit File(std::string name) : path(std::move(name)) {}

  Status open() {
    const auto failed = [this](std::string_view what) {
      return Status(Code::invalid_argument, cat("the autotuner's log (HVD_AUTOTUNE_LOG) ", path,
                                                ": ", what, ": ", std::strerror(errno)));
    };

    constexpr int kHow = O_RDWR | O_CREAT | O_APPEND;
    auto file = open_file_to_write(
        path, {.what = "autotuner's log (HVD_AUTOTUNE_LOG)", .flags = kHow, .mode = 0666});
    if (!file.ok()) return {Code::invalid_argument, file.status().message()};
    std::string first(kHeader.size() + 1, '\0');
    const auto there = ::pread(file->get(), first.data(), first.size(), 0);
    if (there < 0) return failed("read it");

    const std::string header = cat(kHeader, "\n");
    if (there > 0 && first != header) {
      return {Code::invalid_argument, cat("the autotuner's log (HVD_AUTOTUNE_LOG) ", path,
                                          " is not an autotuner log: its first line differs")};
    }
    if (there == 0 && !write_all(file->get(), header)) return failed("write to it");
    fd = std::move(*file);
    return {};
  }

  void write(std::string_view line) {
    if (!fd) return;
    if (write_all(fd.get(), line)) {
      ++lines;
      return;
    }
    HVD_LOG(warning, "the autotuner's log "
                         << path << " ends here, the job goes on: " << std::strerror(errno));
    fd.reset();
  }

  const std::string path;
  UniqueFd fd;  // of the thread
  std::atomic<long> lines = 0;
};

TuningLog::TuningLog() = default;

TuningLog::~TuningLog() {
  if (!thread_ || thread_->finish()) return;
  HVD_LOG(warning, "the autotuner's log " << file_->path << " hangs: " << lines_ - file_->lines
                                          << " lines are not in it; the job goes on");
}

Status TuningLog::open(const std::string& path, bool under_way) {
  if (path.empty()) return {};
  file_ = std::make_shared<File>(path);
  thread_ = std::make_unique<Background>(kPatience);
  const auto opened = std::make_shared<Status>();
  Status begun = thread_->add(0, [file = file_, opened, under_way] {
    *opened = file->open();
    if (under_way && !opened->ok()) {
      HVD_LOG(warning, opened->message() << "; the job goes on without it");
    }
  });
  if (under_way) return {};
  if (begun.ok() && !thread_->wait()) {
    begun = Status(Code::deadline_exceeded,
                   cat("open it: its file system has not answered for ", kPatience.count(), " s"));
  }
  HVD_RETURN_IF_ERROR(begun.with_context(cat("the autotuner's log (HVD_AUTOTUNE_LOG) ", path)));
  return *opened;
}

void TuningLog::write(long number, const Sample& sample, const Autotuner::Step& step) {
  if (!file_) return;
  const Parameters& p = step.measured;
  char numbers[256];
  std::snprintf(numbers, sizeof numbers, ",%ld,%zu,%.3f,%d,%d,%d,%d,%zu,%.6f,%.3f,", number,
                p.fusion_threshold, milliseconds(p.cycle_time), p.cache ? 1 : 0,
                p.hierarchical_allreduce ? 1 : 0, p.hierarchical_allgather ? 1 : 0, sample.steps,
                sample.bytes, sample.seconds(),
                sample.bytes == 0 ? 0 : sample.bytes_per_second() / 1e6);
  // The decision is quoted because it may contain commas.
  std::string line =
      cat(utc_text(std::chrono::system_clock::now()), numbers, "\"", step.decision, "\"\n");
  ++lines_;
  if (thread_->waiting() + line.size() > kMaxWaiting) return;
  const std::size_t size = line.size();
  (void)thread_->add(size, [file = file_, line = std::move(line)] { file->write(line); });
  if (has_warned_ || !thread_->hangs(Clock::now())) return;
  has_warned_ = true;
  HVD_LOG(warning, "the autotuner's log " << file_->path << " has taken nothing for "
                                          << kPatience.count() << " s; the job goes on");
}

}  // namespace hvd::runtime
