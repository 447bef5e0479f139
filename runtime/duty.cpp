#include "runtime/duty.h"

#include "runtime/brief_wait.h"

namespace hvd::runtime {

Status Duty::open() {
  HVD_RETURN_IF_ERROR(keepers_.open());
  keepers_.watch(poller_.descriptor());
  return {};
}

std::vector<Poller::Event> Duty::keep(Turn& turn, TimePoint until) {
  keeper_until_ = until;
  turn.unlock();
  keepers_.wait(until);
  turn.lock();
  std::vector<Poller::Event> events;
  // What was there may have been meant for the helper.
  if (poller_.look(events) && helps_) poller_.wake();
  return events;
}

void Duty::step_in(Turn& /*turn*/) {
  if (helps_) return;
  helps_ = true;
  keepers_.ignore(poller_.descriptor());
}

std::vector<Poller::Event> Duty::help(Turn& turn, TimePoint until) {
  turn.unlock();
  std::vector<Poller::Event> events;
  const auto look = [&] { return poller_.look(events); };
  if (!wait_briefly(own_core_, look)) events = poller_.wait(until);
  turn.lock();
  return events;
}

void Duty::step_aside(Turn& /*turn*/, TimePoint until) {
  helps_ = false;
  // The keeper hears of what has happened since the helper looked.
  keepers_.watch(poller_.descriptor());
  if (until < keeper_until_) keepers_.wake();
}

void Duty::leave(Turn& turn, TimePoint until) {
  step_aside(turn, until);
  is_taken_ = false;
}

}  // namespace hvd::runtime
