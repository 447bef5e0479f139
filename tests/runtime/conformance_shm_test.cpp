// The conformance tables in shared memory.
#include "tests/runtime/conformance.h"
#include "tests/runtime/shm_ranks.h"

namespace hvd::test {
namespace {

Backend shm_backend() {
  return {"shm", false, [](int size, const std::function<void(int, RankUnderTest&)>& body) {
            on_shm_ranks(size, body, little_memory());
          }};
}

INSTANTIATE_TEST_SUITE_P(SharedMemory, Conformance, every_table(shm_backend()), table_name);

}  // namespace
}  // namespace hvd::test
