// The autotuner's log: CSV, a header line, then a line for each sample. An existing log is appended
// to, since an elastic job makes new worlds. Owned by rank 0's Tuning; for one thread.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "base/unique_fd.h"
#include "runtime/tuning/autotuner.h"

namespace hvd::runtime {

class TuningLog {
 public:
  static constexpr std::string_view kHeader =
      "time,sample,fusion_threshold_bytes,cycle_time_ms,cache,hierarchical_allreduce,"
      "hierarchical_allgather,steps,bytes,seconds,score_mb_per_s,decision";

  // An empty path: no log. The error names the path.
  Status open(const std::string& path);
  void write(long number, const Sample& sample, const Autotuner::Step& step);

 private:
  std::string path_;
  UniqueFd file_;
};

}  // namespace hvd::runtime
