// When a tensor of a GPU is there, and which stream waits for the result, in the terms of the
// device. For programs and frameworks that have events of their own; hvd/cuda.h makes such ones.
#pragma once

#include <hvd/types.h>

// The types that CUDA's cudaStream_t and cudaEvent_t point to.
struct CUstream_st;
struct CUevent_st;

namespace hvd {

namespace cuda {

// cudaStream_t and cudaEvent_t. Null is the legacy stream.
using Stream = CUstream_st*;
using Event = CUevent_st*;

}  // namespace cuda

// The readiness of a tensor of a GPU: what reduces it waits on the device, and no thread does.
class CudaReadyEvent : public ReadyEvent {
 public:
  virtual cuda::Event cuda_event() const = 0;
  // A stream of the device that shall go on only when the result is there. Then
  // the call may be done as soon as that stream waits; what fails after that is an error of the
  // next call. Null: the call is done when the result is there.
  virtual cuda::Stream waiting_stream() const { return nullptr; }
};

}  // namespace hvd
