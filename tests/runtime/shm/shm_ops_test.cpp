// Operations in shared memory, besides the results that the conformance tables check.
#include <cstring>
#include <gtest/gtest.h>
#include <map>
#include <numeric>

#include "runtime/ops/layout.h"
#include "tests/runtime/ops/one_tensor.h"
#include "tests/runtime/shm/shm_ranks.h"

namespace hvd::test {
namespace {

using runtime::Kind;
using runtime::Outcome;

TEST(ShmOps, AllRanksGetTheSameBitsWhateverTheChunksAndWhicheverRankReduces) {
  constexpr std::size_t kCount = 40'001;
  std::vector<std::vector<float>> results;
  std::mutex mutex;
  for (const auto& options :
       {ShmRankOptions{4096, {0}, {kLong, false}}, ShmRankOptions{1 << 20, {0}, {kLong, false}},
        ShmRankOptions{1 << 20, {std::size_t{1} << 30}, {kLong, true}}}) {
    on_shm_ranks(
        5,
        [&](int rank, ShmRank& self) {
          for (int round = 0; round < 3; ++round) {
            OneTensor sum(Kind::allreduce, uneven_numbers(rank, kCount));
            ASSERT_TRUE(sum.run(self, world_of(5, rank)).ok());
            const std::lock_guard lock(mutex);
            results.push_back(std::move(sum.output));
          }
        },
        options);
  }
  ASSERT_EQ(results.size(), 45U);
  for (const auto& result : results) {
    EXPECT_EQ(result, results.front());
  }
  // And it is the order of the ranks.
  EXPECT_EQ(results.front(), sum_of_uneven_numbers(5, kCount));
}

TEST(ShmOps, SmallAllreducesHaveTheSameBitsWhetherEachRankReducesThemOrOne) {
  for (const std::size_t count : {1, 5, 700}) {
    for (const int direct_ranks : {1, 5}) {
      ShmRankOptions options;
      options.operations.direct_ranks = direct_ranks;
      on_shm_ranks(
          5,
          [&](int rank, ShmRank& self) {
            for (int round = 0; round < 5; ++round) {
              OneTensor sum(Kind::allreduce, uneven_numbers(rank, count));
              ASSERT_TRUE(sum.run(self, world_of(5, rank)).ok());
              EXPECT_EQ(sum.output, sum_of_uneven_numbers(5, count))
                  << count << " elements, up to " << direct_ranks << " ranks";
            }
          },
          options);
    }
  }
}

struct Large {
  Kind kind;
  Compression compression = Compression::none;
  bool in_place = false;
};

constexpr std::size_t kElements = 499'998;  // of three ranks; their rows do not begin with a line

std::vector<float> result_of(const Large& large, std::vector<float> input, int rank,
                             ShmRank& self) {
  OneTensor tensor(large.kind, std::move(input));
  tensor.extents.assign(3, static_cast<std::int64_t>(kElements));
  tensor.entry.request.compression = large.compression;
  auto& result = large.in_place ? tensor.input : tensor.output;
  if (large.kind == Kind::allgather) result.resize(3 * kElements);
  tensor.entry.output = result.data();
  const Outcome outcome = tensor.run(self, world_of(3, rank));
  EXPECT_TRUE(outcome.ok()) << outcome.failure.status.to_string();
  return std::move(result);
}

// Where there are chunks enough, and long enough, some are written past the caches in any case.
TEST(ShmOps, StoresPastTheCachesGiveTheSameResults) {
  constexpr std::size_t kTooShort = 32 << 10;
  constexpr auto kNone = Compression::none;
  std::vector<std::vector<float>> inputs;  // by rank
  for (int rank = 0; rank < 3; ++rank) inputs.push_back(uneven_numbers(rank, kElements));
  for (const Large& large :
       {Large{Kind::allreduce}, Large{Kind::allreduce, Compression::bfloat16},
        Large{Kind::reducescatter}, Large{Kind::reducescatter, kNone, true}, Large{Kind::allgather},
        Large{Kind::alltoall}, Large{Kind::broadcast}}) {
    std::map<int, std::vector<float>> results;  // of each rank
    std::mutex mutex;
    const auto run_often = [&](int rank, ShmRank& self) {
      for (int round = 0; round < 4; ++round) {
        auto result = result_of(large, inputs[static_cast<std::size_t>(rank)], rank, self);
        const std::lock_guard lock(mutex);
        const auto& wanted = results.try_emplace(rank, result).first->second;
        ASSERT_EQ(wanted.size(), result.size());
        // The same bits; and it is fast, in tests that are not optimised.
        EXPECT_EQ(std::memcmp(wanted.data(), result.data(), result.size() * sizeof(float)), 0)
            << kind_name(large.kind) << ", rank " << rank;
      }
    };
    for (const std::size_t chunk_bytes : {kTooShort, 4 * kTooShort}) {
      on_shm_ranks(3, run_often, {chunk_bytes, {}, {kLong, false}});
    }
    // The last two rounds have large chunks.
    const std::atomic<bool> crowded = true;
    on_shm_ranks(3, run_often, {kTooShort / 8, {}, {kLong, false, &crowded}});
  }
}

TEST(ShmOps, SplitsThatDoNotFitAreTheSameErrorOnEveryRankBeforeAnythingMoves) {
  on_shm_ranks(3, [&](int rank, ShmRank& self) {
    OneTensor tensor(Kind::alltoall, {1, 2, 3, 4});
    tensor.extents = {4, 4, 4};
    tensor.entry.splits =
        rank == 1 ? std::vector<std::int64_t>{2, 2, 1} : std::vector<std::int64_t>{1, 1, 1};
    const Outcome outcome = tensor.run(self, world_of(3, rank));
    EXPECT_EQ(outcome.failure.status.message(),
              "alltoall \"gradients\": rank 1 has 4 rows, but its splits add up to 5");
    EXPECT_EQ(tensor.output, std::vector<float>(4));
    expect_sum_works(self, 3, rank);
  });
}

TEST(ShmOps, ABroadcastWhoseRootHasJoinedIsAnErrorOnAllOthers) {
  on_shm_ranks(3, [](int rank, ShmRank& self) {
    OneTensor tensor(Kind::broadcast, {1, 2});
    tensor.entry.request.root = 2;
    tensor.response.joined = {2};
    const Outcome outcome = tensor.run(self, world_of(3, rank));
    EXPECT_EQ(outcome.failure.status.code(), rank == 2 ? Code::ok : Code::failed_precondition);
    expect_sum_works(self, 3, rank);
  });
}

TEST(ShmOps, ARankWithoutMemoryForItsOutputFailsAlone) {
  for (const auto kind : {Kind::allgather, Kind::reducescatter, Kind::alltoall}) {
    on_shm_ranks(3, [kind](int rank, ShmRank& self) {
      OneTensor tensor(kind, std::vector<float>(3, static_cast<float>(rank)));
      tensor.extents = {3, 3, 3};
      std::vector<float> output;
      tensor.entry.allocate = [&](const std::vector<std::int64_t>& shape) -> void* {
        if (rank == 1) return nullptr;
        output.resize(static_cast<std::size_t>(shape.front()));
        return output.data();
      };
      const Outcome outcome = tensor.run(self, world_of(3, rank));
      if (rank == 1) {
        EXPECT_EQ(outcome.failure.status.code(), Code::resource_exhausted);
      } else {
        EXPECT_TRUE(outcome.ok()) << outcome.failure.status.to_string();
        const auto total = std::accumulate(output.begin(), output.end(), 0.F);
        EXPECT_EQ(total, kind == Kind::allgather ? 9.F : 3.F);
      }
      expect_sum_works(self, 3, rank);
    });
  }
}

TEST(ShmOps, AdasumAndTensorsOnADeviceAreLeftToOthers) {
  on_shm_ranks(2, [](int rank, ShmRank& self) {
    OneTensor device(Kind::allreduce, {1});
    device.entry.request.on_host = false;
    EXPECT_EQ(device.run(self, world_of(2, rank)).failure.status.message(),
              "no operation is enabled");
    OneTensor adasum(Kind::allreduce, {1});
    adasum.entry.request.op = ReduceOp::adasum;
    EXPECT_EQ(adasum.run(self, world_of(2, rank)).failure.status.message(),
              "no operation is enabled");
    expect_sum_works(self, 2, rank);
  });
}

class Later final : public ReadyEvent {
 public:
  explicit Later(std::function<void()> make) : make_(std::move(make)) {}
  bool ready() const override { return false; }
  void wait() override { make_(); }

