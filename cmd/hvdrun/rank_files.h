// The files of --output-filename: DIR/rank.<R>/stdout and stderr, R padded with zeros to the width
// of the highest rank, or, where ranks change, DIR/<host>#<slot>/stdout and stderr, one after the
// other for the workers of a slot; the bytes exactly as the workers wrote them. A thread of its own
// writes them, since a disk may be slow; what waits is bounded as in stream_writer.h, but nothing
// is ever dropped.
//
// open(), set_size() and the destructor belong to one thread; write() and drain() are safe from
// any.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/thread_group.h"
#include "base/unique_fd.h"
#include "cmd/hvdrun/stream_writer.h"

namespace hvd::cli {

// "rank.03" of 11 ranks.
std::string rank_folder(int rank, int size);

class RankFiles {
 public:
  // Creates the folder, and folders and empty files for ranks 0 to size-1; size 0 means that the
  // ranks are not known. The error names the file. `on_failure` is called once, on the writing
  // thread, when a file cannot be written; nothing is written after it.
  static Result<std::unique_ptr<RankFiles>> open(const std::string& directory, int size,
                                                 std::function<void(const Status&)> on_failure);
  // For ranks that were not known to open(): creates the files. Must come before the first write().
  void set_size(int size);
  ~RankFiles();  // writes all that is queued first
  RankFiles(const RankFiles&) = delete;
  RankFiles& operator=(const RankFiles&) = delete;

  void write(int rank, bool error_stream, std::string bytes, Credit credit);
  // Writes to a worker's folder, which is created by the first write.
  void write(const std::string& folder, bool error_stream, std::string bytes, Credit credit);
  // Blocks until all is written, or writing has failed.
  void drain();

 private:
  struct File {
    std::string path;
    UniqueFd fd;
  };
  struct Item {
    std::size_t file = 0;
    std::string bytes;
    Credit credit;
  };

  RankFiles(std::string directory, std::function<void(const Status&)> on_failure);
  Status make_files(int size);
  // With the mutex held.
  void queue(std::size_t file, std::string bytes, Credit credit);
  void run();
  static Status open_file(File& file);
  static Status write_all(File& file, const std::string& bytes);

  static constexpr std::size_t kLimit = std::size_t{8} << 20;
  const std::string directory_;
  const std::function<void(const Status&)> on_failure_;
  // stdout of rank 0, stderr of rank 0, stdout of rank 1, ... They stay where they are.
  std::deque<File> files_;
  std::map<std::string, std::size_t> folders_;  // of workers: where its stdout is in files_
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queue_;  // the front one may be in writing
  std::size_t waiting_ = 0;
  bool failed_ = false;
  bool stopping_ = false;
  ThreadGroup threads_;  // one
};

}  // namespace hvd::cli
