// The autotuner's log: CSV, a header line, then a line for each sample. An existing log is appended
// to, since an elastic job makes new worlds. Owned by rank 0's Tuning; for one thread, which never
// waits for the file: another one opens and writes it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/background.h"
#include "base/status.h"
#include "runtime/tuning/autotuner.h"

namespace hvd::runtime {

class TuningLog {
 public:
  static constexpr std::string_view kHeader =
      "time,sample,fusion_threshold_bytes,cycle_time_ms,cache,hierarchical_allreduce,"
      "hierarchical_allgather,steps,bytes,seconds,score_mb_per_s,decision";

  TuningLog();
  ~TuningLog();  // waits for what is still to be written, unless the file hangs
  TuningLog(const TuningLog&) = delete;
  TuningLog& operator=(const TuningLog&) = delete;

  // An empty path: no log. The error names the path; deadline_exceeded: the file hangs.
  // `under_way`: there is no error but a warning, and no waiting, since a log must not end the work
  // of others.
  Status open(const std::string& path, bool under_way = false);
  // An error is a warning, and ends the log.
  void write(long number, const Sample& sample, const Autotuner::Step& step);

 private:
  struct File;

  std::shared_ptr<File> file_;  // shared with the thread; null: there is no log
  long lines_ = 0;              // given to write()
  bool has_warned_ = false;     // that it hangs
  std::unique_ptr<Background> thread_;
};

}  // namespace hvd::runtime
