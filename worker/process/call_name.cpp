#include "worker/process/call_name.h"

#include <utility>

#include "worker/process/process_world.h"

namespace hvd::worker {

CallName::CallName(const std::string& given, CallSeries series)
    : series_(std::move(series)),
      text_(given.empty() ? ProcessWorld::instance().next_name(series_) : given),
      goes_back_(given.empty()) {}

CallName::~CallName() {
  if (goes_back_) ProcessWorld::instance().return_name(series_, text_);
}

}  // namespace hvd::worker
