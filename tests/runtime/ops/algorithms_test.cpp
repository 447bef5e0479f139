// The algorithms by themselves, over our transport with three sockets for each pair of ranks.
#include "runtime/ops/algorithms.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <gtest/gtest.h>
#include <numeric>
#include <random>
#include <thread>

#include "runtime/ops/direct.h"
#include "runtime/ops/halving.h"
#include "runtime/ops/ring.h"
#include "tests/runtime/ops/meshes.h"

namespace hvd::test {
namespace {

using runtime::Block;
using runtime::Extent;
using runtime::kPieceBytes;
using runtime::Part;
using runtime::Peers;

class Algorithms : public ::testing::TestWithParam<int> {
 protected:
  using PeersBody = std::function<void(int rank, const Peers& peers)>;
  static void on_peers(const PeersBody& body) {
    const MeshSockets sockets(3);
    on_ranks(RanksAs::threads, GetParam(), [&body](int rank, runtime::Exchange& exchange) {
      const auto mesh = make_mesh(runtime::Transport::hvd, rank, GetParam());
      connect_through(exchange, *mesh);
      std::vector<int> ranks(static_cast<std::size_t>(GetParam()));
      std::iota(ranks.begin(), ranks.end(), 0);
      try {
        body(rank, Peers(mesh->transport(), ranks, rank, 0, kLong));
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
        mesh->abort({Code::aborted, "the test has failed"});
      }
      // Nobody leaves while another may still be receiving.
      EXPECT_TRUE(exchange.exchange("", Clock::now() + kLong).ok());
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, Algorithms, ::testing::Values(2, 3, 4, 5, 8));

class FewRanks : public Algorithms {};
INSTANTIATE_TEST_SUITE_P(Ranks, FewRanks, ::testing::Values(2, 3));
class Halving : public Algorithms {};
INSTANTIATE_TEST_SUITE_P(Ranks, Halving, ::testing::Values(2, 4, 8));

std::vector<std::byte> bytes_of(int seed, std::size_t count) {
  std::mt19937_64 random(static_cast<unsigned>(seed));
  std::vector<std::byte> bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

TEST_P(Algorithms, ABroadcastGivesAllRanksTheDataOfTheRoot) {
  on_peers([](int rank, const Peers& peers) {
    for (const std::size_t size :
         {std::size_t{1}, std::size_t{5'001}, kPieceBytes, 2 * kPieceBytes + 7}) {
      for (int root = 0; root < peers.size(); ++root) {
        if (size >= kPieceBytes && root % 3 != 1) continue;
        const auto wanted = bytes_of(root, size);
        auto data = rank == root ? wanted : std::vector<std::byte>(size);
        runtime::tree_broadcast(peers, data.data(), size, root);
        const auto [found, right] = std::mismatch(data.begin(), data.end(), wanted.begin());
        ASSERT_EQ(found, data.end()) << "byte " << found - data.begin() << " of " << size;
      }
    }
  });
}

TEST_P(Algorithms, NoRankLeavesABarrierBeforeAllHaveCome) {
  std::atomic<int> came = 0;
  on_peers([&came](int rank, const Peers& peers) {
    std::mt19937 random(static_cast<unsigned>(rank));
    for (int round = 1; round <= 30; ++round) {
      for (unsigned turns = random() % 50; turns > 0; --turns) std::this_thread::yield();
      ++came;
      runtime::barrier(peers);
      ASSERT_GE(came, round * peers.size());
    }
  });
}

// Of no bytes, too: what nobody expects would be taken for the next message.
TEST_P(Algorithms, AnExchangeGivesEachTheirOwnAndLeavesNothingBehind) {
  on_peers([](int rank, const Peers& peers) {
    const auto bytes_of = [](int from, int to, int round) {
      constexpr std::array<std::size_t, 4> kSizes{0, 1, 300, 5'000};
      return kSizes[static_cast<std::size_t>(from + 2 * to + round) % kSizes.size()];
    };
    for (int round = 0; round < 8; ++round) {
      std::vector<std::vector<std::byte>> out;
      std::vector<std::vector<std::byte>> in;
      std::vector<Extent> sends;
      std::vector<Extent> receives;
      for (int other = 0; other < peers.size(); ++other) {
        out.emplace_back(bytes_of(rank, other, round), std::byte(16 * rank + other));
        in.emplace_back(bytes_of(other, rank, round), std::byte{0xFF});
        sends.push_back({out.back().data(), out.back().size()});
        receives.push_back({in.back().data(), in.back().size()});
      }
      runtime::exchange(peers, sends, receives);
      for (int other = 0; other < peers.size(); ++other) {
        const auto& arrived = in[static_cast<std::size_t>(other)];
        ASSERT_EQ(arrived, std::vector<std::byte>(arrived.size(), std::byte(16 * other + rank)))
            << "round " << round << ", from " << other;
      }
    }
  });
}

TEST_P(Algorithms, EveryRankOfADoublingHasTheSameBits) {
  std::vector<std::vector<float>> all(static_cast<std::size_t>(GetParam()));
  on_peers([&all](int rank, const Peers& peers) {
    auto& data = all[static_cast<std::size_t>(rank)];
    // Elements whose sums depend on the order of the additions.
    for (int i = 0; i < 1'001; ++i) data.push_back(1.0F / static_cast<float>(3 * rank + i + 1));
    runtime::FusionBuffer scratch;
    runtime::doubling_allreduce(peers, data.data(), data.size(), sizeof(float),
                                runtime::reduce_function(DataType::float32, ReduceOp::sum),
                                scratch);
  });
  for (std::size_t i = 0; i < all.front().size(); ++i) {
    double sum = 0;
    for (int rank = 0; rank < GetParam(); ++rank)
      sum += 1.0 / static_cast<double>(3 * rank + static_cast<int>(i) + 1);
    ASSERT_NEAR(all.front()[i], sum, 1e-5) << i;
  }
  for (const auto& data : all) {
    EXPECT_EQ(std::memcmp(data.data(), all.front().data(), data.size() * sizeof(float)), 0);
  }
}

// Several parts, of which some are empty, and an input that is not the result.
struct Parts {
  std::vector<std::vector<float>> inputs;
  std::vector<std::vector<float>> results;
  std::vector<Part> all;

  explicit Parts(int rank) {
    constexpr std::array<std::size_t, 4> kElements{3, 0, 270'001, 4'000};
    for (const std::size_t count : kElements) {
      auto& input = inputs.emplace_back(count);
      for (std::size_t i = 0; i < count; ++i) input[i] = static_cast<float>(value(rank, i));
      results.emplace_back(count, -1.0F);
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      all.push_back({reinterpret_cast<const std::byte*>(inputs[i].data()),
                     reinterpret_cast<std::byte*>(results[i].data()),
                     inputs[i].size() * sizeof(float)});
    }
  }
  static std::size_t value(int rank, std::size_t i) {
    return i % 97 + static_cast<std::size_t>(rank) * 3;
  }
  static float sum(int ranks, std::size_t i) {
    std::size_t sum = 0;
    for (int rank = 0; rank < ranks; ++rank) sum += value(rank, i);
    return static_cast<float>(sum);
  }
};

// Twice the sum, and the inputs as they were.
void reduce_parts(int rank, const Peers& peers, decltype(runtime::ring_allreduce)& allreduce) {
  Parts parts(rank);
  const auto before = parts.inputs;
  runtime::FusionBuffer scratch;
  runtime::Reduction reduction{
      runtime::reduce_function(DataType::float32, ReduceOp::sum), sizeof(float), {}};
  reduction.finish = [](void* data, std::size_t elements) {
    for (std::size_t i = 0; i < elements; ++i) static_cast<float*>(data)[i] *= 2;
  };
  allreduce(peers, runtime::cut_into_blocks(parts.all, sizeof(float), peers.size()), reduction,
            scratch);
  for (const auto& result : parts.results) {
    for (std::size_t i = 0; i < result.size(); ++i) {
      ASSERT_EQ(result[i], 2 * Parts::sum(peers.size(), i)) << i << " of " << result.size();
    }
  }
  EXPECT_EQ(parts.inputs, before);
}

TEST_P(Algorithms, ARingReducesTensorsInSeveralParts) {
  on_peers(
      [](int rank, const Peers& peers) { reduce_parts(rank, peers, runtime::ring_allreduce); });
}

TEST_P(Algorithms, DirectBlocksReduceTensorsInSeveralParts) {
  on_peers(
      [](int rank, const Peers& peers) { reduce_parts(rank, peers, runtime::direct_allreduce); });
}

TEST_P(Halving, ReducesTensorsInSeveralParts) {
  on_peers(
      [](int rank, const Peers& peers) { reduce_parts(rank, peers, runtime::halving_allreduce); });
}

// More pieces than are expected at a time, and several allreduces in a row.
void reduce_many_pieces(int rank, const Peers& peers, decltype(runtime::ring_allreduce)& allreduce,
                        int blocks_of_pieces) {
  const auto pieces = static_cast<std::size_t>(blocks_of_pieces) * (runtime::kAhead + 3);
  const std::size_t count = pieces * kPieceBytes / sizeof(float) + 5;
  std::vector<float> data(count);
  for (std::size_t i = 0; i < count; ++i) data[i] = static_cast<float>(Parts::value(rank, i));
  auto* const bytes = reinterpret_cast<std::byte*>(data.data());
  runtime::FusionBuffer scratch;
  const auto blocks = runtime::cut_into_blocks({{bytes, bytes, count * sizeof(float)}},
                                               sizeof(float), peers.size());
  for (int round = 0; round < 2; ++round) {
    allreduce(peers, blocks,
              {runtime::reduce_function(DataType::float32, ReduceOp::sum), sizeof(float), {}},
              scratch);
  }
  for (std::size_t i = 0; i < count; ++i) {
    const float wanted = Parts::sum(peers.size(), i) * static_cast<float>(peers.size());
    ASSERT_EQ(data[i], wanted) << i;
  }
}

TEST_P(Halving, ReducesManyPiecesInPlace) {
  on_peers([](int rank, const Peers& peers) {
    reduce_many_pieces(rank, peers, runtime::halving_allreduce, 2);
  });
}

TEST_P(FewRanks, BlocksOfManyPiecesGoDirectly) {
  on_peers([](int rank, const Peers& peers) {
    reduce_many_pieces(rank, peers, runtime::direct_allreduce, peers.size());
  });
}

void reduce_in_halves(int rank, const Peers& peers,
                      decltype(runtime::ring_reduce_scatter)& reduce_scatter,
                      decltype(runtime::ring_allgather)& allgather) {
  Parts parts(rank);
  runtime::FusionBuffer scratch;
  const auto blocks = runtime::cut_into_blocks(parts.all, sizeof(float), peers.size());
  reduce_scatter(peers, blocks,
                 {runtime::reduce_function(DataType::float32, ReduceOp::sum), sizeof(float), {}},
                 scratch);
  allgather(peers, blocks);
  for (const auto& result : parts.results) {
    for (std::size_t i = 0; i < result.size(); ++i) {
      ASSERT_EQ(result[i], Parts::sum(peers.size(), i)) << i << " of " << result.size();
    }
  }
}

TEST_P(Algorithms, TheHalvesOfARingMeetInTheWhole) {
  on_peers([](int rank, const Peers& peers) {
    reduce_in_halves(rank, peers, runtime::ring_reduce_scatter, runtime::ring_allgather);
    // Either half may go directly.
    reduce_in_halves(rank, peers, runtime::direct_reduce_scatter, runtime::ring_allgather);
    reduce_in_halves(rank, peers, runtime::ring_reduce_scatter, runtime::direct_allgather);
  });
}

TEST(Blocks, AreAllThatThePartsHoldInNearlyEqualSharesOfWholeElements) {
  constexpr std::size_t kElement = 8;
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::byte> memory(400'000);
    std::vector<Part> parts;
    std::size_t bytes = 0;
    for (unsigned count = random() % 5; count > 0; --count) {
      const std::size_t size = random() % 3 == 0 ? 0 : random() % 9'000 * kElement;
      parts.push_back({memory.data() + bytes, memory.data() + bytes, size});
      bytes += size;
    }
    const int count = static_cast<int>(random() % 8) + 1;
    const auto blocks = runtime::cut_into_blocks(parts, kElement, count);
    ASSERT_EQ(blocks.size(), static_cast<std::size_t>(count));
    std::size_t at = 0;
    for (const auto& block : blocks) {
      const std::size_t begin = at;
      for (const auto& part : block) {
        ASSERT_EQ(part.input, memory.data() + at);
        ASSERT_EQ(part.result, memory.data() + at);
        ASSERT_GT(part.bytes, 0U);
        ASSERT_EQ(part.bytes % kElement, 0U);
        at += part.bytes;
      }
      // Whole lines of elements, so the last one may have a little more.
      ASSERT_LE(at - begin, bytes / blocks.size() + 2 * runtime::kReduceGrain * kElement);
    }
    ASSERT_EQ(at, bytes);
  }
}

}  // namespace
}  // namespace hvd::test
