#include "driver/ssh/small_thread.h"

#include <csignal>
#include <memory>
#include <pthread.h>
#include <utility>

namespace hvd::driver::ssh {
namespace {

// Enough for the resolver's modules and for the key exchange, which are the deepest calls made.
constexpr std::size_t kStackSize = std::size_t{512} << 10;

void* run(void* argument) {
  const std::unique_ptr<std::function<void()>> work(static_cast<std::function<void()>*>(argument));
  (*work)();
  return nullptr;
}

}  // namespace

Status start_small_thread(std::function<void()> work) {
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  ::pthread_attr_setstacksize(&attributes, kStackSize);
#endif
  ::pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  sigset_t every;
  sigfillset(&every);
  sigset_t before;
  ::pthread_sigmask(SIG_SETMASK, &every, &before);
  auto owned = std::make_unique<std::function<void()>>(std::move(work));
  pthread_t thread{};
  const int error = ::pthread_create(&thread, &attributes, run, owned.get());
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::pthread_attr_destroy(&attributes);
  if (error != 0) return Status::from_errno("start a thread", error);
  // NOLINTNEXTLINE(bugprone-unused-return-value): the thread owns it now
  owned.release();
  return {};
}

}  // namespace hvd::driver::ssh
