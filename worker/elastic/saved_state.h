// The state of a job in a file, from one run of the job to the next: what rank 0 writes at the
// commit at which the job is suspended, and reads when it begins again.
//
// The file: "hvdstate", a 32-bit version, the shape (Store::shape()), the number of parts and the
// size of each, a checksum (base/checksum.h) of all that stands before and of the bytes, then the
// bytes. Integers are little-endian, of 64 bits where nothing else is said.
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

// Whole or not at all: without a name first, or with another one where the file system needs one.
// The file is readable by this user only. Once it has its name this is ok; if its directory cannot
// be brought to the disk, a crash of the machine may still take it, and a warning says so. The file
// need not be written any more once `is_given_up`: aborted.
Status save_state(const std::string& file, Store& store, SaveMeter& meter,
                  const std::atomic<bool>& is_given_up);

// Into store.to_receive(), for take_over(). not_found: there is no such file. data_loss: it is
// damaged, or not such a file. invalid_argument: it holds another program's state.
// failed_precondition: it is not to be trusted, or the state has tensors of a GPU.
Status read_saved_state(const std::string& file, Store& store);

// The work is done: the file would only mislead. Nothing happens without one.
Status remove_saved_state(const std::string& file);

}  // namespace hvd::worker
