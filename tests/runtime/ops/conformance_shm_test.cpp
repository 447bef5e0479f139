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

INSTANTIATE_TEST_SUITE_P(SharedMemory, Conformance, every_table(shm_backend()), table_name);
INSTANTIATE_TEST_SUITE_P(SharedMemoryOfProcesses, Conformance,
                         every_table(shm_backend(), RanksAs::processes), table_name);

}  // namespace
}  // namespace hvd::test
