#include <hvd/shared_memory.h>

#include "worker/c_api/c_api.h"

using namespace hvd::c_api;  // NOLINT(google-build-using-namespace): the calls below are of C

void* hvd_alloc(size_t bytes) {
  void* memory = nullptr;
  guard([&] {
    memory = hvd::detail::allocate_shared(bytes);
    return HVD_OK;
  });
  return memory;
}

void hvd_free(void* memory) { hvd::detail::free_shared(memory); }
