// The conformance tables over Gloo's connections.
#include "tests/runtime/conformance.h"
#include "tests/runtime/gloo_ranks.h"

namespace hvd::test {
namespace {

Backend gloo_backend() {
  return {"gloo", false, [](int size, const std::function<void(int, RankUnderTest&)>& body) {
            on_gloo_ranks(size, body, {kLong, kLittleBytes, kLittleBytes, kLittleBytes / 8});
          }};
}

INSTANTIATE_TEST_SUITE_P(Gloo, Conformance, every_table(gloo_backend()), table_name);

}  // namespace
}  // namespace hvd::test
