#include "worker/process/call_name.h"

#include <hvd/error.h>

#include "worker/process/process_world.h"

namespace hvd::worker {
namespace {

bool includes_this_rank(const ProcessSet& set) {
  try {
    return set.included();
  } catch (const Error&) {
    return false;  // there is no such set
  }
}

}  // namespace

CallName::CallName(const std::string& given, std::string_view call, const ProcessSet& set)
    : call_(call),
      text_(given.empty() ? ProcessWorld::instance().next_name(call) : given),
      goes_back_(given.empty() && includes_this_rank(set)) {}

CallName::~CallName() {
  if (goes_back_) ProcessWorld::instance().return_name(call_, text_);
}

}  // namespace hvd::worker
