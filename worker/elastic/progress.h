// One rank's way through the generations with its state: which commit comes next, and which rank
// sends what to which others when a generation begins. Below the process's one world: a test runs
// many as threads. For one thread at a time.
//
// Errors: Failure::world_failed if the world has ended; else invalid_argument if ranks use it
// differently, data_loss if the state is lost (begin()) or differs between ranks (all others).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include <hvd/elastic.h>

#include "base/clock.h"
#include "worker/elastic/commit_protocol.h"
#include "worker/elastic/state_lock.h"
#include "worker/elastic/state_saver.h"
#include "worker/elastic/store.h"
#include "worker/process/entry_timer.h"
#include "worker/process/ledger.h"
#include "worker/process/save_meter.h"

namespace hvd::worker {

// Where the state is kept in a file.
struct StateFile {
  std::string name = {};         // empty: nowhere
  std::string job = {};          // the id of this job, for the lock on the file
  Duration every = {};           // during training; 0: only when the job is suspended
  StateSaver::Write write = {};  // during training; null: save_copy()
};

class Progress {
 public:
  // `device`: but for the stream, which the program says.
  // `ledger`: null without one.
  explicit Progress(elastic::StateOptions options, DeviceOptions device = {},
                    StateFile state_file = {}, Ledger* ledger = nullptr);

  Store& store() { return store_; }
  // A run of the program begins, with the memory that the agent holds for it (state_memory.h).
  Status keep_in(StateMemory& memory, std::uint64_t run);
  UniqueFd leave_memory();
  bool has_begun() const { return generation_ != 0; }

  // In a new world: all agree from where they go on, and have that state when this returns.
  // `rolls_back`: what this rank did since it kept it last does not count. `timer`: null, or of the
  // way into this world. If the run does not go on (run_status()) the objects are those of this
  // rank's last commit, if it has one, and nothing is kept any more.
  runtime::Failure begin(CommitProtocol& protocol, bool rolls_back, EntryTimer* timer = nullptr);
  RunStatus run_status() const { return run_status_; }
  // The run is over, and the objects are what an earlier worker in this slot had in the end.
  bool has_inherited_end() const { return has_inherited_end_; }
  // begin() has failed because the state is lost, not because of anything else.
  bool is_lost() const { return lost_; }
  // `next`: the world that all go over to now; empty: they stay.
  runtime::Failure commit(CommitProtocol& protocol, const Proposal& proposal, std::string& next);
  // All ranks get the content of rank 0's objects; nothing is committed.
  runtime::Failure sync(CommitProtocol& protocol);
  // After a commit at which all leave: rank 0 keeps the state in the file, and all know whether it
  // could. It may take as long as the disk needs: `meter` says how far it is, and `report` is
  // called on rank 0 once a second meanwhile, and in the end with what became of it.
  using SaveReport = std::function<void(const Status& saved)>;
  runtime::Failure suspend(CommitProtocol& protocol, SaveMeter& meter, const SaveReport& report);
  // All have finished: what was committed is of no use any more.
  runtime::Failure finish(CommitProtocol& protocol);
  // The run is over, in whatever way: the state is not being written any more. `gives_up`: the
  // file need not have the newest one.
  void end_saving(bool gives_up);
  // The kept states are dropped, and the objects stay as they are.
  void forget();
  void mutate(const std::function<void()>& change);

 private:
  static DeviceOptions in_stream_of(const elastic::StateOptions& options, DeviceOptions device) {
    device.stream = options.cuda_stream;
    return device;
  }

  runtime::Failure resume_from(CommitProtocol& protocol, const Resume& resume, bool rolls_back,
                               EntryTimer* timer);
  // All begin with what rank 0 has: a state in the file, else what its program made.
  runtime::Failure take_beginning(CommitProtocol& protocol, const CommitId& id);
  // Rank 0's part, with the lock on the state file.
  Result<std::uint64_t> read_state();
  Status keep_state(SaveMeter& meter, const std::atomic<bool>& is_given_up);
  runtime::Failure keep_and_tell(StateChannel& channel, SaveMeter& meter, const SaveReport& report);
  Status remove_state();
  // The rank 0 that had the lock may be gone.
  void keep_lock();
  // For a rank that may have been rank 0: the file is that of another rank now. A writing that is
  // given up may need a moment longer.
  void leave_state_file();
  void save_if_due(CommitProtocol& protocol, const CommitId& committed);
  // The number of the step from which the ledger goes on. `taken_up`: that of the state in the
  // file, if all begin with it.
  Result<std::uint64_t> begin_ledger(CommitProtocol& protocol,
                                     std::optional<std::uint64_t> taken_up);

  // ---- with a ledger ----
  LedgerNumbers ledger_numbers(CommitProtocol& protocol);
  // The number of a commit since all agreed from where they go on.
  std::uint64_t number_of(const CommitId& id) const;
  std::uint64_t number_in_ledger(const CommitId& id) const;  // 0 without one
  // Rank 0 says from which step the ledger goes on.
  runtime::Failure agree_on_step(StateChannel& channel, std::uint64_t step);
  void write_step(const CommitId& id);

  elastic::StateOptions options_;
  Store store_;
  std::string state_file_;
  StateLock state_lock_;
  StateSaver saver_;
  bool lock_is_lost_ = false;  // another job has it
  Ledger* ledger_;
  bool ledger_has_failed_ = false;
  // From where all went on, and the number of that commit.
  CommitId origin_;
  std::uint64_t origin_step_ = 0;
  // The samples of the newest state that this rank holds, and of which commit that is.
  ShardSamples samples_;
  CommitId samples_of_;
  std::uint64_t generation_ = 0;
  // An earlier worker has kept what this rank holds, and the objects are not what it was.
  bool is_inherited_ = false;
  bool has_inherited_end_ = false;
  bool lost_ = false;
  RunStatus run_status_ = RunStatus::goes_on;
};

}  // namespace hvd::worker
