#include "runtime/affinity.h"

#include <cerrno>
#include <cstring>
#include <string>

#include "base/text.h"

namespace hvd::runtime {
namespace {

// "0-3,8"
std::string text_of(const cpu_set_t& cores) {
  std::string text;
  for (int first = 0; first < CPU_SETSIZE; ++first) {
    if (!CPU_ISSET(static_cast<std::size_t>(first), &cores)) continue;
    int last = first;
    while (last + 1 < CPU_SETSIZE && CPU_ISSET(static_cast<std::size_t>(last) + 1, &cores)) ++last;
    text += cat(text.empty() ? "" : ",", first);
    if (last > first) text += cat("-", last);
    first = last;
  }
  return text;
}

}  // namespace

PinnedThread::~PinnedThread() {
  if (pinned_) ::sched_setaffinity(0, sizeof before_, &before_);
}

Status PinnedThread::pin(int core) {
  if (::sched_getaffinity(0, sizeof before_, &before_) != 0) {
    return {Code::internal, cat("read the cores of this thread: ", std::strerror(errno))};
  }
  cpu_set_t wanted;
  CPU_ZERO(&wanted);
  const bool nameable = core >= 0 && core < CPU_SETSIZE;
  if (nameable) CPU_SET(static_cast<std::size_t>(core), &wanted);
  if (!nameable || ::sched_setaffinity(0, sizeof wanted, &wanted) != 0) {
    return {Code::invalid_argument, cat("thread affinity: this process cannot run on core ", core,
                                        "; the cores that it may use are ", text_of(before_))};
  }
  pinned_ = true;
  return {};
}

}  // namespace hvd::runtime
