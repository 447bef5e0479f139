#include "cmd/hvdrun/rank_files.h"

#include <algorithm>
#include <cerrno>
#include <deque>
#include <fcntl.h>
#include <string_view>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "base/descriptors.h"
#include "base/security/written_file.h"
#include "base/socket.h"
#include "base/text.h"

namespace hvd::cli {

std::string rank_folder(int rank, int size) {
  const std::string number = std::to_string(rank);
  const std::size_t width = std::to_string(size > 1 ? size - 1 : 0).size();
  return cat("rank.", std::string(width - std::min(width, number.size()), '0'), number);
}

// What the thread that writes has. Of each file only that thread uses the descriptor, from the
// first write on.
struct RankFiles::Files {
  struct File {
    std::string path;
    UniqueFd fd;
  };

  // With its folder.
  Status open(File& file) const {
    const int where = options.goes_on ? O_APPEND : O_TRUNC;
    // O_NONBLOCK: opening a named pipe must not block until it has a reader.
    auto fd = open_file_to_write(file.path, {.what = "output file",
                                             .flags = O_WRONLY | O_CREAT | where | O_NONBLOCK,
                                             .mode = 0666,
                                             .makes_directories = true});
    if (!fd.ok()) return fd.status().with_context("--output-filename");
    file.fd = std::move(*fd);
    // Writing may block: that is what the writing thread is for.
    return set_nonblocking(file.fd.get(), false);
  }

  Status write_all(File& file, std::string_view bytes) const {
    if (!file.fd) HVD_RETURN_IF_ERROR(open(file));
    if (hvd::write_all(file.fd.get(), bytes)) return {};
    return Status::from_errno("write " + file.path, errno);
  }

  void write(File& file, std::string_view bytes) {
    {
      const std::lock_guard lock(mutex);
      if (failed) return;
      in_progress = file.path;
    }
    const Status written = write_all(file, bytes);
    const std::lock_guard lock(mutex);
    const auto resumed = std::exchange(left_out, 0);
    is_stalled = false;
    if (resumed > 0 && options.on_resumed) options.on_resumed(resumed);
    if (written.ok()) return;
    failed = true;
    if (options.on_failure) options.on_failure(written);
  }

  // stdout of rank 0, stderr of rank 0, stdout of rank 1, ... They stay where they are.
  std::deque<File> all;

  std::mutex mutex;
  RankFilesOptions options;  // without callbacks from the end of RankFiles on
  std::string in_progress;
  bool failed = false;
  bool is_stalled = false;
  std::uint64_t left_out = 0;  // bytes, while they are stalled
};

Result<std::unique_ptr<RankFiles>> RankFiles::open(const std::string& directory, int size,
                                                   RankFilesOptions options) {
  std::unique_ptr<RankFiles> files(new RankFiles(directory, std::move(options)));
  if (size == 0) {
    const auto folder =
        open_directory_to_write(directory, "--output-filename: folder", WhenMissing::make);
    HVD_RETURN_IF_ERROR(folder.status());
  }
  HVD_RETURN_IF_ERROR(files->make_files(size));
  Status started = files->threads_.start([&self = *files] { self.watch(); });
  // The thread that writes begins now, or never.
  if (started.ok()) started = files->writer_.add(0, [] {});
  HVD_RETURN_IF_ERROR(started.with_context("--output-filename: write the files"));
  return files;
}

Status RankFiles::set_size(int size) {
  const std::lock_guard lock(mutex_);
  return files_->all.empty() ? make_files(size) : Status();
}

Status RankFiles::make_files(int size) {
  for (int rank = 0; rank < size; ++rank) {
    const std::string folder = cat(directory_, "/", rank_folder(rank, size));
    for (const char* const name : {"stdout", "stderr"}) {
      Files::File file{cat(folder, "/", name), {}};
      HVD_RETURN_IF_ERROR(files_->open(file));
      files_->all.push_back(std::move(file));
    }
  }
  return {};
}

RankFiles::RankFiles(std::string directory, RankFilesOptions options)
    : directory_(std::move(directory)),
      stall_timeout_(options.stall_timeout),
      files_(std::make_shared<Files>()),
      writer_(options.stall_timeout) {
  files_->options = std::move(options);
}

RankFiles::~RankFiles() {
  (void)writer_.finish();
  {
    const std::lock_guard lock(files_->mutex);
    files_->options = {};
  }
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  threads_.join();
}

void RankFiles::write(int rank, bool error_stream, std::string bytes, Credit credit) {
  const auto file = static_cast<std::size_t>(rank) * 2 + (error_stream ? 1 : 0);
  const std::lock_guard lock(mutex_);
  queue(file, std::move(bytes), std::move(credit));
}

void RankFiles::write(const std::string& folder, bool error_stream, std::string bytes,
                      Credit credit) {
  const std::lock_guard lock(mutex_);
  const auto [found, is_new] = folders_.emplace(folder, files_->all.size());
  if (is_new) {
    for (const char* const name : {"stdout", "stderr"}) {
      files_->all.push_back({cat(directory_, "/", folder, "/", name), {}});
    }
  }
  queue(found->second + (error_stream ? 1 : 0), std::move(bytes), std::move(credit));
}

void RankFiles::queue(std::size_t file, std::string bytes, Credit credit) {
  if (bytes.empty() || file >= files_->all.size()) return;
  {
    const std::lock_guard lock(files_->mutex);
    if (files_->failed) return;
    if (files_->is_stalled) {
      files_->left_out += bytes.size();
      return;
    }
  }
  const std::size_t size = bytes.size();
  if (writer_.waiting() + size <= kLimit) credit.reset();
  (void)writer_.add(size, [files = files_, &to = files_->all[file], bytes = std::move(bytes),
                           credit = std::move(credit)] { files->write(to, bytes); });
  changed_.notify_all();
}

std::uint64_t RankFiles::drain() {
  const bool is_done = writer_.wait();
  const std::lock_guard lock(files_->mutex);
  return files_->left_out + (is_done ? 0 : writer_.waiting());
}

void RankFiles::watch() {
  constexpr int kLooks = 4;  // in each stall_timeout_
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (writer_.waiting() <= kLimit) {
      changed_.wait(lock);
      continue;
    }
    changed_.wait_for(lock, stall_timeout_ / kLooks);
    if (stopping_ || writer_.waiting() <= kLimit || !writer_.hangs(Clock::now())) continue;
    Background::Dropped dropped;
    {
      // drain() finds each byte in one of the two counts.
      const std::lock_guard files_lock(files_->mutex);
      const bool is_new = !std::exchange(files_->is_stalled, true);
      if (is_new && files_->options.on_stalled) files_->options.on_stalled(files_->in_progress);
      dropped = writer_.drop();
      files_->left_out += dropped.bytes;
    }
    lock.unlock();
    dropped.work.clear();  // releasing credits runs callbacks
    lock.lock();
  }
}

}  // namespace hvd::cli
