// Operations over Gloo, besides the results that the conformance tables check: errors that concern
// one tensor, memory, readiness, and ends.
#include <atomic>
#include <cstring>
#include <gtest/gtest.h>
#include <numeric>

#include "base/text.h"
#include "runtime/ops/layout.h"
#include "tests/runtime/ops/gloo_ranks.h"
#include "tests/runtime/ops/one_tensor.h"

namespace hvd::test {
namespace {

using runtime::Kind;
using runtime::Outcome;

class GlooOps : public ::testing::TestWithParam<runtime::Transport> {
 protected:
  static void on_ranks(int size, const std::function<void(int rank, GlooRank& self)>& body) {
    on_gloo_ranks(GetParam(), size, body);
  }
  static void expect_alltoall_error(std::vector<std::int64_t> splits, const std::string& message);
};

INSTANTIATE_TEST_SUITE_P(Transports, GlooOps,
                         ::testing::Values(runtime::Transport::hvd, runtime::Transport::gloo_tcp),
                         [](const auto& tested) { return transport_name(tested.param); });

// Rank 1 gives these splits for its four rows, ranks 0 and 2 one row for each.
void GlooOps::expect_alltoall_error(std::vector<std::int64_t> splits, const std::string& message) {
  on_ranks(3, [&](int rank, GlooRank& self) {
    OneTensor tensor(Kind::alltoall, {1, 2, 3, 4});
    tensor.extents = {4, 4, 4};
    tensor.entry.splits = rank == 1 ? splits : std::vector<std::int64_t>{1, 1, 1};
    const Outcome outcome = tensor.run(self, world_of(3, rank));
    EXPECT_EQ(outcome.failure.status.code(), Code::invalid_argument) << rank;
    EXPECT_EQ(outcome.failure.status.message(), cat("alltoall \"gradients\": ", message)) << rank;
    EXPECT_EQ(tensor.output, std::vector<float>(4)) << "something was sent";
    expect_sum_works(self, 3, rank);
  });
}

TEST_P(GlooOps, SplitsBeyondTheRowsAreTheSameErrorOnEveryRank) {
  expect_alltoall_error({2, 2, 1}, "rank 1 has 4 rows, but its splits add up to 5");
}

TEST_P(GlooOps, SplitsThatOverflowAreAnError) {
  expect_alltoall_error({INT64_MAX, INT64_MAX, 1},
                        cat("rank 1 has 4 rows, but its splits add up to ", INT64_MAX));
}

TEST_P(GlooOps, TooFewSplitsAreTheSameErrorOnEveryRank) {
  expect_alltoall_error({2, 2}, "rank 1 gave 2 splits for 3 ranks");
}

TEST_P(GlooOps, TooManySplitsAreTheSameErrorOnEveryRank) {
  expect_alltoall_error({1, 1, 1, 1}, "rank 1 gave 4 splits for 3 ranks");
}

TEST_P(GlooOps, ANegativeSplitIsTheSameErrorOnEveryRank) {
  expect_alltoall_error({2, -1, 1}, "rank 1 gave a negative split, -1, for rank 1 of the set");
}

TEST_P(GlooOps, RowsThatCannotBeSharedEvenlyNeedSplits) {
  expect_alltoall_error({},
                        "rank 1 has 4 rows and gave no splits; 3 ranks cannot share them evenly. "
                        "Give splits.");
}

TEST_P(GlooOps, ABroadcastWhoseRootHasJoinedIsAnErrorOnAllOthers) {
  on_ranks(3, [](int rank, GlooRank& self) {
    OneTensor tensor(Kind::broadcast, {1, 2});
    tensor.entry.request.root = 2;
    tensor.response.joined = {2};
    const Outcome outcome = tensor.run(self, world_of(3, rank));
    if (rank != 2) {
      EXPECT_EQ(outcome.failure.status.code(), Code::failed_precondition);
      EXPECT_NE(outcome.failure.status.message().find("rank 2, has joined"), std::string::npos)
          << outcome.failure.status.message();
    }
    expect_sum_works(self, 3, rank);
  });
}

TEST_P(GlooOps, ARankWithoutMemoryForItsOutputFailsAlone) {
  on_ranks(3, [](int rank, GlooRank& self) {
    OneTensor tensor(Kind::allgather, {static_cast<float>(rank)});
    tensor.extents = {1, 1, 1};
    std::vector<float> gathered;
    tensor.entry.allocate = [&](const std::vector<std::int64_t>& shape) -> void* {
      if (rank == 1) return nullptr;
      gathered.resize(static_cast<std::size_t>(shape.front()));
      return gathered.data();
    };
    const Outcome outcome = tensor.run(self, world_of(3, rank));
    if (rank == 1) {
      EXPECT_EQ(outcome.failure.status.code(), Code::resource_exhausted);
      EXPECT_EQ(outcome.failure.status.message(),
                "allgather \"gradients\": there is no memory for the output, float32[3]");
    } else {
      EXPECT_TRUE(outcome.ok()) << outcome.failure.status.to_string();
      EXPECT_EQ(gathered, (std::vector<float>{0, 1, 2}));
    }
    expect_sum_works(self, 3, rank);
  });
}

TEST_P(GlooOps, AdasumOfIntegersIsAnErrorOfThatTensor) {
  on_ranks(2, [](int rank, GlooRank& self) {
    OneTensor tensor(Kind::allreduce, {1, 2});
    tensor.entry.request.type = DataType::int32;
    tensor.entry.request.op = ReduceOp::adasum;
    const Outcome outcome = tensor.run(self, world_of(2, rank));
    EXPECT_EQ(outcome.failure.status.code(), Code::invalid_argument);
    expect_sum_works(self, 2, rank);
  });
}

TEST_P(GlooOps, AdasumAddsOrthogonalVectorsAndAveragesParallelOnes) {
  for (const int size : {2, 3, 4, 8}) {
    on_ranks(size, [size](int rank, GlooRank& self) {
      const auto count = static_cast<std::size_t>(size);
      std::vector<float> own_axis(count);
      own_axis[static_cast<std::size_t>(rank)] = static_cast<float>(rank + 1);
      OneTensor orthogonal(Kind::allreduce, own_axis);
      orthogonal.entry.request.op = ReduceOp::adasum;
      EXPECT_TRUE(orthogonal.run(self, world_of(size, rank)).ok());
      for (std::size_t i = 0; i < count; ++i) {
        EXPECT_EQ(orthogonal.output[i], static_cast<float>(i + 1)) << size;
      }
      OneTensor parallel(Kind::allreduce, {3, -4, 0, 12});
      parallel.entry.request.op = ReduceOp::adasum;
      EXPECT_TRUE(parallel.run(self, world_of(size, rank)).ok());
      EXPECT_EQ(parallel.output, parallel.input) << size;
    });
  }
}

class Later final : public ReadyEvent {
 public:
  explicit Later(std::function<void()> make) : make_(std::move(make)) {}
  bool ready() const override { return false; }
  void wait() override { make_(); }

