// The conformance tables through the whole pipeline: negotiation, response cache, groups, process
// sets, joins, executor.
#include <algorithm>
#include <future>
#include <map>
#include <memory>
#include <memory_resource>
#include <optional>
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/runtime/control/worlds.h"
#include "tests/runtime/ops/conformance.h"
#include "tests/runtime/shm/heap_memory.h"

namespace hvd::test {
namespace {

using runtime::Entry;
using runtime::Group;
using runtime::Kind;
using runtime::Outcome;
using runtime::Response;

class WorldRank final : public RankUnderTest {
 public:
  WorldRank(runtime::World& world, bool in_heap) : world_(world), in_heap_(in_heap) {
    const auto part = part_of(world.size());
    if (world.size() > 1) sets_[part] = add_set(part);
  }

  Status run(const Response& response, const Group& group, std::vector<Entry>& entries,
             std::vector<Outcome>& outcomes) override {
    const bool joined = std::find(response.joined.begin(), response.joined.end(), world_.rank()) !=
                        response.joined.end();
    if (!joined) {
      const bool whole = group.size() == world_.size();
      for (std::size_t i = 0; i < entries.size(); ++i) {
        auto& request = entries[i].request;
        if (!whole) request.process_set = sets_.at(group.ranks);
        if (entries.size() > 1) {
          request.group = "together";
          request.group_size = static_cast<int>(entries.size());
        }
      }
      outcomes = outcomes_of(entries);
    }
    // A rank that has joined waits here until all have.
    if (response.joined.empty()) return {};
    Entry join;
    join.request.name = "join";
    join.request.kind = Kind::join;
    std::vector<Entry> joins{join};
    return outcomes_of(joins).front().failure.status;
  }

  std::optional<runtime::CacheStats> cache_stats() const override { return world_.cache_stats(); }
  std::pmr::memory_resource* memory() override { return HeapMemory::get(in_heap_); }

 private:
  int add_set(const std::vector<int>& ranks) {
    Entry entry;
    entry.request.name = "part";
    entry.request.kind = Kind::add_process_set;
    entry.request.ranks = ranks;
    std::vector<Entry> entries{entry};
    const Outcome outcome = outcomes_of(entries).front();
    EXPECT_TRUE(outcome.ok()) << outcome.failure.status.to_string();
    return outcome.process_set;
  }

  std::vector<Outcome> outcomes_of(std::vector<Entry>& entries) {
    std::vector<std::future<Outcome>> futures;
    for (auto& entry : entries) {
      auto promise = std::make_shared<std::promise<Outcome>>();
      futures.push_back(promise->get_future());
      entry.done = [promise](const Outcome& outcome) { promise->set_value(outcome); };
    }
    const std::size_t count = entries.size();
    const auto refused = count > 1 ? world_.enqueue(entries) : world_.enqueue(entries.front());
    if (!refused.ok()) return std::vector<Outcome>(count, Outcome(refused));
    std::vector<Outcome> outcomes;
    for (auto& future : futures) {
      if (future.wait_for(kLong) == std::future_status::ready) {
        outcomes.push_back(future.get());
      } else {
        outcomes.emplace_back(Status(Code::deadline_exceeded, "the test waited in vain"));
      }
    }
    return outcomes;
  }

  runtime::World& world_;
  bool in_heap_;
  std::map<std::vector<int>, int> sets_;
};

Backend backend_of(const std::string& name, const Change& change, bool in_heap = false) {
  return {name, true, [change, in_heap](RanksAs how, int size, const Backend::Body& body) {
            run_world_to_end(
                size,
                [&](int rank, runtime::World& world) {
                  WorldRank self(world, in_heap);
                  body(rank, self);
                },
                [&](runtime::WorldSpec& spec) {
                  spec.config.fusion_threshold = kFusionThreshold;
                  change(spec);
                },
                how);
          }};
}

Backend world_backend() {
  return backend_of("world", [](runtime::WorldSpec&) {});
}

// All ranks on one host: with little shared memory, so that much takes many chunks.
void on_one_host(runtime::WorldSpec& spec) {
  for (auto& member : spec.members) member.host = "h0";
  spec.config.chunk_bytes = 4096;
}
Backend one_host_backend() { return backend_of("one host", on_one_host); }

// The same with tensors in memory that hvd gives.
Backend one_host_in_heap_backend() { return backend_of("one host in heap", on_one_host, true); }

// With everything that goes by hosts switched on, on hosts of one and of four ranks.
Backend hierarchical_world_backend() {
  return backend_of("hierarchical world", [](runtime::WorldSpec& spec) {
    for (int rank = 0; rank < spec.size(); ++rank) {
      spec.members[static_cast<std::size_t>(rank)].host = cat("h", (rank + 3) / 4);
    }
    spec.config.hierarchical_allreduce = true;
    spec.config.hierarchical_allgather = true;
  });
}

HVD_CONFORMANCE(World, every_table(world_backend()));
HVD_CONFORMANCE(WorldInProcesses, every_table(world_backend(), RanksAs::processes));
HVD_CONFORMANCE(HierarchicalWorld, tables_by_hosts(hierarchical_world_backend()));
HVD_CONFORMANCE(HierarchicalWorldInProcesses,
                tables_by_hosts(hierarchical_world_backend(), RanksAs::processes));
HVD_CONFORMANCE(WorldOnOneHost, every_table(one_host_backend()));
HVD_CONFORMANCE(WorldOnOneHostInProcesses, every_table(one_host_backend(), RanksAs::processes));
HVD_CONFORMANCE(WorldAlongTrees, values_along_trees(world_backend()));
HVD_CONFORMANCE(WorldOnOneHostAlongTrees, values_along_trees(one_host_backend()));
// Heaps are shared by processes alone.
INSTANTIATE_TEST_SUITE_P(WorldInSharedHeaps, Conformance,
                         ::testing::ValuesIn(values_of_four(one_host_in_heap_backend(),
                                                            RanksAs::processes)),
                         table_name);

}  // namespace
}  // namespace hvd::test
