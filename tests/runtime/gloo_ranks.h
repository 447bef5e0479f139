// Ranks that are threads, each with connections and operations of its own, and no world around
// them: to run operations over Gloo directly.
#pragma once

#include <functional>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "runtime/ops/gloo_ops.h"
#include "runtime/ops/local_ops.h"
#include "tests/runtime/conformance.h"
#include "tests/runtime/meshes.h"

namespace hvd::test {

class GlooRank final : public RankUnderTest {
 public:
  GlooRank(runtime::Transport transport, int rank, int size, Hub& hub, Hub& connected_hub,
           const runtime::GlooOperationOptions& options)
      : has_hosts_(!options.hosts.empty()), mesh_(make_mesh(transport, rank, size)) {
    connect_through(hub, rank, *mesh_);
    // An abort must not meet those who still connect.
    if (!connected_hub.exchange(rank, "", Clock::now() + kLong).ok()) {
      throw std::runtime_error("not all ranks are connected");
    }
    operations_.push_back(std::make_unique<runtime::LocalOperation>());
    for (auto& operation : runtime::make_gloo_operations(mesh_, options)) {
      operations_.push_back(std::move(operation));
    }
  }

  Status run(const runtime::Response& response, const runtime::Group& group,
             std::vector<runtime::Entry>& entries,
             std::vector<runtime::Outcome>& outcomes) override {
    auto by_hosts = response;
    by_hosts.hierarchical = has_hosts_;
    for (auto& operation : operations_) {
      if (operation->enabled(by_hosts, group)) {
        return operation->execute(by_hosts, group, entries, outcomes);
      }
    }
    return {Code::internal, "no operation is enabled"};
  }

  void abort() { mesh_->abort({Code::aborted, "the test aborts"}); }

 private:
  bool has_hosts_;  // then it goes by them
  std::shared_ptr<runtime::Mesh> mesh_;
  std::vector<std::unique_ptr<runtime::Operation>> operations_;
};

// Runs `body` on as many ranks, and waits for all.
inline void on_gloo_ranks(runtime::Transport transport, int size,
                          const std::function<void(int rank, GlooRank& self)>& body,
                          const runtime::GlooOperationOptions& options = {kLong}) {
  Hub begin(size);
  Hub connected(size);
  Hub end(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const runtime::BrokenPipeShield shield;  // as the threads of a world have it
      GlooRank self(transport, rank, size, begin, connected, options);
      body(rank, self);
      // Nobody leaves while another may still be receiving, unless all is lost anyway.
      if (::testing::Test::HasFatalFailure()) return;
      EXPECT_TRUE(end.exchange(rank, "", Clock::now() + kLong).ok());
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace hvd::test
