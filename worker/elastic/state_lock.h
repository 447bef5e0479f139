// Keeps other jobs from using a job's state file: a lock on "FILE.lock" beside it, held by rank 0.
// The state file itself cannot be locked, since each new one replaces it. The lock ends with its
// process; a file that a killed process has left is no obstacle.
//
// A file system that has no locks keeps nobody out. For one thread.
#pragma once

#include <string>
#include <utility>

#include "base/descriptors.h"
#include "base/status.h"

namespace hvd::worker {

class StateLock {
 public:
  // `job`: what tells this job from others. `file` empty: there is nothing to lock.
  StateLock(std::string file, std::string job) : file_(std::move(file)), job_(std::move(job)) {}

  // Has no effect if this process has it. ok, too, if another process of this job has it: that one
  // is about to end, and a later call takes the lock. failed_precondition: another job has it, or
  // FILE.lock cannot be made. The message continues "could not".
  Status take();
  // Whether this process has it; true, too, on a file system that has no locks.
  bool is_held() const { return static_cast<bool>(fd_); }
  // Leaves nothing beside the state file, if this process has the lock.
  void release();

 private:
  std::string name() const { return file_ + ".lock"; }
  // `again`: another process has removed the file meanwhile.
  Status try_to_take(bool& again);
  // The error of a lock that another process has.
  Status check_owner(int fd) const;

  std::string file_;
  std::string job_;
  UniqueFd fd_;
};

}  // namespace hvd::worker
