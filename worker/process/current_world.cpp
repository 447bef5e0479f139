#include "worker/process/current_world.h"

#include <unistd.h>
#include <utility>

#include "base/text.h"
#include "worker/process/process_world.h"

namespace hvd::worker {

bool CurrentWorld::is_of_this_process() const { return owner_ == ::getpid(); }

void CurrentWorld::wait_for_first() {
  phase_ = Phase::joining;
  owner_ = ::getpid();
}

void CurrentWorld::enter(Entry entry) {
  phase_ = Phase::inside;
  owner_ = ::getpid();
  world_ = std::move(entry.world);
  shutdown_timeout_ = entry.shutdown_timeout;
  dynamic_sets_ = entry.dynamic_sets;

  end_reason_ = {};
  last_failure_.clear();
  unnamed_.clear();
  departed_from_ = nullptr;
}

void CurrentWorld::end(runtime::Failure why) {
  phase_ = Phase::between;
  end_reason_ = std::move(why);
  world_.reset();
}

void CurrentWorld::leave(std::string why) {
  phase_ = Phase::outside;
  last_failure_ = std::move(why);
  end_reason_ = {};
  world_.reset();
}

std::shared_ptr<runtime::World> CurrentWorld::world() const {
  return is_of_this_process() ? world_ : nullptr;
}

std::string CurrentWorld::next_name(const CallSeries& series) {
  return cat(series.call, ".noname.", unnamed_[series]++);
}

void CurrentWorld::return_name(const CallSeries& series, std::string_view name) {
  const auto counter = unnamed_.find(series);
  if (counter == unnamed_.end()) return;
  const auto number = parse_number<std::uint64_t>(name.substr(name.rfind('.') + 1));
  if (!number || *number + 1 != counter->second) return;
  if (--counter->second == 0) unnamed_.erase(counter);
}

void CurrentWorld::forget_names(int process_set) {
  std::erase_if(unnamed_,
                [&](const auto& counter) { return counter.first.process_set == process_set; });
}

TimePoint CurrentWorld::stop_deadline(std::chrono::milliseconds grace) {
  if (stop_deadline_ == kNever) stop_deadline_ = Clock::now() + grace;
  return stop_deadline_;
}

CallName::CallName(const std::string& given, CallSeries series)
    : series_(std::move(series)),
      text_(given.empty() ? ProcessWorld::instance().next_name(series_) : given),
      goes_back_(given.empty()) {}

CallName::~CallName() {
  if (goes_back_) ProcessWorld::instance().return_name(series_, text_);
}

}  // namespace hvd::worker
