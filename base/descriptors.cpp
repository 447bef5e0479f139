#include "base/descriptors.h"

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace hvd {
namespace {

constexpr rlim_t kMostTried = 1 << 20;
constexpr int kLookAgainMs = 5;

// As getdents64(2) writes it.
struct DirectoryEntry {
  std::uint64_t inode;
  std::int64_t offset;
  std::uint16_t size;
  std::uint8_t type;
};
constexpr std::size_t kNameAt = 19;  // its name lies behind `type`

// Closes the descriptors that /proc lists as open. No memory is taken: there may be no heap to take
// it from.
bool close_listed(unsigned first, unsigned last) {
  const int list = ::open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (list < 0) return false;
  alignas(DirectoryEntry) std::array<char, 4096> buffer{};

  for (bool closed = true; closed;) {  // until a whole round closes nothing
    closed = false;
    ::lseek(list, 0, SEEK_SET);
    for (;;) {
      const long size = ::syscall(SYS_getdents64, list, buffer.data(), buffer.size());
      if (size <= 0) break;
      for (long at = 0; at < size;) {
        std::uint16_t length = 0;
        std::memcpy(&length, buffer.data() + at + offsetof(DirectoryEntry, size), sizeof(length));

        unsigned number = 0;
        const char* digit = buffer.data() + at + kNameAt;
        const bool is_number = *digit >= '0' && *digit <= '9';
        for (; *digit >= '0' && *digit <= '9'; ++digit) {
          number = number * 10 + static_cast<unsigned>(*digit - '0');
        }

        const bool ours = static_cast<int>(number) == list;
        if (is_number && !ours && number >= first && number <= last) {
          closed = ::close(static_cast<int>(number)) == 0 || closed;
        }
        at += length;
      }
    }
  }
  ::close(list);
  return true;
}

bool close_each(unsigned first, unsigned last) {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return false;
  const auto most =
      static_cast<unsigned>(files.rlim_cur < kMostTried ? files.rlim_cur : kMostTried);
  for (unsigned fd = first; fd <= last && fd < most; ++fd) ::close(static_cast<int>(fd));
  return true;
}

// ESRCH tells of the child; everything else that the call is not to be had.
int open_pidfd(pid_t child) { return static_cast<int>(::syscall(SYS_pidfd_open, child, 0)); }

bool has_ended(pid_t child) {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT | __WALL) != 0) {
    return errno == ECHILD;
  }
  return info.si_pid != 0;
}

}  // namespace

bool close_descriptors(unsigned first, unsigned last) {
  if (first > last) return true;
  return ::syscall(SYS_close_range, first, last, 0U) == 0 || close_listed(first, last) ||
         close_each(first, last);
}

Result<UniqueFd> watch_child(pid_t child) {
  UniqueFd watch(open_pidfd(child));
  if (watch) return watch;
  const bool has_gone = errno == ESRCH;
  if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
    return Status::from_errno("pidfd_open", errno);
  }

  auto pipe = make_pipe();
  HVD_RETURN_IF_ERROR(pipe.status());
  if (has_gone) {
    pipe->write_end.reset();
    return std::move(pipe->read_end);
  }

  try {
    // The thread closes its end of the pipe when the child has ended. It is detached, since it
    // outlives this call and the caller gets no more than a descriptor: there is one for each
    // watched child, it uses nothing but its own captures, and it ends together with the child.
    std::thread([child, end = std::move(pipe->write_end)] {
      siginfo_t info{};
      while (::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT | __WALL) != 0 &&
             errno == EINTR) {
      }
    }).detach();
  } catch (const std::system_error& error) {
    return Status(Code::resource_exhausted,
                  std::string("this kernel has no pidfd_open(), and a thread in its place cannot "
                              "be started: ") +
                      error.what());
  }
  return std::move(pipe->read_end);
}

bool is_ready(int fd, short events) {
  pollfd one{fd, events, 0};
  return ::poll(&one, 1, 0) > 0;
}

bool wait_for_child(pid_t child, TimePoint deadline) {
  const UniqueFd watch(open_pidfd(child));
  for (;;) {
    if (has_ended(child)) return true;
    const TimePoint now = Clock::now();
    if (now >= deadline) return false;
    int pause = milliseconds_until(deadline, now);
    if (!watch && (pause < 0 || pause > kLookAgainMs)) pause = kLookAgainMs;
    pollfd ended{watch.get(), POLLIN, 0};
    ::poll(&ended, watch ? 1 : 0, pause);
  }
}

int UniqueFd::moved_up(int fd) {
  const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  ::close(fd);
  errno = error;
  return moved;
}

Result<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return Status::from_errno("make a pipe", errno);
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

}  // namespace hvd
