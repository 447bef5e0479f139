#include "worker/process/call_name.h"

#include "worker/process/process_world.h"

namespace hvd::worker {

CallName::CallName(const std::string& given, std::string_view call)
    : call_(call),
      text_(given.empty() ? ProcessWorld::instance().next_name(call) : given),
      goes_back_(given.empty()) {}

CallName::~CallName() {
  if (goes_back_) ProcessWorld::instance().return_name(call_, text_);
}

}  // namespace hvd::worker
