#include "cmd/hvdrun/stream_writer.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <stdexcept>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "base/text.h"

namespace hvd::cli {
namespace {

constexpr std::size_t kChunk = 65536;
// To the beginning of the line, and all of it away.
constexpr std::string_view kWipe = "\r\x1b[K";
constexpr std::size_t kUsualWidth = 79;
constexpr std::size_t kSurelyFits = 4096;  // PIPE_BUF: what a pipe takes after poll() said so

}  // namespace

Credit make_credit(std::function<void()> released) {
  if (!released) return {};
  // Only the deleter matters, which runs with the last copy.
  return {static_cast<void*>(nullptr), [released = std::move(released)](void*) { released(); }};
}

StreamWriter::StreamWriter(int fd, StreamWriterOptions options)
    : options_(std::move(options)), fd_(fd), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  const int wake_error = errno;
  struct stat kind {};
  if (::fstat(fd_, &kind) == 0) {
    socket_ = S_ISSOCK(kind.st_mode);
    const bool writable = (::fcntl(fd_, F_GETFL) & O_ACCMODE) != O_RDONLY;
    if (writable && (S_ISFIFO(kind.st_mode) || S_ISCHR(kind.st_mode))) {
      // O_NONBLOCK is a property of the open file, which hvdrun shares with its shell and others,
      // so the file is opened once more. A descriptor that is open only for reading is main()'s
      // substitute for a closed one.
      const std::string path = cat("/proc/self/fd/", fd_);
      own_.reset(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
      small_ = !own_;
    }
  }
  terminal_ = ::isatty(fd_) == 1;
  moved_at_ = Clock::now();
  // Where a filter for system calls refuses eventfd(), nothing else of hvdrun would be woken,
  // either.
  const Status started =
      wake_ ? threads_.start([this] { run(); }) : Status::from_errno("make an eventfd", wake_error);
  if (!started.ok()) {
    throw std::runtime_error(started.with_context(cat("write ", options_.name)).message());
  }
}

StreamWriter::~StreamWriter() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    wake();
  }
  threads_.join();
}

