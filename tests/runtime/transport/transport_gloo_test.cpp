// Gloo's own algorithms run over our transport as they are.
#include <gloo/allgather.h>
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/scatter.h>

#include "tests/runtime/transport/transport_ranks.h"

namespace hvd::test {
namespace {

using runtime::TcpMesh;
using Sum = void (*)(void*, const void*, const void*, std::size_t);

class GloosAlgorithms : public ::testing::TestWithParam<int> {
 protected:
  using Body = std::function<void(int rank, const std::shared_ptr<gloo::Context>& context)>;
  static int size() { return GetParam(); }
  static void run(const Body& body) {
    on_meshes(size(), [&](int rank, TcpMesh& mesh) { body(rank, gloo_on(mesh)); });
  }
  static float sum_of_ranks() { return static_cast<float>(size() * (size() - 1)) / 2; }
};

TEST_P(GloosAlgorithms, Allreduce) {
  for (const auto algorithm :
       {gloo::AllreduceOptions::Algorithm::RING, gloo::AllreduceOptions::Algorithm::BCUBE}) {
    run([&](int rank, const auto& context) {
      for (const std::size_t count : {1UL, 13UL, 1000UL, 1'000'003UL}) {
        std::vector<float> data(count, static_cast<float>(rank));
        gloo::AllreduceOptions options(context);
        options.setAlgorithm(algorithm);
        options.setOutput(data.data(), data.size());
        options.setReduceFunction(static_cast<Sum>(&gloo::sum<float>));
        gloo::allreduce(options);
        EXPECT_EQ(data, std::vector<float>(count, sum_of_ranks())) << count;
      }
    });
  }
}

TEST_P(GloosAlgorithms, Broadcast) {
  run([](int rank, const auto& context) {
    for (int root = 0; root < size(); ++root) {
      std::vector<int> data(100'001, rank);
      gloo::BroadcastOptions options(context);
      options.setOutput(data.data(), data.size());
      options.setRoot(root);
      gloo::broadcast(options);
      EXPECT_EQ(data, std::vector<int>(100'001, root));
    }
  });
}

TEST_P(GloosAlgorithms, AllgatherAndGather) {
  run([](int rank, const auto& context) {
    const auto count = static_cast<std::size_t>(size());
    std::vector<int> own(5000, rank);
    std::vector<int> wanted;
    for (int r = 0; r < size(); ++r) wanted.insert(wanted.end(), 5000, r);
    std::vector<int> all(count * own.size());
    gloo::AllgatherOptions options(context);
    options.setInput(own.data(), own.size());
    options.setOutput(all.data(), all.size());
    gloo::allgather(options);
    EXPECT_EQ(all, wanted);
    std::vector<int> at_root(all.size());
    gloo::GatherOptions gather(context);
    gather.setInput(own.data(), own.size());
    if (rank == size() - 1) gather.setOutput(at_root.data(), at_root.size());
    gather.setRoot(size() - 1);
    gloo::gather(gather);
    if (rank == size() - 1) {
      EXPECT_EQ(at_root, wanted);
    }
  });
}

TEST_P(GloosAlgorithms, AllgathervWithNothingFromSome) {
  run([](int rank, const auto& context) {
    std::vector<std::size_t> counts;
    std::vector<int> wanted;
    for (int r = 0; r < size(); ++r) {
      counts.push_back(static_cast<std::size_t>(r) * 700);
      wanted.insert(wanted.end(), counts.back(), r);
    }
    std::vector<int> own(counts[static_cast<std::size_t>(rank)], rank);
    own.reserve(1);
    std::vector<int> all(wanted.size());
    gloo::AllgathervOptions options(context);
    options.setInput(own.data(), own.size());
    options.setOutput(all.data(), counts);
    gloo::allgatherv(options);
    EXPECT_EQ(all, wanted);
  });
}

TEST_P(GloosAlgorithms, Alltoall) {
  run([](int rank, const auto& context) {
    const auto count = static_cast<std::size_t>(size()) * 333;
    std::vector<int> in(count);
    std::vector<int> out(count);
    std::vector<int> wanted(count);
    for (std::size_t i = 0; i < count; ++i) {
      const int block = static_cast<int>(i / 333);
      in[i] = rank * 100 + block;
      wanted[i] = block * 100 + rank;
    }
    gloo::AlltoallOptions options(context);
    options.setInput(in.data(), in.size());
    options.setOutput(out.data(), out.size());
    gloo::alltoall(options);
    EXPECT_EQ(out, wanted);
  });
}

TEST_P(GloosAlgorithms, ReduceScatterToOneAndBack) {
  run([](int rank, const auto& context) {
    std::vector<float> data(10'007, static_cast<float>(rank));
    gloo::ReduceOptions reduce(context);
    reduce.setOutput(data.data(), data.size());
    reduce.setRoot(0);
    reduce.setReduceFunction(static_cast<Sum>(&gloo::sum<float>));
    gloo::reduce(reduce);
    if (rank == 0) {
      EXPECT_EQ(data, std::vector<float>(data.size(), sum_of_ranks()));
    }
    const auto count = static_cast<std::size_t>(size());
    std::vector<int> shares(count * 17);
    std::vector<int*> inputs;
    for (std::size_t r = 0; r < count; ++r) {
      std::fill_n(shares.begin() + static_cast<std::ptrdiff_t>(r * 17), 17, static_cast<int>(r));
      inputs.push_back(&shares[r * 17]);
    }
    std::vector<int> share(17);
    gloo::ScatterOptions scatter(context);
    if (rank == 0) scatter.setInputs(inputs, 17);
    scatter.setOutput(share.data(), share.size());
    scatter.setRoot(0);
    gloo::scatter(scatter);
    EXPECT_EQ(share, std::vector<int>(17, rank));
  });
}

TEST_P(GloosAlgorithms, BarrierHoldsEverybodyUntilAllHaveCome) {
  std::atomic<int> came = 0;
  run([&](int /*rank*/, const auto& context) {
    for (int round = 1; round <= 20; ++round) {
      ++came;
      gloo::BarrierOptions options(context);
      gloo::barrier(options);
      EXPECT_GE(came, round * size());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, GloosAlgorithms, ::testing::Values(1, 2, 3, 4, 5, 8));

}  // namespace
}  // namespace hvd::test
