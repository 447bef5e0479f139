// Until when a tensor of a GPU is not there yet, and who waits for the result, in the words of the
// device. For programs and frameworks that have events of their own; hvd/cuda.h makes such ones.
#pragma once

#include <hvd/types.h>

namespace hvd {

// The readiness of a tensor of a GPU: what reduces it waits on the device, and no thread does.
class CudaReadyEvent : public ReadyEvent {
 public:
  // The event of the device, a cudaEvent_t.
  virtual void* cuda_event() const = 0;
  // A stream of the device, a cudaStream_t, that shall go on only when the result is there. Then
  // the call may be done as soon as that stream waits; what fails after that is an error of the
  // next call. Null: the call is done when the result is there.
  virtual void* waiting_stream() const { return nullptr; }
};

}  // namespace hvd
