// Ranks that each have connections and operations of their own, and no world around them: to run
// operations over Gloo directly.
#pragma once

#include <algorithm>
#include <fcntl.h>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <vector>

#include "runtime/ops/gloo_ops.h"
#include "runtime/ops/local_ops.h"
#include "tests/runtime/ops/conformance.h"
#include "tests/runtime/ops/meshes.h"
#include "tests/runtime/ranks.h"

namespace hvd::test {

class GlooRank final : public RankUnderTest {
 public:
  GlooRank(runtime::Transport transport, int rank, int size, runtime::Exchange& exchange,
           const runtime::GlooOperationOptions& options)
      : has_hosts_(!options.hosts.empty()),
        links_(options.links),
        mesh_(make_mesh(transport, rank, size)) {
    connect_through(exchange, *mesh_);
    // No rank may abort while another still connects.
    if (!exchange.exchange("", Clock::now() + kLong).ok()) {
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
    if (links_) by_hosts.link_speed = links_->speed();
    for (auto& operation : operations_) {
      if (operation->enabled(by_hosts, group)) {
        return operation->execute(by_hosts, group, entries, outcomes);
      }
    }
    return {Code::internal, "no operation is enabled"};
  }

  void abort() {
    for (auto& operation : operations_) operation->abort();
  }

 private:
  bool has_hosts_;  // then it goes by them
  std::shared_ptr<runtime::LinkMeter> links_;
  std::shared_ptr<runtime::Mesh> mesh_;
  std::vector<std::unique_ptr<runtime::Operation>> operations_;
};

using GlooBody = std::function<void(int rank, GlooRank& self)>;

// Runs `body` on as many ranks, each with options of its own, and waits for all.
inline void on_various_gloo_ranks(
    runtime::Transport transport, int size, const GlooBody& body,
    const std::function<runtime::GlooOperationOptions(int rank)>& options, RanksAs how) {
  on_ranks(how, size, [&](int rank, runtime::Exchange& exchange) {
    const runtime::WriteSignalShield shield(SIGPIPE);  // as the threads of a world have it
    GlooRank self(transport, rank, size, exchange, options(rank));
    body(rank, self);
    // Nobody leaves while another may still be receiving, unless all is lost anyway.
    if (::testing::Test::HasFatalFailure()) return;
    EXPECT_TRUE(exchange.exchange("", Clock::now() + kLong).ok());
  });
}

inline void on_gloo_ranks(runtime::Transport transport, int size, const GlooBody& body,
                          const runtime::GlooOperationOptions& options = {kLong},
                          RanksAs how = RanksAs::threads) {
  on_various_gloo_ranks(
      transport, size, body, [&options](int /*rank*/) { return options; }, how);
}

// The memory that the test has made, for a rank that may be another process: that one maps it anew.
inline runtime::ShmLayout adopted(const runtime::ShmLayout& memory, int ranks) {
  auto mapped = runtime::ShmLayout::adopt(UniqueFd(::fcntl(memory.fd(), F_DUPFD_CLOEXEC, 0)), ranks,
                                          memory.chunk_bytes());
  if (!mapped.ok()) throw std::runtime_error(mapped.status().to_string());
  return *std::move(mapped);
}

// The same on hosts, options.hosts[r] of rank r, whose ranks share memory with chunks of so many
// bytes. The ranks of those in `without` do not, and send messages.
inline void on_gloo_hosts(runtime::Transport transport, const GlooBody& body,
                          const runtime::GlooOperationOptions& options, std::size_t chunk_bytes,
                          const std::set<int>& without = {}, RanksAs how = RanksAs::threads) {
  std::map<int, std::vector<int>> ranks;  // of each host
  const auto size = static_cast<int>(options.hosts.size());
  for (int rank = 0; rank < size; ++rank) {
    ranks[options.hosts[static_cast<std::size_t>(rank)]].push_back(rank);
  }
  std::map<int, runtime::ShmLayout> memories;
  for (const auto& [host, node_peers] : ranks) {
    if (node_peers.size() == 1 || without.contains(host)) continue;
    auto memory = runtime::ShmLayout::create(static_cast<int>(node_peers.size()), chunk_bytes);
    ASSERT_TRUE(memory.ok()) << memory.status().to_string();
    memories.emplace(host, *memory);
  }
  const auto options_of = [&](int rank) {
    auto own = options;
    const int host = options.hosts[static_cast<std::size_t>(rank)];
    const auto memory = memories.find(host);
    if (memory != memories.end()) {
      const auto& node_peers = ranks.at(host);
      const auto local = std::find(node_peers.begin(), node_peers.end(), rank) - node_peers.begin();
      own.host = std::make_shared<runtime::ShmGroup>(
          adopted(memory->second, static_cast<int>(node_peers.size())), node_peers,
          static_cast<int>(local), runtime::ShmGroup::Options{kLong, false});
    }
    return own;
  };
  on_various_gloo_ranks(transport, size, body, options_of, how);
}

}  // namespace hvd::test
