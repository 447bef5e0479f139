#include "runtime/tuning/tuning_log.h"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <unistd.h>

#include "base/log.h"
#include "base/text.h"
#include "base/utc_time.h"

namespace hvd::runtime {
namespace {

double milliseconds(Duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const auto written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace

Status TuningLog::open(const std::string& path) {
  if (path.empty()) return {};
  const auto failed = [&path](std::string_view what) {
    return Status(Code::invalid_argument, cat("the autotuner's log (HVD_AUTOTUNE_LOG) ", path, ": ",
                                              what, ": ", std::strerror(errno)));
  };

  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!file) return failed("open it for writing");
  std::string first(kHeader.size() + 1, '\0');
  const auto there = ::pread(file.get(), first.data(), first.size(), 0);
  if (there < 0) return failed("read it");

  const std::string header = cat(kHeader, "\n");
  if (there > 0 && first != header) {
    return {Code::invalid_argument, cat("the autotuner's log (HVD_AUTOTUNE_LOG) ", path,
                                        " is not an autotuner log: its first line differs")};
  }
  if (there == 0 && !write_all(file.get(), header)) return failed("write to it");

  path_ = path;
  file_ = std::move(file);
  return {};
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
  if (write_all(file_.get(), cat(utc_text(std::chrono::system_clock::now()), numbers, "\"",
                                 step.decision, "\"\n")))
    return;
  HVD_LOG(warning, "the autotuner's log " << path_ << " ends here: " << std::strerror(errno));
  file_.reset();
}

}  // namespace hvd::runtime
