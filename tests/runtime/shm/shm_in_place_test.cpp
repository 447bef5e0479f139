// Allreduces of tensors that lie in the heaps of the ranks, in place.
#include <algorithm>
#include <chrono>
#include <gtest/gtest.h>
#include <memory>
#include <sys/stat.h>
#include <utility>
#include <vector>

#include "runtime/shm/shared_heap.h"
#include "tests/runtime/ops/one_tensor.h"
#include "tests/runtime/shm/shm_ranks.h"

namespace hvd::test {
namespace {

using runtime::Kind;
using runtime::Outcome;
using runtime::Segment;
using runtime::SharedHeap;

// Ranks are threads here, so all have the same heap.
ShmRankOptions with_heaps(int size, std::size_t chunk_bytes = 4096) {
  ShmRankOptions options;
  options.chunk_bytes = chunk_bytes;
  options.operations.direct_bytes = 256;
  options.heaps.assign(static_cast<std::size_t>(size), SharedHeap::of_process().fd());
  return options;
}

class HeapTensor {
 public:
  // It begins `before` elements behind the beginning of its memory.
  explicit HeapTensor(std::vector<float> values, std::size_t before = 0)
      : memory_(*SharedHeap::of_process().allocate((values.size() + before) * sizeof(float))),
        count_(values.size()),
        before_(before) {
    std::copy(values.begin(), values.end(), data());
  }
  ~HeapTensor() { SharedHeap::of_process().free(memory_); }
  HeapTensor(const HeapTensor&) = delete;
  HeapTensor& operator=(const HeapTensor&) = delete;

  float* data() const { return reinterpret_cast<float*>(memory_) + before_; }
  std::vector<float> values() const { return {data(), data() + count_}; }

