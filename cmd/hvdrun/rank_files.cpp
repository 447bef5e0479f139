#include "cmd/hvdrun/rank_files.h"

#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <system_error>
#include <unistd.h>

#include "base/socket.h"
#include "base/text.h"

namespace hvd::cli {

static Status make_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error) return {};
  return Status::from_errno(cat("--output-filename: make the folder ", folder), error.value());
}

std::string rank_folder(int rank, int size) {
  const std::string number = std::to_string(rank);
  const std::size_t width = std::to_string(size > 1 ? size - 1 : 0).size();
  return cat("rank.", std::string(width - std::min(width, number.size()), '0'), number);
}

Result<std::unique_ptr<RankFiles>> RankFiles::open(const std::string& directory, int size,
                                                   std::function<void(const Status&)> on_failure) {
  std::unique_ptr<RankFiles> files(new RankFiles(directory, std::move(on_failure)));
  if (size == 0) HVD_RETURN_IF_ERROR(make_folder(directory));
  HVD_RETURN_IF_ERROR(files->make_files(size));
  const Status started = files->threads_.start([&self = *files] { self.run(); });
  HVD_RETURN_IF_ERROR(started.with_context("--output-filename: write the files"));
  return files;
}

void RankFiles::set_size(int size) {
  Status status;
  {
    const std::lock_guard lock(mutex_);
    if (!files_.empty()) return;
    status = make_files(size);
    failed_ = !status.ok();
  }
  if (!status.ok() && on_failure_) on_failure_(status);
}

Status RankFiles::make_files(int size) {
  for (int rank = 0; rank < size; ++rank) {
    const std::string folder = cat(directory_, "/", rank_folder(rank, size));
    for (const char* const name : {"stdout", "stderr"}) {
      File file{cat(folder, "/", name), {}};
      HVD_RETURN_IF_ERROR(open_file(file));
      files_.push_back(std::move(file));
    }
  }
  return {};
}

// With its folder.
Status RankFiles::open_file(File& file) {
  HVD_RETURN_IF_ERROR(make_folder(std::filesystem::path(file.path).parent_path()));
  // O_NONBLOCK: opening a named pipe must not block until it has a reader.
  file.fd.reset(::open(file.path.c_str(),
                       O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666));
  if (!file.fd) return Status::from_errno(cat("--output-filename: open ", file.path), errno);
  // Writing may block: that is what the writing thread is for.
  return set_nonblocking(file.fd.get(), false);
}

RankFiles::RankFiles(std::string directory, std::function<void(const Status&)> on_failure)
    : directory_(std::move(directory)), on_failure_(std::move(on_failure)) {}

RankFiles::~RankFiles() {
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
  const auto [found, is_new] = folders_.emplace(folder, files_.size());
  if (is_new) {
    for (const char* const name : {"stdout", "stderr"}) {
      files_.push_back({cat(directory_, "/", folder, "/", name), {}});
    }
  }
  queue(found->second + (error_stream ? 1 : 0), std::move(bytes), std::move(credit));
}

void RankFiles::queue(std::size_t file, std::string bytes, Credit credit) {
  if (failed_ || bytes.empty() || file >= files_.size()) return;
  waiting_ += bytes.size();
  if (waiting_ <= kLimit) credit.reset();
  queue_.push_back({file, std::move(bytes), std::move(credit)});
  changed_.notify_all();
}

void RankFiles::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return queue_.empty(); });
}

void RankFiles::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const Item& front = queue_.front();  // only this thread removes it
    File& file = files_[front.file];     // and opens it
    lock.unlock();
    const Status status = write_all(file, front.bytes);
    // The failure is reported before the queue is empty, so that drain() returns after it.
    if (!status.ok() && on_failure_) on_failure_(status);
    lock.lock();

    std::deque<Item> done;
    if (status.ok()) {
      waiting_ -= front.bytes.size();
      done.push_back(std::move(queue_.front()));
      queue_.pop_front();
    } else {
      failed_ = true;
      waiting_ = 0;
      done.swap(queue_);
    }
    lock.unlock();
    done.clear();  // releasing credits runs callbacks
    lock.lock();
    changed_.notify_all();
  }
}

Status RankFiles::write_all(File& file, const std::string& bytes) {
  if (!file.fd) HVD_RETURN_IF_ERROR(open_file(file));
  std::size_t offset = 0;
  while (offset < bytes.size()) {
    const ssize_t written = ::write(file.fd.get(), bytes.data() + offset, bytes.size() - offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Status::from_errno("write " + file.path, errno);
    offset += static_cast<std::size_t>(written);
  }
  return {};
}

}  // namespace hvd::cli
