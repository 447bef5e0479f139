// Node-local peers in shared memory alone; the conformance tables test them with other hosts.
#include "runtime/ops/shm_node_peers.h"

#include <gtest/gtest.h>
#include <numeric>

#include "tests/runtime/ops/one_tensor.h"
#include "tests/runtime/shm/shm_ranks.h"

namespace hvd::test {
namespace {

using runtime::ShmCollective;

void expect_sums(std::vector<runtime::Block> (*lanes_of)(const runtime::Part& all)) {
  constexpr std::size_t kCount = 500'001;
  struct Chunks {
    std::size_t bytes;
    bool crowded;
  };
  // Chunks of the second size are also written past the caches (chunk_writer.h). In the third case
  // the later rounds have large chunks.
  for (const Chunks& chunks :
       {Chunks{4 << 10, false}, Chunks{128 << 10, false}, Chunks{4 << 10, true}}) {
    const std::atomic<bool> crowded = chunks.crowded;
    on_shm_ranks(
        3,
        [lanes_of](int rank, ShmRank& self) {
          const auto group = world_of(3, rank);
          ASSERT_TRUE(self.host().serves(0, group.ranks));
          for (std::size_t round = 0; round < 4; ++round) {
            std::vector<float> data(kCount);
            std::iota(data.begin(), data.end(),
                      static_cast<float>(rank) + static_cast<float>(round));
            auto* const bytes = reinterpret_cast<std::byte*>(data.data());
            const auto lanes = lanes_of({bytes, bytes, kCount * sizeof(float)});
            ShmCollective collective(self.host(), 0, group.ranks, rank);
            runtime::ShmNodePeers node_peers(collective);
            node_peers.reduce(
                lanes, {runtime::reduce_function(DataType::float32, ReduceOp::sum), sizeof(float)});
            node_peers.gather(lanes);
            collective.end();
            for (std::size_t i = 0; i < kCount; ++i) {
              ASSERT_EQ(data[i], 3 * static_cast<float>(i + round + 1)) << i;
            }
          }
        },
        {chunks.bytes, {}, {kLong, false, &crowded}});
  }
}

TEST(ShmNodePeers, ReduceAndGatherWithAnyBlocks) {
  expect_sums(
      [](const runtime::Part& all) { return runtime::cut_into_blocks({all}, sizeof(float), 3); });
}

TEST(ShmNodePeers, SomeOfThemMayHaveNoLane) {
  expect_sums([](const runtime::Part& all) {
    auto lanes = runtime::cut_into_blocks({all}, sizeof(float), 2);
    lanes.insert(lanes.begin() + 1, runtime::Block{});
    return lanes;
  });
}

}  // namespace
}  // namespace hvd::test
