// The files of --output-filename: DIR/rank.<R>/stdout and stderr, R padded with zeros to the width
// of the highest rank, or, where ranks change, DIR/<host>#<slot>/stdout and stderr, one after the
// other for the workers of a slot; the bytes exactly as the workers wrote them. A thread of its own
// writes them, since a disk may be slow. Up to kLimit bytes release their credit at once; beyond
// that, bytes keep it until they are written, which holds back the workers. If the files take
// nothing for `stall_timeout` in that state, what waits is left out and counted, so that workers do
// not wait for ever.
//
// open(), set_size() and the destructor belong to one thread; write() and drain() are safe from
// any.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/background.h"
#include "base/status.h"
#include "base/threads.h"
#include "cmd/hvdrun/stream_writer.h"

namespace hvd::cli {

// "rank.03" of 11 ranks.
std::string rank_folder(int rank, int size);

struct RankFilesOptions {
  bool goes_on = false;  // behind what the files have, and not in place of it
  std::chrono::milliseconds stall_timeout{10'000};
  // Called once, when a file cannot be written; nothing is written to any file after it.
  std::function<void(const Status& why)> on_failure = {};
  // Called when the files take nothing, once until they take something again, and then with the
  // number of bytes that were left out.
  std::function<void(const std::string& file)> on_stalled = {};
  std::function<void(std::uint64_t left_out)> on_resumed = {};
};

// The callbacks run on any thread, never after the end of the object.
class RankFiles {
 public:
  // Creates the folder, and folders and empty files for ranks 0 to size-1; size 0 means that the
  // ranks are not known. The error names the file.
  static Result<std::unique_ptr<RankFiles>> open(const std::string& directory, int size,
                                                 RankFilesOptions options);
  // For ranks that were not known to open(): creates the files. Must come before the first write().
  // Has no effect if there are files.
  Status set_size(int size);
  ~RankFiles();  // writes all that is queued first, unless the files take nothing
  RankFiles(const RankFiles&) = delete;
  RankFiles& operator=(const RankFiles&) = delete;

  void write(int rank, bool error_stream, std::string bytes, Credit credit);
  // Writes to a worker's folder, which is created by the first write.
  void write(const std::string& folder, bool error_stream, std::string bytes, Credit credit);
  // Blocks until all is written, or writing has failed, or the files take nothing. Returns how many
  // bytes are in no file since those were last known to take something.
  std::uint64_t drain();

 private:
  struct Files;
  RankFiles(std::string directory, RankFilesOptions options);
  Status make_files(int size);
  // With the mutex held.
  void queue(std::size_t file, std::string bytes, Credit credit);
  void watch();

  static constexpr std::size_t kLimit = std::size_t{8} << 20;
  const std::string directory_;
  const std::chrono::milliseconds stall_timeout_;
  std::shared_ptr<Files> files_;                // shared with the thread that writes
  std::map<std::string, std::size_t> folders_;  // of workers: where its stdout is in files_
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  Background writer_;
  ThreadGroup threads_;  // one, which watches the writer
};

}  // namespace hvd::cli
