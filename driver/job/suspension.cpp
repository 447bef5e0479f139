#include "driver/job/suspension.h"

#include <utility>

#include "base/text.h"

namespace hvd::driver {

Suspension::Answer Suspension::ask(bool can_commit) {
  const bool is_first = !std::exchange(was_asked_, true);
  if (has_begun() && is_first) return Answer::nothing;
  return can_commit && !has_begun() ? Answer::suspend : Answer::stop;
}

void Suspension::await_commit(TimePoint until) {
  saving_.reset();
  deadline_ = until;
}

bool Suspension::on_saving(const event::Saving& saving, bool may_wait, TimePoint now) {
  if (!is_under_way()) return false;
  is_in_place_ = is_in_place_ || saving.is_in_place;
  if (!may_wait) return false;
  const bool is_first = !is_saving();
  saving_ = saving;
  deadline_ = now + kSaveTimeout;
  return is_first;
}

void Suspension::finish() {
  is_finished_ = true;
  deadline_ = kNever;
}

std::string Suspension::saving_text() const {
  return cat(bytes_text(saving_->written), " of ", bytes_text(saving_->total), " of the state");
}

}  // namespace hvd::driver
