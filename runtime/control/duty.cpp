#include "runtime/control/duty.h"

#include "runtime/core/brief_wait.h"

namespace hvd::runtime {
namespace {

constexpr std::chrono::microseconds kGlance{500};  // a look costs a system call

}  // namespace

Status Duty::open() {
  HVD_RETURN_IF_ERROR(keepers_.open());
  keepers_.watch(poller_.descriptor());
  return {};
}

void Duty::watch_letters(std::shared_ptr<HostMail> mail) {
  mail_ = std::move(mail);
  if (!helps_) return;
  mail_->attend();
  poller_.wake();  // the helper may sleep
}

std::vector<Poller::Event> Duty::keep(Turn& turn, TimePoint until) {
  keeper_until_ = until;
  turn.unlock();
  keepers_.wait(until);
  turn.lock();
  std::vector<Poller::Event> events;
  // What was there may have been meant for the helper.
  const bool some = poller_.look(events);
  if (helps_ && (some || (mail_ && mail_->has_news()))) poller_.wake();
  return events;
}

void Duty::step_in(Turn& /*turn*/) {
  if (helps_) return;
  helps_ = true;
  keepers_.ignore(poller_.descriptor());
  if (mail_) mail_->attend();
}

bool Duty::look_briefly(Turn& turn, std::vector<Poller::Event>& events) {
  const auto* const mail = mail_.get();
  turn.unlock();
  // Letters do not keep it from looking at all else.
  const bool some = wait_briefly(own_core_, [&] {
    const bool letters = mail != nullptr && mail->has_news();
    return poller_.look(events) || letters;
  });
  turn.lock();
  looked_ = Clock::now();
  return some;
}

std::vector<Poller::Event> Duty::glance(Turn& /*turn*/) {
  std::vector<Poller::Event> events;
  const auto now = Clock::now();
  if (now - looked_ < kGlance) return events;
  looked_ = now;
  poller_.look(events);
  return events;
}

std::vector<Poller::Event> Duty::help(Turn& turn, TimePoint until) {
  std::vector<Poller::Event> events;
  if (mail_ && mail_->cease(false)) until = TimePoint();
  turn.unlock();
  events = poller_.wait(until);
  turn.lock();
  if (mail_) mail_->attend();
  return events;
}

void Duty::step_aside(Turn& turn, TimePoint until) {
  if (helps_) go(turn, until, false);
}

void Duty::leave(Turn& turn, TimePoint until) {
  go(turn, until, true);
  is_taken_ = false;
}

void Duty::go(Turn& /*turn*/, TimePoint until, bool is_back_soon) {
  helps_ = false;
  // The keeper hears of what has happened since the helper looked.
  keepers_.watch(poller_.descriptor());
  const bool letters = mail_ && mail_->cease(is_back_soon);
  if (letters || until < keeper_until_) keepers_.wake();
}

}  // namespace hvd::runtime
