// Where a job keeps what another hvdrun needs to go on with it (--state DIR): the journal of all
// its steps, and a file with the job's key. The directory is open to its user alone. One hvdrun at
// a time has it, by a lock that the system gives up when that hvdrun dies: so of two that want to
// go on with a job, one does.
//
//     lock           held for as long as the job has a driver
//     job.json       the job's number and key, and how many drivers it has had; removed at its end
//     journal.jsonl  its events (driver/journal/journal.h)
//     commit         a commit that the workers have made, not always the newest
//     join_tokens.json  the terms and uses of the job's join tokens (driver/join/join_tokens.h)
//
// For one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/descriptors.h"
#include "base/security/crypto.h"
#include "base/status.h"
#include "driver/journal/journal.h"

namespace hvd::driver {

// A job, as each of its drivers knows it.
struct KeptJob {
  std::string id;
  Token key;
  std::uint64_t epoch = 1;   // of the driver: the first one has 1
  std::string machine = {};  // of its newest driver (driver/core/this_machine.h)
};

class StateDirectory {
 public:
  // Makes the directory if it is missing, and takes its lock. unavailable: another hvdrun has it;
  // with `waits` this blocks instead until that one has ended, or until a signal.
  static Result<StateDirectory> open(const std::string& path, bool waits);

  // A job is kept there, whether it has a driver or not.
  static bool has_job(const std::string& path);

  // The job whose driver has died here, with the epoch of the next one; nothing: there is none.
  // Each error names the file and says what can be done.
  Result<std::optional<KeptJob>> left() const;
  // From now on this process is the driver of this job.
  Status keep(const KeptJob& job);
  // False: another process has become its driver since. A lock on storage that machines share may
  // go over to another one while this process stands still.
  bool is_ours() const;
  // The high-water mark of the job's commits (base/protocol/commit_id.h), and the one that was kept
  // last; empty: there is none. So that no worker begins from nothing when all that had a commit
  // are lost with the driver.
  void keep_commit(const std::string& mark) const;
  std::string commit() const;
  // The job's join tokens; empty: it has had none.
  Status keep_join_tokens(const std::string& text) const;
  Result<std::string> join_tokens() const;
  // The job is over, or cannot be gone on with any more: no other hvdrun will take it for one that
  // was left.
  void forget() const;

  std::string journal_file() const { return path_ + "/journal.jsonl"; }
  std::string tokens_file() const { return path_ + "/join_tokens.json"; }
  const std::string& path() const { return path_; }

 private:
  StateDirectory(std::string path, UniqueFd lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}
  std::string job_file() const { return path_ + "/job.json"; }
  std::string commit_file() const { return path_ + "/commit"; }

  std::string path_;
  UniqueFd lock_;
  std::uint64_t epoch_ = 0;  // of the job that was kept
};

}  // namespace hvd::driver