 private:
  std::function<void()> make_;
};

TEST_P(GlooOps, AnInputIsReadOnlyWhenItIsReady) {
  on_ranks(2, [](int rank, GlooRank& self) {
    OneTensor tensor(Kind::allreduce, {0, 0});
    tensor.entry.ready = std::make_shared<Later>([&] { tensor.input = {1, 2}; });
    tensor.entry.input = tensor.input.data();
    EXPECT_TRUE(tensor.run(self, world_of(2, rank)).ok());
    EXPECT_EQ(tensor.output, (std::vector<float>{2, 4}));
  });
}

TEST_P(GlooOps, TensorsOnADeviceAreLeftToOthers) {
  on_ranks(2, [](int rank, GlooRank& self) {
    OneTensor tensor(Kind::allreduce, {1});
    tensor.entry.request.on_host = false;
    EXPECT_EQ(tensor.run(self, world_of(2, rank)).failure.status.message(),
              "no operation is enabled");
  });
}

TEST_P(GlooOps, AnAbortEndsPendingAndLaterOperations) {
  std::atomic<int> entered = 0;
  on_ranks(3, [&](int rank, GlooRank& self) {
    if (rank == 2) return;  // it never comes: the others wait for it
    std::thread aborter([&] {
      while (entered < 2) std::this_thread::yield();
      self.abort();
    });
    OneTensor tensor(Kind::allreduce, std::vector<float>(1'000'000, 1));
    ++entered;
    EXPECT_FALSE(tensor.run(self, world_of(3, rank)).ok());
    EXPECT_FALSE(tensor.run(self, world_of(3, rank)).ok());
    aborter.join();
  });
}

// Every outcome has the place and the shape of its output.
TEST_P(GlooOps, AnOutcomeSaysWhereTheOutputIsAndOfWhichShape) {
  const std::vector<std::pair<Kind, std::int64_t>> rows_of_kinds{{Kind::allreduce, 4},
                                                                 {Kind::broadcast, 4},
                                                                 {Kind::reducescatter, 2},
                                                                 {Kind::allgather, 8},
                                                                 {Kind::alltoall, 4}};
  on_ranks(2, [&](int rank, GlooRank& self) {
    for (const auto& [kind, rows] : rows_of_kinds) {
      OneTensor tensor(kind, {1, 2, 3, 4});
      if (kind == Kind::allgather || kind == Kind::alltoall) tensor.extents = {4, 4};
      tensor.output.resize(8);
      tensor.entry.output = tensor.output.data();
      const Outcome outcome = tensor.run(self, world_of(2, rank));
      ASSERT_TRUE(outcome.ok()) << outcome.failure.status.to_string();
      EXPECT_EQ(outcome.output, tensor.output.data()) << kind_name(kind);
      EXPECT_EQ(outcome.shape, std::vector<std::int64_t>{rows}) << kind_name(kind);
      if (kind == Kind::alltoall) {
        EXPECT_EQ(outcome.received_splits, (std::vector<std::int64_t>{2, 2}));
      }
    }
  });
}

TEST_P(GlooOps, RowsGoWhereTheSplitsSay) {
  on_ranks(3, [](int rank, GlooRank& self) {
    const auto own = static_cast<float>(10 * rank);
    OneTensor tensor(Kind::alltoall, {own, own + 1, own + 2, own + 3});
    tensor.extents = {4, 4, 4};
    // Rank 0 keeps its rows, rank 1 sends all to rank 0, rank 2 one to each and keeps one back.
    const std::vector<std::vector<std::int64_t>> splits{{4, 0, 0}, {4, 0, 0}, {1, 1, 1}};
    tensor.entry.splits = splits[static_cast<std::size_t>(rank)];
    tensor.output.resize(9);
    tensor.entry.output = tensor.output.data();
    const Outcome outcome = tensor.run(self, world_of(3, rank));
    ASSERT_TRUE(outcome.ok()) << outcome.failure.status.to_string();
    const std::vector<std::vector<float>> wanted{{0, 1, 2, 3, 10, 11, 12, 13, 20}, {21}, {22}};
    tensor.output.resize(static_cast<std::size_t>(outcome.shape.front()));
    EXPECT_EQ(tensor.output, wanted[static_cast<std::size_t>(rank)]);
    expect_sum_works(self, 3, rank);
  });
}

TEST(Layout, RowsOfAReducescatterFollowEachOtherAndTheFirstRanksHaveOneMore) {
  for (const std::int64_t rows : {0, 1, 5, 8, 13}) {
    for (const int size : {1, 2, 3, 8}) {
      std::int64_t at = 0;
      for (int rank = 0; rank < size; ++rank) {
        const auto [begin, count] = runtime::reducescatter_rows(rows, size, rank);
        EXPECT_EQ(begin, at);
        EXPECT_EQ(count, rows / size + (rank < rows % size ? 1 : 0));
        at += count;
      }
      EXPECT_EQ(at, rows);
    }
  }
}

}  // namespace
}  // namespace hvd::test