void StreamWriter::wake() const {
  const std::uint64_t one = 1;
  // Full or not, the descriptor is readable after it.
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

void StreamWriter::write(std::string bytes, Credit credit) {
  if (bytes.empty()) return;
  const std::lock_guard lock(mutex_);
  if (failed_ || stopping_) return;
  const bool was_full = full();
  waiting_ += bytes.size();
  if (full()) {
    if (!was_full) full_since_ = Clock::now();
    wake();
  } else {
    credit.reset();
  }
  queue_.push_back({std::move(bytes), std::move(credit)});
  changed_.notify_all();
}

void StreamWriter::set_live_line(std::string text) {
  const std::lock_guard lock(mutex_);
  if (failed_ || stopping_ || text == live_line_) return;
  live_line_ = std::move(text);
  changed_.notify_all();
}

// The queue is empty.
void StreamWriter::draw_live_line() {
  winsize size{};
  const bool is_known = ::ioctl(fd_, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  std::size_t width = is_known ? size.ws_col - 1U : kUsualWidth;
  // No character is cut in two.
  const auto continues = [&] {
    return width > 0 && width < live_line_.size() &&
           (static_cast<unsigned char>(live_line_[width]) & 0xc0U) == 0x80U;
  };
  while (continues()) --width;
  std::string line = cat(kWipe, live_line_.substr(0, width));
  waiting_ += line.size();
  queue_.push_back({std::move(line), {}, Item::Kind::live_line});
  drawn_live_line_ = live_line_;
}

bool StreamWriter::drain(TimePoint deadline) {
  std::unique_lock lock(mutex_);
  const auto empty = [this] {
    return queue_.empty() && (failed_ || dropped_ > 0 || !has_live_line_to_draw());
  };
  if (deadline != kNever) {
    changed_.wait_until(lock, deadline, [&] { return dropped_ > 0 || empty(); });
    return dropped_ == 0 && empty();
  }
  changed_.wait(lock, empty);
  return true;
}

std::uint64_t StreamWriter::unread() {
  const std::lock_guard lock(mutex_);
  return dropped_ + waiting_;
}

void StreamWriter::run() {
  // A job in the background stops when its terminal wants that (stty tostop).
  sigset_t by_terminal;
  sigemptyset(&by_terminal);
  sigaddset(&by_terminal, SIGTTOU);
  ::pthread_sigmask(SIG_UNBLOCK, &by_terminal, nullptr);
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (failed_ || (queue_.empty() && dropped_ == 0 && !has_live_line_to_draw())) {
      changed_.wait(lock);
    } else if (queue_.empty() && dropped_ == 0) {
      draw_live_line();
    } else if ((small_ || blocked_ || dropped_ > 0) && !wait_writable(lock)) {
      continue;
    } else if (dropped_ > 0) {
      resume(lock);
    } else {
      wipe_live_line();
      write_front(lock);
    }
  }
}

// Before other output, unless its first part is out already.
void StreamWriter::wipe_live_line() {
  if (drawn_live_line_.empty() || queue_.front().kind != Item::Kind::output) return;
  drawn_live_line_.clear();
  waiting_ += kWipe.size();
  queue_.push_front({std::string(kWipe), {}, Item::Kind::wipe});
}

void StreamWriter::write_front(std::unique_lock<std::mutex>& lock) {
  const Item& front = queue_.front();  // only this thread removes it
  const char* const bytes = front.bytes.data() + offset_;
  const std::size_t size = std::min(front.bytes.size() - offset_, small_ ? kSurelyFits : kChunk);
  lock.unlock();
  const ssize_t written = write_some(bytes, size);
  const int error = errno;
  lock.lock();
  if (written < 0) {
    if (error == EAGAIN) {
      blocked_ = true;
    } else if (error != EINTR) {
      fail(lock, error);
    }
    return;
  }
  if (written == 0) return;
  moved_at_ = Clock::now();

  const char last = bytes[written - 1];
  if (front.kind == Item::Kind::output) line_open_ = last != '\n' && last != '\r';
  offset_ += static_cast<std::size_t>(written);
  waiting_ -= static_cast<std::size_t>(written);
  if (offset_ < front.bytes.size()) return;

  Item done = std::move(queue_.front());
  queue_.pop_front();
  offset_ = 0;
  if (queue_.empty()) changed_.notify_all();
  lock.unlock();
  done = {};  // releasing the credit runs a callback
  lock.lock();
}

ssize_t StreamWriter::write_some(const char* bytes, std::size_t size) const {
  if (socket_) return ::send(fd_, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
  return ::write(own_ ? own_.get() : fd_, bytes, size);
}

// True when the reader accepts bytes; false when woken, or when the reader has stalled for too long
// and all output was dropped.
bool StreamWriter::wait_writable(std::unique_lock<std::mutex>& lock) {
  TimePoint deadline = kNever;
  if (full()) deadline = std::max(moved_at_, full_since_) + options_.stall_timeout;
  const auto now = Clock::now();
  if (now >= deadline) {
    dropped_ += waiting_;
    take_and_drop_all(lock);
    return false;
  }
  lock.unlock();
  std::array<pollfd, 2> polled{pollfd{own_ ? own_.get() : fd_, POLLOUT, 0},
                               pollfd{wake_.get(), POLLIN, 0}};
  ::poll(polled.data(), polled.size(), milliseconds_until(deadline, now));
  if (polled[1].revents != 0) {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &count, sizeof count);
  }
  lock.lock();
  if (polled[0].revents == 0) return false;
  blocked_ = false;
  return true;
}

void StreamWriter::take_and_drop_all(std::unique_lock<std::mutex>& lock) {
  std::deque<Item> gone = std::exchange(queue_, {});
  offset_ = 0;
  waiting_ = 0;
  changed_.notify_all();
  lock.unlock();
  gone.clear();  // releasing credits runs callbacks
  lock.lock();
}

void StreamWriter::resume(std::unique_lock<std::mutex>& lock) {
  const std::uint64_t bytes = std::exchange(dropped_, 0);
  moved_at_ = Clock::now();
  if (line_open_) {
    queue_.push_front({"\n", {}});
    ++waiting_;
  }
  if (!options_.on_resumed) return;
  lock.unlock();
  options_.on_resumed(bytes);
  lock.lock();
}

void StreamWriter::fail(std::unique_lock<std::mutex>& lock, int error) {
  failed_ = true;
  dropped_ = 0;
  if (options_.on_failure) {
    // The failure is reported before the queue is empty, so that drain() returns after it.
    lock.unlock();
    const bool hung_up = terminal_ && error == EIO;
    options_.on_failure(Status::from_errno("write to " + options_.name, error),
                        error == EPIPE ? WriteFailure::broken_pipe
                        : hung_up      ? WriteFailure::hung_up
                                       : WriteFailure::other);
    lock.lock();
  }
  take_and_drop_all(lock);
}

}  // namespace hvd::cli