 private:
  std::function<void()> make_;
};

TEST(ShmOps, AnInputIsReadOnlyWhenItIsReady) {
  on_shm_ranks(2, [](int rank, ShmRank& self) {
    OneTensor tensor(Kind::allreduce, {0, 0});
    tensor.entry.ready = std::make_shared<Later>([&] { tensor.input = {1, 2}; });
    tensor.entry.input = tensor.input.data();
    EXPECT_TRUE(tensor.run(self, world_of(2, rank)).ok());
    EXPECT_EQ(tensor.output, (std::vector<float>{2, 4}));
  });
}

TEST(ShmOps, AnAbortEndsPendingAndLaterOperations) {
  on_shm_ranks(3, [&](int rank, ShmRank& self) {
    if (rank == 2) return;  // it never comes: the others wait for it
    std::thread aborter([&] { self.abort(); });
    OneTensor tensor(Kind::allreduce, std::vector<float>(1'000'000, 1));
    EXPECT_EQ(tensor.run(self, world_of(3, rank)).failure.status.code(), Code::aborted);
    EXPECT_EQ(tensor.run(self, world_of(3, rank)).failure.status.code(), Code::aborted);
    aborter.join();
  });
}

// The rows that are kept are written where rows of others lie that go into a later chunk.
TEST(ShmOps, AReducescatterOfManyTensorsInPlaceReadsAllBeforeItOverwrites) {
  on_shm_ranks(
      3,
      [](int rank, ShmRank& self) {
        std::vector<std::vector<float>> data;
        for (const std::size_t count : {1000, 2, 4001, 7}) {
          data.emplace_back(count);
          std::iota(data.back().begin(), data.back().end(), static_cast<float>(rank));
        }
        Batch batch(Kind::reducescatter);
        for (auto& tensor : data) batch.add(tensor.data(), tensor.size());
        ASSERT_TRUE(batch.run(self, world_of(3, rank)).ok());
        for (const auto& tensor : data) {
          const auto [begin, count] =
              runtime::reducescatter_rows(static_cast<std::int64_t>(tensor.size()), 3, rank);
          for (std::int64_t i = 0; i < count; ++i) {
            ASSERT_EQ(tensor[static_cast<std::size_t>(i)], static_cast<float>(3 * (begin + i) + 3));
          }
        }
      },
      {4096, {}, {kLong, false}});
}

}  // namespace
}  // namespace hvd::test
