// GPUs for C.
#include <memory>

#include <hvd/cuda.h>

#include "worker/c_api/c_api.h"

using namespace hvd::c_api;  // NOLINT(google-build-using-namespace): the calls below are of C

namespace {

using Event = std::shared_ptr<hvd::ReadyEvent>;

int is_ready(void* data) { return (*static_cast<Event*>(data))->ready() ? 1 : 0; }
void wait(void* data) { (*static_cast<Event*>(data))->wait(); }
void release(void* data) { delete static_cast<Event*>(data); }

template <typename Make>
int fill(hvd_ready_event* event, const char* call, Make make) {
  return guard([&] {
    auto& into = not_null(event, call, "event");
    auto owned = std::make_unique<Event>(make());
    into.ready = is_ready;
    into.wait = wait;
    into.release = release;
    into.data = owned.release();
    return HVD_OK;
  });
}

}  // namespace

namespace hvd::c_api {

std::shared_ptr<ReadyEvent> cuda_event_of(const hvd_ready_event& event) {
  return event.ready == ::is_ready ? *static_cast<Event*>(event.data) : nullptr;
}

}  // namespace hvd::c_api

int hvd_cuda_device_count(void) {
  return guard([] { return hvd::cuda::device_count(); });
}

int hvd_cuda_device(void) {
  return guard([] { return hvd::cuda::device(); });
}

int hvd_cuda_ready_after(hvd_cuda_stream stream, hvd_ready_event* event) {
  return fill(event, "hvd_cuda_ready_after", [&] { return hvd::cuda::ready_after(stream); });
}

int hvd_cuda_in_order_of(hvd_cuda_stream stream, hvd_ready_event* event) {
  return fill(event, "hvd_cuda_in_order_of", [&] { return hvd::cuda::in_order_of(stream); });
}
