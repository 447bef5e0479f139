// A rank that has no memory left for a collective.
#include <new>

#include "tests/runtime/control/worlds.h"

namespace hvd::runtime {
namespace {

// The others notice only that it does not go on, or that its connections end.
TEST(WorldMemory, ARankThatHasNoneLeftIsNamedAsTheCauseOnAllRanks) {
  for (const bool shared : {false, true}) {
    test::run_world(
        4,
        [](int rank, World& world) {
          std::vector<float> data(1000, 1);
          Entry entry;
          entry.request = test::allreduce_request("t", 1000);
          entry.input = entry.output = data.data();
          if (rank == 1) entry.allocate = [](const auto&) -> void* { throw std::bad_alloc(); };
          const Failure outcome = test::outcome_of(test::submit(world, std::move(entry))).failure;
          EXPECT_TRUE(outcome.world_failed);
          EXPECT_EQ(outcome.rank, 1);
          EXPECT_TRUE(test::mentions(outcome, "rank 1 on h0#1: ") &&
                      test::mentions(outcome, "no memory left"))
              << outcome.status.message();
        },
        [shared](WorldSpec& spec) {
          spec.config.shared_memory = shared;
          for (auto& member : spec.members) member.host = "h0";
        });
  }
}

}  // namespace
}  // namespace hvd::runtime
