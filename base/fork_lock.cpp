#include "base/fork_lock.h"

#include <cstddef>
#include <pthread.h>
#include <vector>

namespace hvd {
namespace {

void lock_all();
void unlock_all();

struct All {
  std::mutex mutex;
  std::vector<std::mutex*> members;
};

// Never destroyed: a program may fork while it ends.
All& all() {
  static auto* const only = [] {
    ::pthread_atfork(lock_all, unlock_all, unlock_all);
    return new All;
  }();
  return *only;
}

// A thread that holds one may wait for another, in whatever order: this one waits for none while
// it holds some.
void lock_all() {
  auto& [mutex, members] = all();
  mutex.lock();
  for (std::size_t busy = 0; busy < members.size();) {
    members[busy]->lock();
    std::size_t next = 0;
    while (next < members.size() && (next == busy || members[next]->try_lock())) ++next;
    if (next == members.size()) return;
    for (std::size_t taken = 0; taken < next; ++taken) {
      if (taken != busy) members[taken]->unlock();
    }
    members[busy]->unlock();
    busy = next;
  }
}

void unlock_all() {
  auto& [mutex, members] = all();
  for (auto* const member : members) member->unlock();
  mutex.unlock();
}

}  // namespace

void keep_free_in_children(std::mutex& mutex) {
  auto& [list, members] = all();
  const std::lock_guard lock(list);
  members.push_back(&mutex);
}

}  // namespace hvd