 private:
  std::byte* memory_;
  std::size_t count_;
  std::size_t before_;
};

Outcome sum_in_place(ShmRank& self, int size, int rank, float* data, std::size_t count,
                     ReduceOp op = ReduceOp::sum) {
  OneTensor tensor(Kind::allreduce, {});
  tensor.entry.request.shape = {static_cast<std::int64_t>(count)};
  tensor.entry.request.op = op;
  tensor.entry.input = tensor.entry.output = data;
  return tensor.run(self, world_of(size, rank));
}

// Later rounds have large chunks, and so larger slices.
TEST(ShmInPlace, AddsTheSameInSlicesOfAnySize) {
  constexpr std::size_t kCount = 100'001;
  ShmRankOptions options = with_heaps(3);
  const std::atomic<bool> crowded = true;
  options.host.crowded = &crowded;
  on_shm_ranks(
      3,
      [](int rank, ShmRank& self) {
        for (int round = 0; round < 4; ++round) {
          const HeapTensor tensor(uneven_numbers(rank, kCount));
          ASSERT_TRUE(sum_in_place(self, 3, rank, tensor.data(), kCount).ok());
          EXPECT_EQ(tensor.values(), sum_of_uneven_numbers(3, kCount)) << "round " << round;
        }
      },
      options);
}

TEST(ShmInPlace, AddsInTheOrderOfTheRanks) {
  for (const int size : {2, 3, 5}) {
    for (const std::size_t count : {65U, 1000U, 40'001U}) {
      on_shm_ranks(
          size,
          [&](int rank, ShmRank& self) {
            const HeapTensor tensor(uneven_numbers(rank, count), static_cast<std::size_t>(rank));
            ASSERT_TRUE(sum_in_place(self, size, rank, tensor.data(), count).ok());
            EXPECT_EQ(tensor.values(), sum_of_uneven_numbers(size, count))
                << size << " ranks, " << count;
          },
          with_heaps(size));
    }
  }
}

TEST(ShmInPlace, DividesByTheNumberOfRanks) {
  on_shm_ranks(
      3,
      [](int rank, ShmRank& self) {
        const HeapTensor tensor(std::vector<float>(5000, static_cast<float>(3 * rank)));
        ASSERT_TRUE(sum_in_place(self, 3, rank, tensor.data(), 5000, ReduceOp::average).ok());
        EXPECT_EQ(tensor.values(), std::vector<float>(5000, 3));
      },
      with_heaps(3));
}

TEST(ShmInPlace, ReducesManyTensorsOfOneBatch) {
  on_shm_ranks(
      3,
      [](int rank, ShmRank& self) {
        std::vector<std::unique_ptr<HeapTensor>> tensors;
        Batch batch(Kind::allreduce);
        const std::vector<std::size_t> counts{1000, 1, 0, 20'003, 64, 7};
        for (const std::size_t count : counts) {
          tensors.push_back(std::make_unique<HeapTensor>(uneven_numbers(rank, count)));
          batch.add(tensors.back()->data(), count);
        }
        ASSERT_TRUE(batch.run(self, world_of(3, rank)).ok());
        for (std::size_t i = 0; i < counts.size(); ++i) {
          EXPECT_EQ(tensors[i]->values(), sum_of_uneven_numbers(3, counts[i])) << i;
        }
      },
      with_heaps(3));
}

// In every round another rank has its tensor elsewhere, and none at last.
TEST(ShmInPlace, GivesTheSameWhereATensorIsInOrdinaryMemory) {
  constexpr std::size_t kCount = 10'000;
  on_shm_ranks(
      3,
      [](int rank, ShmRank& self) {
        for (int round = 0; round < 12; ++round) {
          const HeapTensor shared(uneven_numbers(rank, kCount));
          std::vector<float> ordinary = uneven_numbers(rank, kCount);
          const bool elsewhere = rank == round % 4;
          float* const data = elsewhere ? ordinary.data() : shared.data();
          ASSERT_TRUE(sum_in_place(self, 3, rank, data, kCount).ok());
          EXPECT_EQ(elsewhere ? ordinary : shared.values(), sum_of_uneven_numbers(3, kCount))
              << round;
        }
      },
      with_heaps(3));
}

TEST(ShmInPlace, AnOutputElsewhereLeavesTheInput) {
  constexpr std::size_t kCount = 10'000;
  on_shm_ranks(
      2,
      [](int rank, ShmRank& self) {
        const HeapTensor input(uneven_numbers(rank, kCount));
        const HeapTensor output(std::vector<float>(kCount, -1));
        OneTensor tensor(Kind::allreduce, {});
        tensor.entry.request.shape = {kCount};
        tensor.entry.input = input.data();
        tensor.entry.output = output.data();
        ASSERT_TRUE(tensor.run(self, world_of(2, rank)).ok());
        EXPECT_EQ(input.values(), uneven_numbers(rank, kCount));
        EXPECT_EQ(output.values(), sum_of_uneven_numbers(2, kCount));
      },
      with_heaps(2));
}

// Rank 1 is given a wrong heap of rank 0, with other numbers, which it finds if it reads there.
TEST(ShmInPlace, ReadsTheTensorsInTheHeapsOfTheOthers) {
  constexpr std::size_t kCount = 10'000;
  struct stat heap {};
  ASSERT_EQ(::fstat(SharedHeap::of_process().fd(), &heap), 0);
  auto decoy = Segment::create(static_cast<std::size_t>(heap.st_size));
  ASSERT_TRUE(decoy.ok()) << decoy.status().to_string();
  auto options = with_heaps(2);
  options.heaps_of_rank[1] = {(*decoy)->fd(), options.heaps[1]};
  on_shm_ranks(
      2,
      [&](int rank, ShmRank& self) {
        const HeapTensor tensor(std::vector<float>(kCount, 1));
        if (rank == 0) {
          const auto offset = *SharedHeap::of_process().offset_of(tensor.data(), 1);
          ASSERT_TRUE((*decoy)->reserve(offset, kCount * sizeof(float)).ok());
          auto* const numbers = reinterpret_cast<float*>((*decoy)->data() + offset);
          std::fill(numbers, numbers + kCount, 100.F);
        }
        ASSERT_TRUE(sum_in_place(self, 2, rank, tensor.data(), kCount).ok());
        const auto values = tensor.values();
        if (rank == 0) {
          EXPECT_EQ(values.front(), 2.F);   // what it reduced itself
          EXPECT_EQ(values.back(), 101.F);  // what rank 1 reduced
        } else {
          EXPECT_EQ(values.front(), 100.F);
          EXPECT_EQ(values.back(), 101.F);
        }
      },
      options);
}

TEST(ShmInPlace, ATensorThatIsNotInItsHeapIsAnError) {
  auto little = Segment::create(runtime::page_bytes());
  ASSERT_TRUE(little.ok()) << little.status().to_string();
  auto options = with_heaps(2);
  options.heaps_of_rank[1] = {(*little)->fd(), options.heaps[1]};
  options.host.timeout = std::chrono::milliseconds(200);  // rank 0 times out
  on_shm_ranks(
      2,
      [](int rank, ShmRank& self) {
        constexpr std::size_t kCount = 10'000;
        const HeapTensor tensor(std::vector<float>(kCount, 1));
        const Outcome outcome = sum_in_place(self, 2, rank, tensor.data(), kCount);
        if (rank == 1) {
          EXPECT_EQ(outcome.failure.status.code(), Code::internal);
        }
      },
      options);
}

}  // namespace
}  // namespace hvd::test
