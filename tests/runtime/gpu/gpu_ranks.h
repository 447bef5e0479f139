// Ranks that are threads, each with connections and a GPU of its own, and no world around them: to
// run the operations of a GPU directly. Which GPU is for the caller to say.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/gpu/gpu_ops.h"
#include "tests/runtime/ops/conformance.h"
#include "tests/runtime/ops/meshes.h"

namespace hvd::test {

struct GpuRankOptions {
  runtime::gpu::OpenGpu open;
  int lanes = 1;
  runtime::GpuOperationOptions operations;
  std::vector<int> hosts = {};  // of the ranks; empty: nothing goes by hosts
  // Entries are in the memory of the host. Brings them to where the GPU reaches them, calls what it
  // is given, and fetches what came of it. Empty: the GPU reaches that memory.
  std::function<Status(std::vector<runtime::Entry>&, std::vector<runtime::Outcome>&,
                       const std::function<Status()>&)>
      stage = {};
};

class GpuRank final : public RankUnderTest {
 public:
  GpuRank(std::shared_ptr<runtime::Mesh> mesh, int size, const GpuRankOptions& options)
      : mesh_(std::move(mesh)), stage_(options.stage) {
    runtime::gpu::GpuWorldOptions world;
    world.lanes = options.lanes;
    world.connect_timeout = kLong;
    for (int rank = 0; rank < size; ++rank) world.names.push_back(cat("rank ", rank));
    world.hosts = options.hosts;
    world.by_hosts = !options.hosts.empty();
    world.open = options.open;
    world.tell = [this](const runtime::Group& group, const runtime::Active& active,
                        std::string own) {
      return runtime::tell_over(*mesh_, kLong, group, active, std::move(own));
    };
    world.adasum = runtime::adasum_over(mesh_, kLong);
    world.on_broken = [](const Status& why) { ADD_FAILURE() << why.to_string(); };
    world_ = std::make_shared<runtime::gpu::GpuWorld>(std::move(world));
    operations_ = runtime::make_gpu_operations(world_, options.operations);
  }

  Status run(const runtime::Response& response, const runtime::Group& group,
             std::vector<runtime::Entry>& entries,
             std::vector<runtime::Outcome>& outcomes) override {
    runtime::Response on_gpu = response;
    on_gpu.number = ++number_;
    for (auto& tensor : on_gpu.tensors) {
      auto copy = *tensor;
      copy.request.on_host = false;
      tensor = std::make_shared<const runtime::ResponseTensor>(std::move(copy));
    }
    for (auto& entry : entries) {
      entry.request.on_host = false;
      entry.device.cuda = 0;
    }
    const auto run_it = [&] { return run_on_gpu(on_gpu, group, entries, outcomes); };
    return stage_ ? stage_(entries, outcomes, run_it) : run_it();
  }
  runtime::gpu::GpuWorld& world() { return *world_; }

 private:
  Status run_on_gpu(const runtime::Response& response, const runtime::Group& group,
                    std::vector<runtime::Entry>& entries, std::vector<runtime::Outcome>& outcomes) {
    for (auto& operation : operations_) {
      if (!operation->enabled(response, group)) continue;
      std::promise<Status> over;
      auto end = over.get_future();
      HVD_RETURN_IF_ERROR(operation->begin(response, group, entries, outcomes,
                                           [&](const Status& status) { over.set_value(status); }));
      return end.get();
    }
    return {Code::internal, "no operation is enabled"};
  }

  std::shared_ptr<runtime::Mesh> mesh_;
  std::function<Status(std::vector<runtime::Entry>&, std::vector<runtime::Outcome>&,
                       const std::function<Status()>&)>
      stage_;
  std::shared_ptr<runtime::gpu::GpuWorld> world_;
  std::vector<std::unique_ptr<runtime::Operation>> operations_;
  std::uint64_t number_ = 0;
};

// Runs `body` on as many ranks, and waits for all.
inline void on_gpu_ranks(int size, const std::function<GpuRankOptions(int rank)>& options,
                         const std::function<void(int rank, GpuRank& self)>& body) {
  Hub begin(size);
  Hub end(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const runtime::WriteSignalShield shield(SIGPIPE);  // as the threads of a world have it
      std::shared_ptr<runtime::Mesh> mesh = make_mesh(runtime::Transport::hvd, rank, size);
      connect_through(begin, rank, *mesh);
      GpuRank self(std::move(mesh), size, options(rank));
      body(rank, self);
      if (::testing::Test::HasFatalFailure()) return;
      EXPECT_TRUE(end.exchange(rank, "", Clock::now() + kLong).ok());
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace hvd::test
