// How the ranks without the state receive the part of it that is on GPUs: by broadcasts from the
// first holder, over NCCL, in chunks. Other holders take part with memory that is not needed. A
// rank whose copy is in pinned host memory copies a chunk between that and the device while the
// next one, or the last one, is on its way.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/elastic/agreement.h"
#include "worker/elastic/device_parts.h"
#include "worker/elastic/state_channel.h"

namespace hvd::worker {

// `copy`: of DeviceParts, the one that is sent or received; of holders other than the first it is
// not touched. All members call it, with tensors of the same sizes.
runtime::Failure transfer_device_parts(StateChannel& channel, DeviceParts& parts, std::size_t copy,
                                       const Resume& resume, std::uint64_t chunk);

}  // namespace hvd::worker
