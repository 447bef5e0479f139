#include "base/machine/life_lock.h"

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <fcntl.h>
#include <new>
#include <pthread.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include "base/text.h"

namespace hvd {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Whether the kernel will give up the locks of this thread. It knows of none where a filter for
// system calls has refused what the C library asks at the beginning of each thread.
bool gives_up_locks() {
  void* list = nullptr;
  std::size_t size = 0;
  return ::syscall(SYS_get_robust_list, 0, &list, &size) == 0 && list != nullptr;
}

}  // namespace

struct LifeLock::Shared {
  sem_t taken;
  pthread_mutex_t lock;
  std::atomic<bool> stopped;
};

LifeLock::LifeLock(UniqueFd descriptor, Shared* shared)
    : descriptor_(std::move(descriptor)), shared_(shared) {}

LifeLock::LifeLock(LifeLock&& other) noexcept
    : descriptor_(std::move(other.descriptor_)), shared_(std::exchange(other.shared_, nullptr)) {}

LifeLock::~LifeLock() {
  if (shared_ != nullptr) ::munmap(shared_, sizeof(Shared));
}

Result<LifeLock> LifeLock::open(int descriptor) {
  // No file but memory of make() has these seals, so nothing else is ever written to.
  struct stat info {};
  const int seals = ::fcntl(descriptor, F_GET_SEALS);  // the system may have added some
  if (seals < 0 || (seals & kSeals) != kSeals || ::fstat(descriptor, &info) != 0 ||
      info.st_size != static_cast<off_t>(sizeof(Shared))) {
    return Status(Code::invalid_argument, cat("descriptor ", descriptor, " is not a life lock"));
  }
  UniqueFd own(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (!own) return Status::from_errno("open a life lock", errno);
  void* const memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, own.get(), 0);
  if (memory == MAP_FAILED) return Status::from_errno("map a life lock", errno);
  return LifeLock(std::move(own), static_cast<Shared*>(memory));
}

Result<LifeLock> LifeLock::make() {
  constexpr unsigned kNotExecutable = 0x8;  // MFD_NOEXEC_SEAL, from Linux 6.3 on
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  UniqueFd made(::memfd_create("worker-life-lock", kFlags | kNotExecutable));
  if (!made && errno == EINVAL) made = UniqueFd(::memfd_create("worker-life-lock", kFlags));
  if (!made || ::ftruncate(made.get(), sizeof(Shared)) != 0 ||
      ::fcntl(made.get(), F_ADD_SEALS, kSeals) != 0) {
    return Status::from_errno("make a life lock", errno);
  }
  auto opened = open(made.get());
  HVD_RETURN_IF_ERROR(opened.status());
  auto* const shared = new (opened->shared_) Shared{};
  pthread_mutexattr_t attributes;
  ::pthread_mutexattr_init(&attributes);
  int error = ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  if (error == 0) error = ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  // Without robust locks in the kernel nobody would hear of a death.
  if (error == 0) error = ::pthread_mutex_init(&shared->lock, &attributes);
  ::pthread_mutexattr_destroy(&attributes);
  if (error == 0 && ::sem_init(&shared->taken, 1, 0) != 0) error = errno;
  if (error != 0) return Status::from_errno("make a life lock", error);
  return opened;
}

UniqueFd LifeLock::duplicate() const {
  return UniqueFd(::fcntl(descriptor_.get(), F_DUPFD_CLOEXEC, 0));
}

void LifeLock::lock() {
  const int error = ::pthread_mutex_lock(&shared_->lock);
  if (error == EOWNERDEAD) ::pthread_mutex_consistent(&shared_->lock);
}

void LifeLock::hold() {
  if (!gives_up_locks()) return;
  lock();
  ::sem_post(&shared_->taken);
}

bool LifeLock::wait_for_end() {
  while (::sem_wait(&shared_->taken) != 0 && errno == EINTR) {
  }
  if (shared_->stopped) return false;
  lock();
  ::pthread_mutex_unlock(&shared_->lock);
  return !shared_->stopped;
}

void LifeLock::stop() {
  shared_->stopped = true;
  ::sem_post(&shared_->taken);
}

}  // namespace hvd
