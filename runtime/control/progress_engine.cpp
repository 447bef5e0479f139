#include "runtime/control/progress_engine.h"

namespace hvd::runtime {
namespace {

constexpr std::chrono::microseconds kPollInterval{500};

}  // namespace

Status ProgressEngine::open() {
  HVD_RETURN_IF_ERROR(thread_poller_.open());
  thread_poller_.watch(poller_.descriptor());
  return {};
}

void ProgressEngine::use_mailbox(std::shared_ptr<ShmMailbox> mailbox) {
  mailbox_ = std::move(mailbox);
  if (!caller_drives_) return;
  mailbox_->start_polling();
  poller_.wake();  // the caller may be asleep
}

std::vector<Poller::Event> ProgressEngine::wait_in_thread(Lock& lock, TimePoint until) {
  thread_until_ = until;
  lock.unlock();
  thread_poller_.wait(until);
  lock.lock();

  std::vector<Poller::Event> events;
  const bool some = poller_.look(events);
  // A caller that began to drive meanwhile may wait for just the events that were taken here.
  if (caller_drives_ && (some || (mailbox_ && mailbox_->has_new()))) poller_.wake();
  return events;
}

void ProgressEngine::begin(Lock& /*lock*/) {
  if (caller_drives_) return;
  caller_drives_ = true;
  thread_poller_.ignore(poller_.descriptor());
  if (mailbox_) mailbox_->start_polling();
}

bool ProgressEngine::poll_briefly(Lock& lock, std::vector<Poller::Event>& events) {
  const auto* const mailbox = mailbox_.get();
  lock.unlock();
  const bool some = brief_wait_.until(own_core_, [&] {
    // Both are looked at each time: a busy mailbox must not keep the descriptors waiting.
    const bool has_messages = mailbox != nullptr && mailbox->has_new();
    return poller_.look(events) || has_messages;
  });
  lock.lock();
  polled_ = Clock::now();
  return some;
}

std::vector<Poller::Event> ProgressEngine::poll_sometimes(Lock& /*lock*/) {
  std::vector<Poller::Event> events;
  const auto now = Clock::now();
  if (now - polled_ < kPollInterval) return events;
  polled_ = now;
  poller_.look(events);
  return events;
}

std::vector<Poller::Event> ProgressEngine::wait_in_caller(Lock& lock, TimePoint until) {
  std::vector<Poller::Event> events;
  // No wake-up follows for a message that came before the mailbox was closed: do not sleep then.
  if (mailbox_ && mailbox_->stop_polling(false)) until = TimePoint();
  lock.unlock();
  events = poller_.wait(until);
  lock.lock();
  if (mailbox_) mailbox_->start_polling();
  return events;
}

void ProgressEngine::suspend(Lock& lock, TimePoint until) {
  if (caller_drives_) hand_to_thread(lock, until, false);
}

void ProgressEngine::release(Lock& lock, TimePoint until) {
  hand_to_thread(lock, until, true);
  is_claimed_ = false;
}

void ProgressEngine::hand_to_thread(Lock& /*lock*/, TimePoint until, bool is_back_soon) {
  caller_drives_ = false;
  // Watching it again wakes the progress thread for everything that came since the last poll.
  thread_poller_.watch(poller_.descriptor());
  const bool has_messages = mailbox_ && mailbox_->stop_polling(is_back_soon);
  if (has_messages || until < thread_until_) thread_poller_.wake();
}

}  // namespace hvd::runtime
