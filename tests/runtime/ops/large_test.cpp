// More elements than an int can count, and messages of more bytes than 32 bits can. It takes 9 GB
// of memory and some seconds.
#include <cstdint>
#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>
#include <gtest/gtest.h>
#include <vector>

#include "tests/runtime/ops/gloo_ranks.h"

namespace hvd::test {
namespace {

using runtime::Entry;
using runtime::Kind;
using runtime::Outcome;

// Of bytes, so that the memory of two ranks fits into a small machine.
TEST(Large, MoreThanTwoToThe31ElementsAreReduced) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer needs four times the memory of what it watches: 20 GB";
#endif
  constexpr std::size_t kCount = (std::size_t{1} << 31) + 4'099;
  on_gloo_ranks(runtime::Transport::hvd, 2, [](int rank, GlooRank& self) {
    std::vector<std::uint8_t> data(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      data[i] = static_cast<std::uint8_t>(i % 97 + static_cast<std::size_t>(rank));
    }
    std::vector<Entry> entries(1);
    entries[0].request.name = "large";
    entries[0].request.kind = Kind::allreduce;
    entries[0].request.type = DataType::uint8;
    entries[0].request.shape = {kCount};
    entries[0].input = entries[0].output = data.data();
    runtime::Response response;
    response.tensors = {std::make_shared<const runtime::ResponseTensor>(
        runtime::ResponseTensor{entries[0].request, {}})};
    std::vector<Outcome> outcomes(1);
    const Status ran = self.run(response, {runtime::kGlobalSet, {0, 1}, rank}, entries, outcomes);
    ASSERT_TRUE(ran.ok()) << ran.to_string();
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < kCount; ++i) wrong += data[i] != 2 * (i % 97) + 1;
    EXPECT_EQ(wrong, 0U);
  });
}

TEST(Large, OneMessageOfMoreThanFourGigabytesArrives) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer needs four times the memory of what it watches: 36 GB";
#endif
  constexpr std::size_t kCount = (std::size_t{1} << 32) + 4'099;
  const auto byte_at = [](std::size_t i) { return static_cast<std::uint8_t>(i % 251 + (i >> 24)); };
  Hub addresses(2);
  std::vector<std::thread> threads;
  threads.reserve(2);
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const auto mesh = make_tcp_mesh(mesh_options(rank, 2));
      connect_through(addresses, rank, *mesh);
      std::vector<std::uint8_t> data(kCount);
      for (std::size_t i = 0; rank == 0 && i < kCount; ++i) data[i] = byte_at(i);
      const auto buffer = mesh->transport().createUnboundBuffer(data.data(), data.size());
      if (rank == 0) {
        buffer->send(1, 1);
        EXPECT_TRUE(buffer->waitSend(kLong));
        return;
      }
      buffer->recv(0, 1);
      EXPECT_TRUE(buffer->waitRecv(kLong));
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < kCount; ++i) wrong += data[i] != byte_at(i);
      EXPECT_EQ(wrong, 0U);
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace hvd::test
