// The conformance tables in shared memory.
#include "tests/runtime/ops/conformance.h"
#include "tests/runtime/shm/shm_ranks.h"

namespace hvd::test {
namespace {

Backend shm_backend() {
  return {"shm", false, [](RanksAs how, int size, const Backend::Body& body) {
            on_shm_ranks(size, body, little_memory(), how);
          }};
}

HVD_CONFORMANCE(SharedMemory, every_table(shm_backend()));
HVD_CONFORMANCE(SharedMemoryAlongTrees, values_along_trees(shm_backend()));
HVD_CONFORMANCE(SharedMemoryOfProcesses, every_table(shm_backend(), RanksAs::processes));

}  // namespace
}  // namespace hvd::test
