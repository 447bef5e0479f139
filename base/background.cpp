#include "base/background.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <pthread.h>
#include <utility>

namespace hvd {

struct Background::State {
  struct Item {
    std::size_t bytes = 0;
    std::function<void()> work;
  };

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Item> queue;
  std::size_t bytes = 0;  // of the queue, and of the work in progress
  bool has_thread = false;
  bool is_busy = false;
  TimePoint begun{};  // of the work in progress
  bool is_closed = false;
};

Background::Background(Duration patience)
    : patience_(patience), state_(std::make_shared<State>()) {}

Background::~Background() { (void)finish(); }

Status Background::add(std::size_t bytes, std::function<void()> work) {
  const std::lock_guard lock(state_->mutex);
  if (!state_->has_thread) {
    HVD_RETURN_IF_ERROR(threads_.start([state = state_] { run(*state); }));
    state_->has_thread = true;
  }
  if (state_->is_closed) return {Code::aborted, "the thread for files has ended"};
  state_->bytes += bytes;
  state_->queue.push_back({bytes, std::move(work)});
  state_->changed.notify_all();
  return {};
}

void Background::run(State& state) {
  ::pthread_setname_np(::pthread_self(), "hvd-files");
  std::unique_lock lock(state.mutex);
  for (;;) {
    state.changed.wait(lock, [&] { return state.is_closed || !state.queue.empty(); });
    if (state.queue.empty()) return;
    State::Item item = std::move(state.queue.front());
    state.queue.pop_front();
    state.is_busy = true;
    state.begun = Clock::now();

    lock.unlock();
    item.work();
    item.work = nullptr;
    lock.lock();
    state.is_busy = false;
    state.bytes -= item.bytes;
    state.changed.notify_all();
  }
}

std::size_t Background::waiting() const {
  const std::lock_guard lock(state_->mutex);
  return state_->bytes;
}

Duration Background::held_up(TimePoint now) const {
  const std::lock_guard lock(state_->mutex);
  return state_->is_busy ? now - state_->begun : Duration::zero();
}

bool Background::wait() const {
  std::unique_lock lock(state_->mutex);
  for (;;) {
    if (state_->queue.empty() && !state_->is_busy) return true;
    const TimePoint begun = state_->is_busy ? state_->begun : Clock::now();
    const auto status = state_->changed.wait_until(lock, begun + patience_);
    const bool same = state_->is_busy && state_->begun == begun;
    if (status == std::cv_status::timeout && same && Clock::now() >= begun + patience_) {
      return false;
    }
  }
}

Background::Dropped Background::drop() {
  Dropped dropped;
  const std::lock_guard lock(state_->mutex);
  for (auto& item : std::exchange(state_->queue, {})) {
    dropped.bytes += item.bytes;
    dropped.work.push_back(std::move(item.work));
  }
  state_->bytes -= dropped.bytes;
  state_->changed.notify_all();
  return dropped;
}

bool Background::finish() {
  const bool is_done = wait();
  if (!is_done) (void)drop();
  {
    const std::lock_guard lock(state_->mutex);
    state_->is_closed = true;
    state_->changed.notify_all();
  }
  threads_.join_until(is_done ? kNever : Clock::now());
  return is_done;
}

}  // namespace hvd
