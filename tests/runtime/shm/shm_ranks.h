// Ranks that share memory as those of one host do, and have no world around them: to run the
// operations in shared memory directly. Other operations go over Gloo.
#pragma once

#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/ops/shm_ops.h"
#include "runtime/shm/shm_group.h"
#include "runtime/shm/shm_layout.h"
#include "tests/runtime/ops/gloo_ranks.h"

namespace hvd::test {

// How much memory of this name this process has mapped.
inline std::size_t mapped_as(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    count += line.find("memfd:" + name + " ") != line.npos;
  }
  return count;
}
// Of worlds.
inline std::size_t segments_mapped() { return mapped_as("hvd"); }
// Its own, and those of others.
inline std::size_t heaps_mapped() { return mapped_as("hvd-heap"); }

struct ShmRankOptions {
  std::size_t chunk_bytes = std::size_t{256} << 10;
  runtime::ShmOperationOptions operations;
  runtime::ShmGroup::Options host{kLong, false};
  bool gloo = false;
  // Of the ranks, by which they read each other's tensors; and of a rank that has others.
  std::vector<int> heaps = {};
  std::map<int, std::vector<int>> heaps_of_rank = {};
};

// So little memory that the sizes of the conformance tables need many chunks.
inline ShmRankOptions little_memory() {
  ShmRankOptions options;
  options.chunk_bytes = 4096;
  options.operations.direct_bytes = 256;
  options.gloo = true;
  return options;
}

inline std::vector<int> first_ranks(int size) {
  std::vector<int> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(rank);
  return ranks;
}

inline std::shared_ptr<runtime::ShmGroup> host_of(const runtime::ShmLayout& memory, int size,
                                                  int rank,
                                                  const runtime::ShmGroup::Options& options,
                                                  const std::vector<int>& heaps = {}) {
  std::vector<UniqueFd> files;
  for (const int heap : heaps) files.emplace_back(::fcntl(heap, F_DUPFD_CLOEXEC, 0));
  return std::make_shared<runtime::ShmGroup>(memory, first_ranks(size), rank, options,
                                             std::move(files));
}

class ShmRank final : public RankUnderTest {
 public:
  ShmRank(std::shared_ptr<runtime::ShmGroup> host, const ShmRankOptions& options, GlooRank* gloo)
      : host_(std::move(host)),
        operations_(runtime::make_shm_operations(host_, options.operations)),
        gloo_(gloo) {}

  Status run(const runtime::Response& response, const runtime::Group& group,
             std::vector<runtime::Entry>& entries,
             std::vector<runtime::Outcome>& outcomes) override {
    for (auto& operation : operations_) {
      if (operation->enabled(response, group)) {
        return operation->execute(response, group, entries, outcomes);
      }
    }
    if (gloo_ != nullptr) return gloo_->run(response, group, entries, outcomes);
    return {Code::internal, "no operation is enabled"};
  }

  runtime::ShmGroup& host() { return *host_; }
  void abort() { host_->abort(); }

 private:
  std::shared_ptr<runtime::ShmGroup> host_;
  std::vector<std::unique_ptr<runtime::Operation>> operations_;
  GlooRank* gloo_;
};

// Runs `body` on as many ranks, and waits for all. Threads have one mapping, processes one each.
inline void on_shm_ranks(int size, const std::function<void(int rank, ShmRank& self)>& body,
                         const ShmRankOptions& options = {}, RanksAs how = RanksAs::threads) {
  const auto memory = runtime::ShmLayout::create(size, options.chunk_bytes);
  ASSERT_TRUE(memory.ok()) << memory.status().to_string();
  const auto run = [&](int rank, GlooRank* gloo) {
    const auto own = options.heaps_of_rank.find(rank);
    const auto& heaps = own == options.heaps_of_rank.end() ? options.heaps : own->second;
    ShmRank self(host_of(adopted(*memory, size), size, rank, options.host, heaps), options, gloo);
    body(rank, self);
  };
  if (options.gloo) {
    on_gloo_ranks(
        runtime::Transport::hvd, size, [&](int rank, GlooRank& gloo) { run(rank, &gloo); }, {kLong},
        how);
  } else {
    on_ranks(how, size, [&](int rank, runtime::Exchange&) { run(rank, nullptr); });
  }
}

}  // namespace hvd::test
