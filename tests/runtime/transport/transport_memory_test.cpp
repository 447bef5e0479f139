// A rank of which any allocation during a message fails: neither it nor the others wait
// for ever, and nothing of its calls is used once they have ended.
#include <cstdlib>
#include <new>

#include "tests/runtime/transport/transport_ranks.h"

namespace {

// Allocations of this thread that still succeed; below 0: all do.
thread_local long allocations_left = -1;

bool is_refused() {
  if (allocations_left < 0) return false;
  if (allocations_left == 0) return true;
  --allocations_left;
  return false;
}

}  // namespace

// Not inline: what they allocate and free must not look mismatched to the compiler.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  void* const memory = is_refused() ? nullptr : std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
  std::free(memory);
}

namespace hvd::test {
namespace {

constexpr std::size_t kBytes = 100'000;
constexpr int kPeer = 0;
constexpr int kPoor = 1;

// Both ways, and a message that comes before it is expected.
void exchange(runtime::TcpMesh& mesh, int with) {
  Bytes early(mesh, kBytes);
  Bytes incoming(mesh, kBytes);
  Bytes outgoing(mesh, kBytes);
  outgoing.send(with, 1);
  outgoing.send(with, 2);
  incoming.receive(with, 2);
  incoming.wait_received();
  early.receive(with, 1);
  early.wait_received();
  outgoing.wait_sent();
  outgoing.wait_sent();
}

// Whether rank 1 got through the exchange with that many allocations.
bool gets_through_with(long allocations) {
  bool got_through = true;
  Hub addresses(2);
  Hub end(2);
  const auto run = [&](int rank) {
    const auto mesh = make_tcp_mesh(mesh_options(rank, 2));
    connect_through(addresses, rank, *mesh);
    try {
      exchange(*mesh, 1 - rank);  // the connections are there
      if (rank == kPoor) allocations_left = allocations;
      exchange(*mesh, 1 - rank);
    } catch (const std::exception&) {
      if (rank == kPoor) got_through = false;
    }
    allocations_left = -1;
    mesh->abort({Code::aborted, "the test is over"});
    EXPECT_TRUE(end.exchange(rank, "", Clock::now() + kLong).ok());
  };
  std::thread peer([&] { run(kPeer); });
  run(kPoor);
  peer.join();
  return got_through;
}

// With one socket for each pair, and several.
class TransportMemory : public ::testing::TestWithParam<int> {
 protected:
  MeshSockets sockets_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Sockets, TransportMemory, ::testing::Values(1, 3));

TEST_P(TransportMemory, ARankThatRunsOutOfItAtAnyMomentEndsTheWaitOfAll) {
  constexpr long kMost = 10'000;
  long allocations = 0;
  for (bool got_through = false; !got_through && allocations < kMost; ++allocations) {
    const auto begun = Clock::now();
    got_through = gets_through_with(allocations);
    ASSERT_LT(Clock::now() - begun, kLong) << "a rank has waited until it was too late";
  }
  EXPECT_GT(allocations, 10);
  EXPECT_LT(allocations, kMost);
}

}  // namespace
}  // namespace hvd::test
