// Messages between two ranks over a slow link, or over one that goes silent.
#include "tests/runtime/transport/relay.h"

namespace hvd::test {
namespace {

using runtime::TcpMesh;
using std::chrono::milliseconds;

constexpr std::size_t kMessage = std::size_t{24} << 20;

// With one socket for each pair, and several.
class SlowMessages : public ::testing::TestWithParam<int> {
 protected:
  MeshSockets sockets_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Sockets, SlowMessages, ::testing::Values(1, 3));

TEST_P(SlowMessages, NightlyMayTakeMuchLongerThanASilenceMay) {
  constexpr milliseconds kSilence{3'000};
  const milliseconds between(24 * GetParam());
  over_relay({.between = between}, [&](int rank, TcpMesh& mesh, TcpMesh& /*other*/) {
    Bytes bytes(mesh, kMessage, rank == 0 ? 5 : 0);
    const TimePoint begin = Clock::now();
    const auto error = error_of([&] {
      if (rank == 0) bytes.send(1, 1);
      if (rank == 1) bytes.receive(0, 1);
      EXPECT_TRUE(rank == 0 ? bytes.buffer->waitSend(kSilence) : bytes.buffer->waitRecv(kSilence));
    });
    EXPECT_EQ(error, "nothing was thrown");
    // A sender is done when its kernel has the rest.
    if (rank == 1) {
      EXPECT_GT(Clock::now() - begin, 3 * kSilence / 2) << "the link is too fast for this test";
    }
    EXPECT_TRUE(bytes.is_from(5));
  });
}

TEST_P(SlowMessages, EndInTimeIfTheLinkGoesSilentInTheirMidst) {
  constexpr milliseconds kSilence{200};
  for (const int impatient : {0, 1}) {
    over_relay({.between = milliseconds(1), .most = kMessage / 16},
               [&](int rank, TcpMesh& mesh, TcpMesh& other) {
                 Bytes bytes(mesh, kMessage);
                 const milliseconds limit = rank == impatient ? kSilence : kLong;
                 const auto error = error_of([&] {
                   if (rank == 0) bytes.send(1, 1);
                   if (rank == 1) bytes.receive(0, 1);
                   rank == 0 ? bytes.buffer->waitSend(limit) : bytes.buffer->waitRecv(limit);
                 });
                 const std::string wanted = rank == impatient ? "timed out after 200 ms" : "";
                 EXPECT_NE(error.find(wanted), std::string::npos) << error;
                 other.abort({Code::aborted, "enough"});
               });
  }
}

}  // namespace
}  // namespace hvd::test
