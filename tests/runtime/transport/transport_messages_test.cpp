// Single messages over our transport, as Gloo's interfaces promise them.
#include <atomic>
#include <latch>

#include "tests/runtime/transport/transport_ranks.h"

namespace hvd::test {
namespace {

using runtime::TcpMesh;

bool holds(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// With one socket for each pair, and several.
class Messages : public ::testing::TestWithParam<int> {
 protected:
  MeshSockets sockets_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Sockets, Messages, ::testing::Values(1, 4));

class MessageSizes : public ::testing::TestWithParam<std::size_t> {};

TEST_P(MessageSizes, ArriveWholeBothWaysOnThreeSockets) {
  const MeshSockets sockets(3);
  on_meshes(2, [](int rank, TcpMesh& mesh) {
    const int other = 1 - rank;
    for (int round = 0; round < 3; ++round) {
      Bytes out(mesh, GetParam(), rank + round);
      Bytes in(mesh, GetParam());
      out.send(other, 7);
      in.receive(other, 7);
      EXPECT_EQ(in.wait_received(), other);
      out.wait_sent();
      EXPECT_TRUE(in.is_from(other + round));
    }
  });
}

TEST_P(MessageSizes, ArriveWholeBothWays) {
  on_meshes(2, [](int rank, TcpMesh& mesh) {
    const int other = 1 - rank;
    for (int round = 0; round < 3; ++round) {
      Bytes out(mesh, GetParam(), rank + round);
      Bytes in(mesh, GetParam());
      in.receive(other, 7);
      out.send(other, 7);
      EXPECT_EQ(in.wait_received(), other);
      out.wait_sent();
      EXPECT_TRUE(in.is_from(other + round));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Bytes, MessageSizes,
                         ::testing::Values(0, 1, 23, 24, 25, 4096, 16'383, 16'384, 16'385, 65'537,
                                           1'048'576, 33'554'433));

TEST_P(Messages, BothMaySendMuchBeforeEitherReceives) {
  on_meshes(2, [](int rank, TcpMesh& mesh) {
    const std::size_t count = 32 << 20;
    Bytes out(mesh, count, rank);
    Bytes in(mesh, count);
    out.send(1 - rank, 1);
    out.wait_sent();
    in.receive(1 - rank, 1);
    in.wait_received();
    EXPECT_TRUE(in.is_from(1 - rank));
  });
}

// Each waits until its message to the next one is gone, in a circle.
TEST_P(Messages, ACircleOfSendersMovesOn) {
  on_meshes(4, [](int rank, TcpMesh& mesh) {
    const std::size_t count = 24 << 20;
    Bytes out(mesh, count, rank);
    Bytes in(mesh, count);
    out.send((rank + 1) % 4, 1);
    out.wait_sent();
    in.receive((rank + 3) % 4, 1);
    in.wait_received();
    EXPECT_TRUE(in.is_from((rank + 3) % 4));
  });
}

TEST_P(Messages, OfOneSlotKeepTheirOrderAndSlotsDoNotWaitForEachOther) {
  on_meshes(2, [](int rank, TcpMesh& mesh) {
    constexpr int kCount = 20;
    for (const std::size_t size : {100UL, 300'000UL}) {
      std::vector<Bytes> all;
      all.reserve(2 * kCount);
      for (int i = 0; i < kCount; ++i) {
        for (const int slot : {5, 6}) all.emplace_back(mesh, size, rank == 0 ? 10 * i + slot : 0);
      }
      if (rank == 0) {
        for (int i = 0; i < kCount; ++i) {
          for (const int slot : {5, 6})
            all[static_cast<std::size_t>(2 * i + slot - 5)].send(1, slot);
        }
        for (auto& bytes : all) bytes.wait_sent();
        continue;
      }
      // First all of slot 6, then all of slot 5.
      for (const int slot : {6, 5}) {
        for (int i = 0; i < kCount; ++i) {
          auto& bytes = all[static_cast<std::size_t>(2 * i + slot - 5)];
          bytes.receive(0, static_cast<std::uint64_t>(slot));
          bytes.wait_received();
          EXPECT_TRUE(bytes.is_from(10 * i + slot)) << i << ", slot " << slot;
        }
      }
    }
  });
}

TEST_P(Messages, OneBufferMaySendPartsToMany) {
  on_meshes(4, [](int rank, TcpMesh& mesh) {
    Bytes bytes(mesh, 3000, 3);
    if (rank == 0) {
      for (int to = 1; to < 4; ++to) {
        bytes.buffer->send(to, 9, static_cast<std::size_t>(to - 1) * 1000, 1000);
      }
      int sum = 0;
      for (int to = 1; to < 4; ++to) {
        int whom = -1;
        EXPECT_TRUE(bytes.buffer->waitSend(&whom, kLong));
        sum += whom;
      }
      EXPECT_EQ(sum, 6);
      return;
    }
    const auto wanted = bytes.data;
    std::fill(bytes.data.begin(), bytes.data.end(), 0);
    const std::size_t offset = static_cast<std::size_t>(rank - 1) * 1000;
    bytes.buffer->recv(0, 9, offset, 1000);
    EXPECT_EQ(bytes.wait_received(), 0);
    for (std::size_t i = 0; i < 3000; ++i) {
      EXPECT_EQ(bytes.data[i], i >= offset && i < offset + 1000 ? wanted[i] : 0) << i;
    }
  });
}

TEST_P(Messages, AReceiveFromAnyTakesEachMessageOnceAndNamesItsSender) {
  on_meshes(5, [](int rank, TcpMesh& mesh) {
    constexpr int kRounds = 30;
    if (rank != 0) {
      for (int round = 0; round < kRounds; ++round) {
        Bytes bytes(mesh, 5000, rank);
        bytes.send(0, 11);
        bytes.wait_sent();
      }
      return;
    }
    std::map<int, int> seen;
    for (int i = 0; i < 4 * kRounds; ++i) {
      Bytes bytes(mesh, 5000);
      bytes.buffer->recv(std::vector<int>{1, 2, 3, 4}, 11);
      const int from = bytes.wait_received();
      ++seen[from];
      EXPECT_TRUE(bytes.is_from(from));
    }
    EXPECT_EQ(seen, (std::map<int, int>{{1, kRounds}, {2, kRounds}, {3, kRounds}, {4, kRounds}}));
  });
}

TEST_P(Messages, AReceiveFromAnyTakesOnlyFromTheRanksNamed) {
  on_meshes(3, [](int rank, TcpMesh& mesh) {
    Bytes bytes(mesh, 10, rank);
    if (rank != 0) {
      bytes.send(0, 1);
      bytes.wait_sent();
      return;
    }
    bytes.buffer->recv(std::vector<int>{2}, 1);
    EXPECT_EQ(bytes.wait_received(), 2);
    bytes.receive(1, 1);
    EXPECT_EQ(bytes.wait_received(), 1);
    EXPECT_TRUE(bytes.is_from(1));
  });
}

// Each pair of threads has its own slot; they all wait at the same time, for small and large.
TEST_P(Messages, ManyThreadsOfOneRankMayWaitAtOnce) {
  on_meshes(3, [](int rank, TcpMesh& mesh) {
    constexpr int kThreads = 8;
    std::vector<std::thread> threads;
    threads.reserve(kThreads);
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&mesh, rank, t] {
        for (int round = 0; round < 40; ++round) {
          const std::size_t size = round % 7 == 0 ? 200'000 : 100;
          const auto slot = static_cast<std::uint64_t>(t);
          for (const int distance : {1, 2}) {
            const int to = (rank + distance) % 3;
            const int from = (rank + 3 - distance) % 3;
            Bytes out(mesh, size, rank + t + round);
            Bytes in(mesh, size);
            in.receive(from, slot);
            out.send(to, slot);
            EXPECT_EQ(in.wait_received(), from);
            EXPECT_TRUE(in.is_from(from + t + round));
            out.wait_sent();
          }
        }
      });
    }
    for (auto& thread : threads) thread.join();
  });
}

TEST_P(Messages, ALengthThatDiffersIsAnErrorThatNamesBoth) {
  on_meshes(2, [](int rank, TcpMesh& mesh) {
    Bytes bytes(mesh, rank == 0 ? 8 : 12);
    if (rank == 0) {
      bytes.send(1, 3);
      // The other one closes: this rank notices it when it needs the connection.
      const auto error = error_of([&] {
        bytes.receive(1, 4);
        bytes.wait_received();
      });
      EXPECT_TRUE(holds(error, "rank 1")) << error;
    } else {
      const auto error = error_of([&] {
        bytes.receive(0, 3);
        bytes.wait_received();
      });
      EXPECT_TRUE(holds(error, "rank 0 sent a message of 8 bytes where rank 1 expects 12"))
          << error;
    }
  });
}

TEST_P(Messages, RangesOutsideTheBufferAreRefused) {
  on_meshes(2, [](int rank, TcpMesh& mesh) {
    Bytes bytes(mesh, 10);
    EXPECT_TRUE(holds(error_of([&] { bytes.buffer->send(1 - rank, 1, 5, 6); }),
                      "6 bytes from 5 on: the buffer has 10"));
    EXPECT_TRUE(holds(error_of([&] { bytes.buffer->recv(1 - rank, 1, 11); }), "the buffer has 10"));
    EXPECT_TRUE(holds(error_of([&] { bytes.buffer->send(2, 1); }), "has no such peer"));
    EXPECT_TRUE(holds(error_of([&] { bytes.buffer->send(rank, 1); }), "has no such peer"));
    EXPECT_TRUE(holds(error_of([&] { bytes.buffer->recv(-1, 1); }), "has no such peer"));
    EXPECT_TRUE(holds(error_of([&] { bytes.buffer->recv(std::vector<int>{}, 1); }),
                      "from an empty list of ranks"));
    // And nothing is broken.
    Bytes out(mesh, 10, rank);
    bytes.receive(1 - rank, 1);
    out.send(1 - rank, 1);
    bytes.wait_received();
    out.wait_sent();
    EXPECT_TRUE(bytes.is_from(1 - rank));
  });
}

TEST_P(Messages, ATimeoutSaysHowLongItWasAndWhatStoodInTheWay) {
  on_meshes(2, [](int rank, TcpMesh& mesh) {
    Bytes bytes(mesh, 10);
    if (rank == 0) {
      bytes.send(1, 77);
      bytes.wait_sent();
      return;
    }
    const auto error = error_of([&] {
      bytes.receive(0, 78);
      bytes.buffer->waitRecv(std::chrono::milliseconds(30));
    });
    EXPECT_TRUE(
        holds(error, "timed out after 30 ms in which rank 1 waited for a message from rank 0"))
        << error;
    EXPECT_TRUE(mesh.transport().getPair(0) != nullptr);
  });
}

TEST_P(Messages, ATimeoutSaysThatThereIsNoConnection) {
  on_meshes(2, [](int rank, TcpMesh& mesh) {
    if (rank == 1) return;  // it would have to connect
    Bytes bytes(mesh, 10);
    const auto error = error_of([&] {
      bytes.receive(1, 1);
      bytes.buffer->waitRecv(std::chrono::milliseconds(30));
    });
    EXPECT_TRUE(holds(error,
                      "in which rank 0 waited for a message from rank 1; there is no data "
                      "connection with rank 1"))
        << error;
  });
}

TEST(MeshAddresses, RanksWithDifferentNumbersOfSocketsAreToldSo) {
  const auto one = make_tcp_mesh(mesh_options(0, 2));
  const MeshSockets sockets(2);
  const auto other = make_tcp_mesh(mesh_options(1, 2));
  const Status connected = one->connect({one->address(), other->address()});
  EXPECT_EQ(connected.code(), Code::invalid_argument);
  EXPECT_EQ(connected.message(),
            "rank 1 has 2 data connections with each rank, and rank 0 has 1: HVD_SOCKETS_PER_PAIR "
            "must be the same for all");
}

TEST_P(Messages, AWaitCanBeReleasedWithoutHarm) {
  on_meshes(2, [](int rank, TcpMesh& mesh) {
    Bytes bytes(mesh, 10, rank);
    if (rank == 0) {
      bytes.receive(1, 1);
      std::thread releaser([&] { bytes.buffer->abortWaitRecv(); });
      EXPECT_FALSE(bytes.buffer->waitRecv(kLong));
      releaser.join();
      Bytes go(mesh, 1);
      go.send(1, 2);
      go.wait_sent();
      EXPECT_EQ(bytes.wait_received(), 1);
      EXPECT_TRUE(bytes.is_from(1));
    } else {
      Bytes go(mesh, 1);
      go.receive(0, 2);
      go.wait_received();
      bytes.send(0, 1);
      bytes.wait_sent();
    }
  });
}

TEST_P(Messages, OfARankThatHasLeftSinceStillArrive) {
  Hub addresses(2);
  std::thread leaver([&] {
    const auto mesh = make_tcp_mesh(mesh_options(0, 2));
    connect_through(addresses, 0, *mesh);
    for (int i = 0; i < 10; ++i) {
      Bytes bytes(*mesh, 1000, i);
      bytes.send(1, 1);
      bytes.wait_sent();
    }
  });
  const auto mesh = make_tcp_mesh(mesh_options(1, 2));
  connect_through(addresses, 1, *mesh);
  Bytes bytes(*mesh, 1000);
  bytes.receive(0, 1);  // asks for the connection
  bytes.wait_received();
  leaver.join();
  for (int i = 1; i < 10; ++i) {
    bytes.receive(0, 1);
    bytes.wait_received();
    EXPECT_TRUE(bytes.is_from(i));
  }
  const auto error = error_of([&] {
    bytes.receive(0, 1);
    bytes.wait_received();
  });
  EXPECT_TRUE(holds(error, "rank 0")) << error;
}

TEST_P(Messages, MemoryThatIsFreedDuringItsMessageIsAFailure) {
  on_meshes(2, [](int rank, TcpMesh& mesh) {
    Bytes first(mesh, 1, rank);
    if (rank == 0) {
      first.receive(1, 1);
      first.wait_received();
      {
        Bytes large(mesh, 64 << 20), unused(mesh, 1);
        large.send(1, 2);
      }
      const auto error = error_of([&] { first.send(1, 3); });
      EXPECT_TRUE(holds(error, "was given up before the message had ended")) << error;
    } else {
      first.send(0, 1);
      const auto error = error_of([&] {
        Bytes large(mesh, 64 << 20);
        large.receive(0, 2);
        large.wait_received();
      });
      EXPECT_TRUE(holds(error, "rank 0")) << error;
    }
  });
}

}  // namespace
}  // namespace hvd::test
