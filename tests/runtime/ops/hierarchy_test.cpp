// Hierarchical collectives, besides the results that the conformance tables check.
#include "runtime/ops/hierarchy.h"

#include <atomic>
#include <cstring>
#include <gtest/gtest.h>
#include <mutex>
#include <numeric>
#include <random>

#include "base/text.h"
#include "tests/runtime/ops/gloo_ranks.h"

namespace hvd::test {
namespace {

using runtime::host_plan;
using runtime::HostPlan;
using Lists = std::vector<std::vector<int>>;

TEST(HostPlan, HasALaneForEachRankOfTheSmallestHost) {
  const std::vector<int> ranks{0, 1, 2, 3, 4};
  const std::vector<int> hosts{7, 7, 3, 3, 3};
  const HostPlan first = host_plan(ranks, 1, hosts);
  EXPECT_EQ(first.hosts, (Lists{{0, 1}, {2, 3, 4}}));
  EXPECT_EQ(first.lanes, 2);
  EXPECT_EQ(first.node_peers(), (std::vector<int>{0, 1}));
  EXPECT_EQ(first.lane(), (std::vector<int>{1, 3}));
  EXPECT_TRUE(first.has_lane());
  const HostPlan last = host_plan(ranks, 4, hosts);
  EXPECT_EQ(last.host, 1);
  EXPECT_EQ(last.local, 2);
  EXPECT_FALSE(last.has_lane()) << "it is the third of its host, and the other has two";
}

TEST(HostPlan, CountsOnlyRanksThatTakePart) {
  const std::vector<int> hosts{0, 0, 1, 1, 2};
  const HostPlan plan = host_plan(std::vector<int>{1, 2, 3, 4}, 2, hosts);
  EXPECT_EQ(plan.hosts, (Lists{{0}, {1, 2}, {3}}));
  EXPECT_EQ(plan.lanes, 1);
  EXPECT_EQ(plan.host, 1);
  EXPECT_EQ(plan.local, 1);
}

TEST(HostPlan, IsOfUseOnlyWithSeveralHostsAndSeveralRanksOnOne) {
  const auto useful = [](const std::vector<int>& hosts) {
    std::vector<int> ranks(hosts.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    return host_plan(ranks, 0, hosts).useful();
  };
  EXPECT_FALSE(useful({0, 0, 0}));
  EXPECT_FALSE(useful({0, 1, 2}));
  EXPECT_TRUE(useful({0, 1, 1}));
  EXPECT_TRUE(useful({0, 0, 1, 1}));
}

constexpr int kRanks = 5;

Status allreduce_of(GlooRank& self, int rank, std::vector<float>& data) {
  runtime::Entry entry;
  entry.request.name = "gradients";
  entry.request.type = DataType::float32;
  entry.request.shape = {static_cast<std::int64_t>(data.size())};
  entry.input = entry.output = data.data();
  runtime::Response response;
  response.tensors = {
      std::make_shared<const runtime::ResponseTensor>(runtime::ResponseTensor{entry.request, {}})};
  runtime::Group group;
  group.ranks = {0, 1, 2, 3, 4};
  group.rank = rank;
  std::vector<runtime::Entry> entries{entry};
  std::vector<runtime::Outcome> outcomes(1);
  return self.run(response, group, entries, outcomes);
}

enum class Inside { messages, memory };

void on_hosts(const std::vector<int>& hosts, Inside inside,
              const std::function<void(int rank, GlooRank& self)>& body) {
  runtime::GlooOperationOptions options{kLong};
  options.hosts = hosts;
  if (inside == Inside::memory) {
    on_gloo_hosts(runtime::Transport::hvd, body, options, std::size_t{64} << 10);
  } else {
    on_gloo_ranks(runtime::Transport::hvd, kRanks, body, options);
  }
}

// The sum over ranks of numbers whose rounding tells the order in which they were added up.
std::vector<std::vector<float>> sums(std::size_t elements, const std::vector<int>& hosts,
                                     Inside inside = Inside::messages) {
  std::vector<std::vector<float>> results(kRanks);
  on_hosts(hosts, inside, [&](int rank, GlooRank& self) {
    std::mt19937 random(static_cast<unsigned>(rank));
    std::uniform_real_distribution<float> any(-1, 1);
    std::vector<float> data(elements);
    for (auto& value : data) value = any(random);
    const Status ran = allreduce_of(self, rank, data);
    EXPECT_TRUE(ran.ok()) << ran.to_string();
    results[static_cast<std::size_t>(rank)] = std::move(data);
  });
  return results;
}

void expect_same_bits(const std::vector<std::vector<float>>& results) {
  for (const auto& result : results) {
    ASSERT_EQ(result.size(), results.front().size());
    EXPECT_EQ(std::memcmp(result.data(), results.front().data(), result.size() * sizeof(float)), 0);
  }
}

TEST(Hierarchy, GivesAllRanksTheSameBitsInAnOrderOfItsOwn) {
  for (const std::size_t elements : {1'000U, 200'003U}) {  // through the leaders, and in lanes
    const auto by_hosts = sums(elements, {0, 0, 0, 1, 1});
    const auto flat = sums(elements, {});
    expect_same_bits(by_hosts);
    expect_same_bits(flat);
    EXPECT_NE(by_hosts.front(), flat.front()) << elements << " elements: it did not go by hosts";
    const auto one_host = sums(elements, {0, 0, 0, 0, 0});
    EXPECT_EQ(one_host.front(), flat.front()) << "one host must cost nothing";
  }
}

TEST(Hierarchy, GivesTheSameBitsInEveryRunWithSharedMemory) {
  for (const std::size_t elements : {1'000U, 200'003U}) {
    const auto first = sums(elements, {0, 0, 0, 1, 1}, Inside::memory);
    expect_same_bits(first);
    EXPECT_NE(first.front(), sums(elements, {}).front()) << "it did not go by hosts";
    for (int run = 0; run < 5; ++run) {
      EXPECT_EQ(sums(elements, {0, 0, 0, 1, 1}, Inside::memory).front(), first.front());
    }
  }
}

// Of hosts {0, 1, 2} and {3, 4} rank 4 does not come, so rank 3 waits in the memory, its partner
// for a message, and the others in the memory for that one. A slow rank is still on the way
// there when the abort comes, and must not wait any more; so it is done until rank 3 was there.
TEST(Hierarchy, AnAbortReachesRanksThatWaitForAMessageOrInSharedMemory) {
  constexpr int kEnough = 200;
  for (const std::size_t elements : {1'000U, 200'003U}) {
    std::atomic<bool> in_memory = false;  // rank 3
    for (int round = 0; round < kEnough && !in_memory; ++round) {
      std::atomic<int> waiting = 0;
      on_hosts({0, 0, 0, 1, 1}, Inside::memory, [&](int rank, GlooRank& self) {
        std::thread aborter([&] {
          while (waiting < kRanks - 1) std::this_thread::yield();
          self.abort();
        });
        if (rank != 4) {
          std::vector<float> data(elements, 1);
          ++waiting;
          const Status ran = allreduce_of(self, rank, data);
          EXPECT_EQ(ran.code(), Code::aborted) << ran.to_string();
          if (rank == 3) in_memory = ran.message().find("shared memory") != std::string::npos;
        }
        aborter.join();
      });
    }
    EXPECT_TRUE(in_memory) << elements << " elements: rank 3 never waited in the memory";
  }
}

}  // namespace
}  // namespace hvd::test
