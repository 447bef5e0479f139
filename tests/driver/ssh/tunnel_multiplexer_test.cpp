#include "driver/ssh/tunnel_multiplexer.h"

#include <gtest/gtest.h>

#include "tests/support/missing_calls.h"

namespace hvd::driver::ssh {
namespace {

// The host whose agent needs it is lost then, and not the job.
TEST(TunnelMultiplexer, AMissingThreadIsAnError) {
  const int code = test::without_threads([] {
    const auto multiplexer = TunnelMultiplexer::create();
    return multiplexer.status().message().starts_with("carry the SSH sessions: ") ? 0 : 1;
  });
  if (code == 77) GTEST_SKIP() << "this kernel takes no filter for system calls";
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace hvd::driver::ssh
