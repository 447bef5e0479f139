// The speeds that a world measures of the links between its hosts, and the algorithms that it takes
// for them. All hosts are this machine.
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/runtime/control/worlds.h"
#include "tests/runtime/trace/trace_check.h"
#include "tests/support/process.h"

namespace hvd::test {
namespace {

using runtime::Kind;
using runtime::LinkMeter;
using runtime::LinkSpeed;

constexpr int kHosts = 4;
constexpr const char* kInTheSet = "1 MB (process set 1)";  // as the timeline calls it
constexpr std::size_t kMegabyte = (std::size_t{1} << 20) / sizeof(float);
// With these a tensor of 1 MB goes directly, one of 4 MB is halved, and one of 32 MB takes the
// ring.
constexpr LinkSpeed kFar{std::chrono::microseconds(2'000), 1'000};

void one_rank_each(runtime::WorldSpec& spec) {
  for (std::size_t rank = 0; rank < spec.members.size(); ++rank) {
    spec.members[rank].host = cat("host ", rank);
  }
}

void reduce(runtime::World& world, const std::string& name, std::size_t elements,
            int process_set = runtime::kGlobalSet) {
  std::vector<float> data(elements, static_cast<float>(world.rank() + 1));
  runtime::Request request;
  request.name = name;
  request.type = DataType::float32;
  request.shape = {static_cast<std::int64_t>(elements)};
  request.process_set = process_set;
  const auto outcome = outcome_of(submit(world, std::move(request), data.data(), data.data()));
  ASSERT_TRUE(outcome.ok()) << outcome.status.to_string();
  const float sum = process_set == runtime::kGlobalSet ? 1 + 2 + 3 + 4 : 1 + 2;
  EXPECT_EQ(data, std::vector<float>(elements, sum)) << name;
}

void scatter_or_gather(runtime::World& world, Kind kind, const std::string& name,
                       std::size_t elements) {
  std::vector<float> data(elements, 1);
  runtime::Entry entry;
  entry.request = allreduce_request(name, static_cast<std::int64_t>(elements));
  entry.request.kind = kind;
  entry.input = data.data();
  std::vector<float> result;
  entry.allocate = [&result](const std::vector<std::int64_t>& shape) {
    result.resize(static_cast<std::size_t>(shape.front()));
    return static_cast<void*>(result.data());
  };
  const auto outcome = outcome_of(submit(world, std::move(entry)));
  EXPECT_TRUE(outcome.ok()) << outcome.failure.status.to_string();
}

class WorldLinks : public ::testing::Test {
 protected:
  // The algorithm of each tensor that the body has reduced, on rank 1.
  std::map<std::string, std::string> algorithms(const Body& body, const Change& change) {
    const auto path = (directory_.path() / "t.json").string();
    run_world_to_end(kHosts, body, [&](runtime::WorldSpec& spec) {
      one_rank_each(spec);
      spec.config.timeline = path;
      spec.config.link_speed = kFar;
      change(spec);
    });
    const auto timeline = expect_right_timeline(path);
    std::map<std::string, std::string> found;
    for (const auto* const name : {"1 MB", "4 MB", "32 MB", kInTheSet}) {
      const auto* const track = timeline.track(1, name);
      if (track != nullptr) found[name] = track->arguments.front().value("algorithm", "none");
    }
    return found;
  }
  TemporaryDirectory directory_;
};

using Algorithms = std::map<std::string, std::string>;

void reduce_all(int /*rank*/, runtime::World& world) {
  reduce(world, "1 MB", kMegabyte);
  reduce(world, "4 MB", 4 * kMegabyte);
  reduce(world, "32 MB", 32 * kMegabyte);
}

TEST_F(WorldLinks, AllRanksTakeTheAlgorithmThatTheySuggest) {
  const auto taken = algorithms(reduce_all, [](runtime::WorldSpec&) {});
  EXPECT_EQ(taken, (Algorithms{{"1 MB", "direct"}, {"4 MB", "halving"}, {"32 MB", "ring"}}));
}

TEST_F(WorldLinks, AllgatherAndReducescatterTakeWhatTheySuggest) {
  const auto run_both = [](int /*rank*/, runtime::World& world) {
    scatter_or_gather(world, Kind::allgather, "1 MB", kMegabyte / kHosts);
    scatter_or_gather(world, Kind::reducescatter, "32 MB", 32 * kMegabyte);
    scatter_or_gather(world, Kind::reducescatter, "4 MB", kMegabyte);
  };
  const Algorithms wanted{{"1 MB", "direct"}, {"4 MB", "direct"}, {"32 MB", "ring"}};
  EXPECT_EQ(algorithms(run_both, [](runtime::WorldSpec&) {}), wanted);
}

TEST_F(WorldLinks, InDeterministicModeSizeAloneDecides) {
  const auto taken =
      algorithms(reduce_all, [](runtime::WorldSpec& spec) { spec.config.deterministic = true; });
  EXPECT_EQ(taken, (Algorithms{{"1 MB", "ring"}, {"4 MB", "ring"}, {"32 MB", "ring"}}));
}

TEST_F(WorldLinks, ASetOfSomeHostsGoesBySize) {
  const auto taken = algorithms(
      [](int rank, runtime::World& world) {
        if (rank < 2) reduce(world, "1 MB", kMegabyte, 1);
      },
      [](runtime::WorldSpec& spec) {
        spec.process_sets = {{0, 1}};
      });
  EXPECT_EQ(taken, (Algorithms{{kInTheSet, "ring"}}));
}

// The speed that rank 0 has measured while all ranks reduced.
LinkSpeed measured(const Change& change) {
  const auto meter = std::make_shared<LinkMeter>();
  run_world_to_end(
      kHosts,
      [](int /*rank*/, runtime::World& world) {
        for (int i = 0; i < 3; ++i) reduce(world, "gradients", 4 * kMegabyte);
      },
      [&](runtime::WorldSpec& spec) {
        if (spec.rank == 0) spec.links = meter;
        change(spec);
      });
  return meter->speed();
}

TEST_F(WorldLinks, RankZeroMeasuresThem) {
  const LinkSpeed speed = measured(one_rank_each);
  EXPECT_GT(speed.round_trip.count(), 0);
  EXPECT_GT(speed.megabytes_per_second, 0U);
}

TEST_F(WorldLinks, SeveralRanksOfAHostMeasureThemTogether) {
  const LinkSpeed speed = measured([](runtime::WorldSpec&) {});  // two on each host
  EXPECT_GT(speed.round_trip.count(), 0);
  EXPECT_GT(speed.megabytes_per_second, 0U);
}

TEST_F(WorldLinks, OneHostHasNoLinksToMeasure) {
  const LinkSpeed speed = measured([](runtime::WorldSpec& spec) {
    for (auto& member : spec.members) member.host = "h";
    spec.config.shared_memory = false;
  });
  EXPECT_EQ(speed, LinkSpeed());
}

}  // namespace
}  // namespace hvd::test
