#include "runtime/core/affinity.h"

#include <cerrno>
#include <cstring>
#include <string>

#include "base/text.h"

namespace hvd::runtime {
namespace {

// "0-3,8"
std::string text_of(const std::vector<int>& cores) {
  std::string text;
  for (std::size_t first = 0; first < cores.size(); ++first) {
    std::size_t last = first;
    while (last + 1 < cores.size() && cores[last + 1] == cores[last] + 1) ++last;
    text += cat(text.empty() ? "" : ",", cores[first]);
    if (last > first) text += cat("-", cores[last]);
    first = last;
  }
  return text;
}

}  // namespace

std::vector<int> usable_cores() {
  cpu_set_t set;
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<std::size_t>(core), &set)) cores.push_back(core);
  }
  return cores;
}

bool leave_cores(const std::vector<int>& cores) {
  cpu_set_t usable;
  if (::sched_getaffinity(0, sizeof usable, &usable) != 0) return false;
  cpu_set_t others = usable;
  for (const int core : cores) {
    if (core >= 0 && core < CPU_SETSIZE) CPU_CLR(static_cast<std::size_t>(core), &others);
  }
  // The system moves a thread that may no longer run where it is, and leaves it there afterwards.
  if (CPU_COUNT(&others) == 0 || ::sched_setaffinity(0, sizeof others, &others) != 0) return false;
  return ::sched_setaffinity(0, sizeof usable, &usable) == 0;
}

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
    return {Code::invalid_argument,
            cat("thread affinity: this process cannot run on core ", core,
                "; the cores that it may use are ", text_of(usable_cores()))};
  }
  pinned_ = true;
  return {};
}

}  // namespace hvd::runtime
