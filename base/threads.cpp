#include "base/threads.h"

#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <iterator>
#include <list>
#include <mutex>
#include <pthread.h>
#include <utility>
#include <vector>

#include "base/log.h"

namespace hvd {
namespace {

// Enough for the resolver's modules and for an SSH key exchange, which are the deepest calls made.
[[maybe_unused]] constexpr std::size_t kStackSize = std::size_t{512} << 10;

struct Member {
  pthread_t thread{};
  bool ended = false;      // its work has; joining it takes no time any more
  bool abandoned = false;  // it was left behind, and counts no more
};

}  // namespace

struct ThreadGroup::State {
  struct Start {
    std::shared_ptr<State> state;
    std::list<Member>::iterator member;
    std::function<void()> work;
  };

  static void* run(void* argument) {
    const std::unique_ptr<Start> start(static_cast<Start*>(argument));
    start->work();
    start->work = nullptr;
    start->state->end(start->member);
    return nullptr;
  }

  void end(std::list<Member>::iterator member) {
    const std::lock_guard lock(mutex);
    if (member->abandoned) return;
    member->ended = true;
    --running;
    changed.notify_all();
  }

  // Takes the threads whose work has ended out of the list, to be joined without the lock.
  std::list<Member> take_ended() {
    std::list<Member> ended;
    for (auto member = members.begin(); member != members.end();) {
      const auto next = std::next(member);
      if (member->ended) ended.splice(ended.end(), members, member);
      member = next;
    }
    return ended;
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::list<Member> members;    // not joined yet
  std::list<Member> abandoned;  // left behind; each looks here when it ends
  std::size_t running = 0;
  bool closed = false;
};

ThreadGroup::ThreadGroup(Stack stack) : state_(std::make_shared<State>()), stack_(stack) {}

ThreadGroup::~ThreadGroup() {
  std::list<Member> ended;
  {
    const std::lock_guard lock(state_->mutex);
    ended = state_->take_ended();
    if (!state_->members.empty()) {
      HVD_LOG(fatal, "a thread group is destroyed while " << state_->members.size()
                                                          << " of its threads run");
      std::abort();
    }
  }
  for (const Member& member : ended) ::pthread_join(member.thread, nullptr);
}

Status ThreadGroup::start(std::function<void()> work) {
  std::list<Member> ended;
  int error = 0;
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->closed) return {Code::aborted, "the thread group is closed"};
    ended = state_->take_ended();

    pthread_attr_t attributes;
    ::pthread_attr_init(&attributes);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    if (stack_ == Stack::small) ::pthread_attr_setstacksize(&attributes, kStackSize);
#endif
    sigset_t every;
    sigfillset(&every);
    sigset_t before;
    ::pthread_sigmask(SIG_SETMASK, &every, &before);

    // The thread cannot end before it has the lock, so that its member is complete by then.
    state_->members.emplace_back();
    const auto member = std::prev(state_->members.end());
    auto start = std::make_unique<State::Start>(State::Start{state_, member, std::move(work)});
    error = ::pthread_create(&member->thread, &attributes, &State::run, start.get());
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    ::pthread_attr_destroy(&attributes);

    if (error == 0) {
      // NOLINTNEXTLINE(bugprone-unused-return-value): the thread owns it now
      start.release();
      ++state_->running;
    } else {
      state_->members.erase(member);
    }
  }
  for (const Member& member : ended) ::pthread_join(member.thread, nullptr);
  return error == 0 ? Status() : Status::from_errno("start a thread", error);
}

std::size_t ThreadGroup::running() const {
  const std::lock_guard lock(state_->mutex);
  return state_->running;
}

void ThreadGroup::close() {
  const std::lock_guard lock(state_->mutex);
  state_->closed = true;
}

void ThreadGroup::join() { join_until(kNever); }

std::size_t ThreadGroup::join_until(TimePoint deadline) {
  std::list<Member> ended;
  std::size_t left = 0;
  {
    std::unique_lock lock(state_->mutex);
    state_->closed = true;
    const auto all_ended = [this] { return state_->running == 0; };
    if (deadline == kNever) {
      state_->changed.wait(lock, all_ended);
    } else {
      state_->changed.wait_until(lock, deadline, all_ended);
    }
    ended = state_->take_ended();

    left = state_->members.size();
    state_->running -= left;
    for (Member& member : state_->members) {
      member.abandoned = true;
      ::pthread_detach(member.thread);
    }
    state_->abandoned.splice(state_->abandoned.end(), state_->members);
  }
  for (const Member& member : ended) ::pthread_join(member.thread, nullptr);
  return left;
}

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
