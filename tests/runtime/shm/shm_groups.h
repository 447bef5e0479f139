// Ranks that are threads, each with its ShmGroup of the same memory and without operations.
#pragma once

#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "tests/runtime/shm/shm_ranks.h"

namespace hvd::test {

inline constexpr runtime::ShmGroup::Options kSleepy{kLong, false};
inline constexpr std::size_t kLittle = 4096;  // bytes of a chunk

inline void on_groups(int size, const runtime::ShmGroup::Options& options,
                      const std::function<void(int rank, runtime::ShmGroup& host)>& body) {
  auto memory = runtime::ShmLayout::create(size, kLittle);
  ASSERT_TRUE(memory.ok()) << memory.status().to_string();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] { body(rank, *host_of(*memory, size, rank, options)); });
  }
  for (auto& thread : threads) thread.join();
}

// Fills whole chunks, and reads those of the others. Returns how large they were.
inline std::size_t exchange_chunks(runtime::ShmGroup& host, int size, int rank, int syncs) {
  runtime::ShmCollective collective(host, 0, first_ranks(size), rank);
  const std::size_t bytes = collective.capacity();
  EXPECT_TRUE(collective.open().ok());
  for (int chunk = 0; chunk < syncs; ++chunk) {
    std::memset(collective.chunk(rank), 10 * chunk + rank, bytes);
    EXPECT_TRUE(collective.sync().ok());
    for (int other = 0; other < size; ++other) {
      const std::vector<std::byte> wanted(bytes, std::byte(10 * chunk + other));
      EXPECT_EQ(std::memcmp(collective.chunk(other), wanted.data(), bytes), 0)
          << "chunk " << chunk << " of rank " << other;
    }
    collective.next_chunk();
  }
  collective.end();
  return bytes;
}

}  // namespace hvd::test
