// When ranks use large chunks, and that all of them do.
#include "runtime/shm/crowding.h"

#include <array>
#include <atomic>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "base/machine/proc.h"
#include "runtime/core/affinity.h"
#include "tests/runtime/shm/shm_groups.h"

namespace hvd::test {
namespace {

using runtime::ChunkSize;
using runtime::Crowding;
using runtime::ShmCollective;
using runtime::ShmGroup;
using runtime::ShmLayout;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr TimePoint kBegin{std::chrono::hours(1)};

TEST(Crowding, ThereIsNoneWhereRanksShareCoresWithEachOtherAlone) {
  Crowding crowding(2);
  Crowding crowding_of_many(4);
  for (int i = 0; i < 50; ++i) {
    crowding.passed(100, 100 * microseconds(100), kBegin);
    EXPECT_FALSE(crowding.is_crowded(kBegin));
    crowding_of_many.passed(100, 100 * microseconds(200), kBegin);
    EXPECT_FALSE(crowding_of_many.is_crowded(kBegin));
  }
  crowding.passed(100, 100 * microseconds(200), kBegin);
  EXPECT_TRUE(crowding.is_crowded(kBegin));
}

TEST(Crowding, IsPresumedForASecond) {
  Crowding crowding(2);
  EXPECT_FALSE(crowding.is_crowded(kBegin)) << "nothing is known yet";
  crowding.passed(100, 100 * milliseconds(1), kBegin);
  EXPECT_TRUE(crowding.is_crowded(kBegin + milliseconds(999)));
  EXPECT_FALSE(crowding.is_crowded(kBegin + seconds(1)));
}

TEST(Crowding, IsPresumedForLongerIfItIsFoundAgain) {
  Crowding crowding(2);
  TimePoint now = kBegin;
  for (const auto wanted : {1, 2, 4, 8, 16, 16}) {
    crowding.passed(100, 100 * milliseconds(1), now);
    now += seconds(wanted) - milliseconds(1);
    EXPECT_TRUE(crowding.is_crowded(now)) << wanted;
    now += milliseconds(1);
    EXPECT_FALSE(crowding.is_crowded(now)) << wanted;
  }

  // It was over meanwhile.
  crowding.passed(100, 100 * microseconds(1), now);
  crowding.passed(100, 100 * milliseconds(1), now);
  EXPECT_TRUE(crowding.is_crowded(now + milliseconds(999)));
  EXPECT_FALSE(crowding.is_crowded(now + seconds(1)));
}

TEST(Crowding, FewChunksAreJudgedTogether) {
  Crowding crowding(2);
  for (int i = 0; i < 7; ++i) {
    crowding.passed(8, i == 0 ? seconds(1) : seconds(0), kBegin);
    EXPECT_FALSE(crowding.is_crowded(kBegin)) << i;
  }
  crowding.passed(8, seconds(0), kBegin);
  EXPECT_TRUE(crowding.is_crowded(kBegin));
}

TEST(LargeChunks, AreUsedByAllRanksIfOneIsShortOfCores) {
  auto memory = ShmLayout::create(3, kLittle);
  ASSERT_TRUE(memory.ok()) << memory.status().to_string();
  std::atomic<bool> crowded = true;
  std::array<std::vector<std::size_t>, 3> sizes;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      const auto options = rank == 1 ? ShmGroup::Options{kLong, false, &crowded} : kSleepy;
      const auto host = host_of(*memory, 3, rank, options);
      ASSERT_TRUE(host->serves(0, first_ranks(3)));
      for (const int syncs : {1, 2, 1, 3, 1, 5, 2, 7, 0, 2, 3, 1}) {
        if (syncs == 0 && rank == 1) crowded = false;
        if (syncs == 0) continue;
        sizes.at(static_cast<std::size_t>(rank)).push_back(exchange_chunks(*host, 3, rank, syncs));
      }
    });
  }
  for (auto& thread : threads) thread.join();

  // The first collective of two steps tells all ranks of it, the second one that all have memory.
  const std::size_t large = memory->chunk_bytes(ChunkSize::large);
  EXPECT_EQ(large, 8 * kLittle);
  const std::vector<std::size_t> wanted{kLittle, kLittle, kLittle, kLittle, large,  large,
                                        large,   large,   large,   kLittle, kLittle};
  for (const auto& seen : sizes) EXPECT_EQ(seen, wanted);
}

// Collectives that fit into one large chunk tell nothing, and could have many steps in small ones.
TEST(LargeChunks, AreGivenUpWhereAllCollectivesHaveOneStep) {
  const std::atomic<bool> crowded = true;
  on_groups(2, {kLong, false, &crowded}, [](int rank, ShmGroup& host) {
    ASSERT_TRUE(host.serves(0, first_ranks(2)));
    exchange_chunks(host, 2, rank, 2);
    exchange_chunks(host, 2, rank, 2);
    int large = 0;
    while (exchange_chunks(host, 2, rank, 1) > kLittle && large < 1'000) ++large;
    EXPECT_EQ(large, 65);
    exchange_chunks(host, 2, rank, 2);
    EXPECT_GT(exchange_chunks(host, 2, rank, 2), kLittle);
  });
}

TEST(LargeChunks, AreNotForMoreThan64Ranks) {
  EXPECT_EQ(ShmLayout::create(64, kLittle)->chunk_bytes(ChunkSize::large), 2 * kLittle);
  EXPECT_EQ(ShmLayout::create(65, kLittle)->chunk_bytes(ChunkSize::large), kLittle);
}

TEST(LargeChunks, AreUsedBesideProgramsThatTakeTheCores) {
  if (!time_without_core()) GTEST_SKIP() << "this kernel does not count waits for cores";
  // All on one core, which threads inherit.
  runtime::PinnedThread here;
  ASSERT_TRUE(here.pin(runtime::usable_cores().back()).ok());
  std::atomic<bool> over = false;
  std::vector<std::thread> programs;
  for (int i = 0; i < 6; ++i) {
    programs.emplace_back([&over] {
      while (!over) {
      }
    });
  }
  on_groups(2, {kLong, false, nullptr, 2}, [](int rank, ShmGroup& host) {
    ASSERT_TRUE(host.serves(0, first_ranks(2)));
    const auto deadline = Clock::now() + kLong / 2;
    std::size_t bytes = kLittle;
    bool is_late = false;
    while (bytes == kLittle && !is_late) {
      // Both give up in the same round.
      ShmCollective collective(host, 0, first_ranks(2), rank);
      *collective.chunk(rank) = std::byte(Clock::now() > deadline ? 1 : 0);
      ASSERT_TRUE(collective.sync().ok());
      is_late = collective.chunk(0)[0] == std::byte{1};
      collective.next_chunk();
      collective.end();
      bytes = exchange_chunks(host, 2, rank, 20);
    }
    EXPECT_GT(bytes, kLittle);
  });
  over = true;
  for (auto& program : programs) program.join();
}

}  // namespace
}  // namespace hvd::test
