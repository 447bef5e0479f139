// Tensors on GPUs. No CUDA header is needed here: hvd::cuda::Stream is CUDA's own cudaStream_t. The
// module that reduces them, libhvd_nccl.so, is loaded when it is first needed.
//
//     cudaSetDevice(hvd::cuda::device());
//     ...
//     hvd::adapter::Submission work;
//     work.output = {data, {count}, hvd::DataType::float32, {hvd::cuda::device()}};
//     work.input = work.output;
//     work.ready = hvd::cuda::in_order_of(stream);
//     work.done = [](const auto& completion) { ... };
//     hvd::adapter::submit(std::move(work));
//
// The typed calls of hvd/collectives.h take such tensors, too: their input must be there when they
// are called, and their result is there when they are done. A Tensor that they return is in the
// memory of the same GPU.
//
// A rank of a world works on one GPU. All functions are safe from any thread, and throw
// InvalidArgumentError where there is no GPU; its text says what is missing.
#pragma once

#include <memory>
#include <string>

#include <hvd/cuda_event.h>
#include <hvd/export.h>
#include <hvd/standard_library.h>
#include <hvd/types.h>

namespace hvd::cuda {

// How many GPUs this process can use: what CUDA_VISIBLE_DEVICES leaves it. 0: why_unavailable().
HVD_API int device_count();
// Why there are none, or ones that hvd cannot use; empty: there are.
HVD_API std::string why_unavailable();
// The GPU of this worker: the one of its local rank, or the only one that it sees. An error if the
// host has fewer GPUs than workers.
HVD_API int device();
// Ready when what the stream of device() has by now is done. Null: the legacy stream. The call is
// done when the result is there.
HVD_API std::shared_ptr<ReadyEvent> ready_after(Stream stream);
// The same, and the stream goes on when the result is there: the call may be done as soon as it
// waits (CudaReadyEvent::waiting_stream()).
HVD_API std::shared_ptr<ReadyEvent> in_order_of(Stream stream);

}  // namespace hvd::cuda
