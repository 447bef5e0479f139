// The state of a job in a file, from one run of the job to the next: what rank 0 writes at the
// commit at which the job is suspended, or while it goes on (state_saver.h), and reads when it
// begins again.
//
// The file: "hvdstate", a 32-bit version, the shape (Store::shape()), the number of its commit in
// the ledger, the number of parts and the size of each, a checksum (base/checksum.h) of all that
// stands before and of the bytes, then the bytes. Integers are little-endian, of 64 bits where
// nothing else is said.
//
// Errors name the file. For one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "worker/elastic/store.h"
#include "worker/process/save_meter.h"

namespace hvd::worker {

struct StateToSave {
  std::uint64_t shape = 0;
  std::uint64_t step = 0;  // the number of its commit in the ledger; 0 without one
  const Copy& copy;
};

// Whole or not at all: without a name first, or with another one where the file system needs one.
// The file is readable by this user only. It need not be written any more once `is_given_up`:
// aborted. An error after meter.put_in_place(): its directory cannot be brought to the disk, so
// that a crash of the machine may still take the file.
Status save_copy(const std::string& file, const StateToSave& state, SaveMeter& meter,
                 const std::atomic<bool>& is_given_up);
// The newest state of a store. Once the file has its name this is ok: a warning says that a crash
// may take it.
Status save_state(const std::string& file, Store& store, std::uint64_t step, SaveMeter& meter,
                  const std::atomic<bool>& is_given_up);

// Into store.to_receive(), for take_over(); the number of its commit in the ledger. not_found:
// there is no such file. data_loss: it is damaged, or not such a file. invalid_argument: it holds
// another program's state. failed_precondition: it is not to be trusted, or the state has tensors
// of a GPU.
Result<std::uint64_t> read_saved_state(const std::string& file, Store& store);

// The work is done: the file would only mislead. Nothing happens without one.
Status remove_saved_state(const std::string& file);

}  // namespace hvd::worker
