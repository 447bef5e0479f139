// Which blocks of a state travel to the ranks that lack it, and which they have already.
#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "base/wire.h"
#include "runtime/core/work_meter.h"
#include "tests/worker/elastic/progress_worlds.h"
#include "worker/elastic/state_blocks.h"

namespace hvd::worker {
namespace {

constexpr std::size_t kBlocks = 24;
constexpr std::size_t kFrozen = kBlocks * kStateBlock - 1000;  // the last block is a shorter one

// No two blocks of it are the same.
std::string frozen_weights() {
  std::string weights(kFrozen, '\0');
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] = static_cast<char>(i * 31 % 251 + i / kStateBlock);
  }
  return weights;
}

// Their beginnings stay as they were.
std::string with_changed_blocks(std::string weights, const std::vector<std::size_t>& blocks) {
  for (const auto block : blocks) {
    const std::size_t end = std::min<std::size_t>((block + 1) * kStateBlock, weights.size());
    for (std::size_t i = block * kStateBlock + 5'000; i < end; ++i) weights[i] ^= 1;
  }
  return weights;
}

// The objects of one rank, whose parts come in this order.
struct Objects {
  std::string weights;
  std::string step = "7";
};

// How a receiver got the state.
struct Arrival {
  std::uint64_t found = 0;
  std::uint64_t received = 0;  // when it was counted last
};

class PartialTransfer : public ElasticProgress, public ::testing::WithParamInterface<CommitMode> {
 protected:
  Worker& add_worker(const Objects& objects) {
    StateOptions options;
    options.mode = GetParam();
    Worker& worker = add(objects.weights, options);
    worker.step = objects.step;
    return worker;
  }
  void add_holder(const Objects& objects) {
    kept_.push_back(objects);
    add_worker(objects).progress.store().keep({number_ + 1, 5});
  }
  // It has room and waits for its first world.
  Worker& add_newcomer(const Objects& objects) {
    kept_.push_back(kept_.front());
    Worker& worker = add_worker(objects);
    worker.progress.store().make_room();
    return worker;
  }
  // By rank. Receivers have the first holder's state afterwards, and holders their own.
  std::vector<Arrival> hand_over() {
    std::vector<Arrival> arrivals(workers_.size());
    generation(all(), [&](int rank, Worker& worker, CommitProtocol& protocol) {
      const auto moved = transfer(worker, protocol, arrivals[static_cast<std::size_t>(rank)]);
      EXPECT_TRUE(moved.ok()) << moved.status.to_string();
    });
    for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
      EXPECT_TRUE(workers_[rank]->weights == kept_[rank].weights) << rank;
      EXPECT_EQ(workers_[rank]->step, kept_[rank].step) << rank;
    }
    return arrivals;
  }
  static Failure transfer(Worker& worker, CommitProtocol& protocol, Arrival& arrival,
                          const std::function<void()>& at_agreement = {}) {
    Resume resume;
    RunStatus status{};
    bool received = false;
    auto voted = protocol.vote(worker.progress.store(), false, status, resume);
    if (!voted.ok()) return voted;
    return protocol.transfer(
        worker.progress.store(), resume, received,
        {.on_found =
             [&](std::uint64_t bytes) {
               arrival.found = bytes;
               if (at_agreement) at_agreement();
             },
         .on_received = [&](std::uint64_t bytes) { arrival.received = bytes; }});
  }
  // As the first holder of a state whose parts have these sizes, and no more than that.
  static void describe(CommitProtocol& protocol, std::uint64_t weights, std::uint64_t step) {
    auto numbers = WireWriter().u64(2).u64(weights).u64(step).take();
    const auto bytes = std::as_writable_bytes(std::span(numbers.data(), numbers.size()));
    EXPECT_TRUE(protocol.channel().broadcast("description", 0, bytes).ok());
  }
  static void expect_arrival(const Arrival& arrival, std::uint64_t found, std::uint64_t received) {
    EXPECT_EQ(arrival.found, found);
    EXPECT_EQ(arrival.received, received);
  }

  std::vector<Objects> kept_;  // by rank, what it is to have at the end
  const std::string frozen_ = frozen_weights();
};
INSTANTIATE_TEST_SUITE_P(Elastic, PartialTransfer,
                         ::testing::Values(CommitMode::copy, CommitMode::mark),
                         [](const auto& mode) {
                           return mode.param == CommitMode::copy ? "copy" : "mark";
                         });

TEST_P(PartialTransfer, NothingTravelsWhereAllIsEqual) {
  add_holder({frozen_});
  add_newcomer({frozen_});
  add_newcomer({frozen_});
  const auto arrivals = hand_over();
  expect_arrival(arrivals[1], kFrozen + 1, 0);
  expect_arrival(arrivals[2], kFrozen + 1, 0);
}

TEST_P(PartialTransfer, EverythingTravelsWhereNothingIsEqual) {
  add_holder({frozen_});
  add_newcomer({std::string(kFrozen, 'x')});
  expect_arrival(hand_over()[1], 0, kFrozen + 1);
}

TEST_P(PartialTransfer, OneBlockTravelsWhereOneDiffers) {
  add_holder({with_changed_blocks(frozen_, {3})});
  add_newcomer({frozen_});
  expect_arrival(hand_over()[1], kFrozen + 1 - kStateBlock, kStateBlock);
}

TEST_P(PartialTransfer, APartOfAnotherSizeTravelsWholeAndShiftsNoOther) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{30}, std::size_t{70'000}}) {
    workers_.clear();
    kept_.clear();
    EXPECT_TRUE(mark_.write({}).ok());
    // The weights come first, so the second part lies elsewhere in the newcomer.
    add_holder({std::string(2'000'000, 'p'), frozen_});
    add_newcomer({std::string(size, 'p'), frozen_});
    expect_arrival(hand_over()[1], kFrozen, 2'000'000);
  }
}

TEST_P(PartialTransfer, WhatAnyReceiverLacksTravelsToAllOfThem) {
  for (const std::uint64_t window : {std::uint64_t{50'000}, kTransferChunk}) {
    workers_.clear();
    kept_.clear();
    EXPECT_TRUE(mark_.write({}).ok());
    window_ = window;
    add_holder({frozen_});
    add_holder({frozen_});
    add_newcomer({with_changed_blocks(frozen_, {2, 3})});
    add_newcomer({with_changed_blocks(frozen_, {7}), "8"});
    add_newcomer({frozen_});
    const std::uint64_t lacking = 3 * kStateBlock + 1;
    const auto arrivals = hand_over();
    for (const std::size_t rank : {2U, 3U, 4U}) {
      expect_arrival(arrivals[rank], kFrozen + 1 - lacking, lacking);
    }
  }
}

// The sample sees only the beginnings of blocks.
TEST_P(PartialTransfer, EverythingTravelsIfMoreThanHalfOfItWouldAnyway) {
  std::vector<std::size_t> most(kBlocks);
  for (std::size_t i = 0; i < most.size(); ++i) most[i] = i;
  most.resize(kBlocks / 2 + 1);
  add_holder({frozen_});
  add_newcomer({with_changed_blocks(frozen_, most)});
  expect_arrival(hand_over()[1], 0, kFrozen + 1);
}

TEST_P(PartialTransfer, TheFirstHoldersStateCountsWhereThoseOfTheHoldersDiffer) {
  for (const std::size_t differing : {2U, 9U}) {
    workers_.clear();
    kept_.clear();
    EXPECT_TRUE(mark_.write({}).ok());
    window_ = 50'000;
    add_holder({frozen_});
    add_holder({with_changed_blocks(frozen_, {differing})});
    add_holder({frozen_});
    // Block 2 travels, and block 9 does not.
    add_newcomer({with_changed_blocks(frozen_, {2})});
    expect_arrival(hand_over()[3], kFrozen + 1 - kStateBlock, kStateBlock);
  }
}

TEST_P(PartialTransfer, EverythingTravelsIfOneReceiverHasNothing) {
  add_holder({frozen_});
  add_newcomer({frozen_});
  add_worker({frozen_});  // and has made no room
  kept_.push_back(kept_.front());
  const auto arrivals = hand_over();
  expect_arrival(arrivals[1], 0, kFrozen + 1);
  expect_arrival(arrivals[2], 0, kFrozen + 1);
}

TEST_P(PartialTransfer, ASmallStateIsNotCompared) {
  add_holder({"some weights"});
  add_newcomer({"some weights"});
  expect_arrival(hand_over()[1], 0, 13);
}

TEST_P(PartialTransfer, ANewcomerThatDiesInTheMidstFailsTheWorldAndTheOthersKeepWhatTheyHave) {
  add_holder({with_changed_blocks(frozen_, {4})});
  add_newcomer({frozen_});
  Worker& dies = add_newcomer({frozen_});
  generation(all(), [&](int, Worker& worker, CommitProtocol& protocol) {
    Arrival arrival;
    std::function<void()> die;
    if (&worker == &dies) {
      die = [&] { (void)protocol.channel().give_up(Status(Code::aborted, "it is gone")); };
    }
    const auto moved = transfer(worker, protocol, arrival, die);
    EXPECT_TRUE(moved.world_failed) << moved.status.to_string();
  });
  workers_.pop_back();
  kept_.pop_back();
  expect_arrival(hand_over()[1], kFrozen + 1 - kStateBlock, kStateBlock);
}

// A member may lie about what it sends: each rank refuses that before it makes room.
TEST_P(PartialTransfer, ADescriptionOfAnotherStateThanWasVotedForIsRefused) {
  constexpr std::uint64_t kHalf = std::uint64_t{1} << 63;
  struct Lie {
    std::array<std::uint64_t, 2> sizes;  // of the weights and the step
    const char* error;
  };
  const std::array<Lie, 4> lies{{
      {{kHalf, kHalf}, "add up to more than 64 bits can hold"},
      {{std::uint64_t{1} << 60, 1}, "and has voted with one of 13"},
      {{0, 12}, "has described a state of 12 bytes"},
      {{~std::uint64_t{0}, 14}, "add up to more than 64 bits can hold"},
  }};
  for (const auto& lie : lies) {
    workers_.clear();
    kept_.clear();
    EXPECT_TRUE(mark_.write({}).ok());
    add_holder({"some weights"});
    add_newcomer({"more weights"});
    generation(all(), [&](int rank, Worker& worker, CommitProtocol& protocol) {
      Resume resume;
      RunStatus status{};
      bool received = false;
      ASSERT_TRUE(protocol.vote(worker.progress.store(), false, status, resume).ok());
      if (rank == 0) return describe(protocol, lie.sizes[0], lie.sizes[1]);
      const auto moved = protocol.transfer(worker.progress.store(), resume, received);
      EXPECT_FALSE(moved.ok());
      EXPECT_TRUE(mentions(moved, lie.error)) << moved.status.to_string();
      EXPECT_FALSE(received);
    });
  }
}

// Nothing was committed, so nobody has voted with a size.
TEST_P(PartialTransfer, AStateLargerThanTheMachineIsRefusedBeforeThereIsRoomForIt) {
  add_worker({"some weights"});
  add_worker({"more weights"});
  generation(all(), [&](int rank, Worker& worker, CommitProtocol& protocol) {
    Resume resume;
    RunStatus status{};
    bool received = false;
    ASSERT_TRUE(protocol.vote(worker.progress.store(), false, status, resume).ok());
    if (rank == 0) return describe(protocol, std::uint64_t{1} << 60, 1);
    const auto moved = protocol.transfer(worker.progress.store(), resume, received);
    EXPECT_EQ(moved.status.code(), Code::resource_exhausted) << moved.status.to_string();
    EXPECT_FALSE(received);
  });
}

// A rank that was there before, in whose spare copy the commit before the last one is.
TEST_P(PartialTransfer, ARankWithAnOlderCommitReceivesOnlyWhatHasChangedSince) {
  if (GetParam() == CommitMode::mark) GTEST_SKIP() << "it has no copies";
  kept_.push_back({with_changed_blocks(frozen_, {5})});
  for (int i = 0; i < 2; ++i) {
    Worker& worker = add_worker({frozen_});
    worker.progress.store().keep({number_ + 1, 3});
    worker.progress.store().keep({number_ + 1, 4});
  }
  workers_[0]->weights = kept_.front().weights;
  workers_[0]->progress.store().keep({number_ + 1, 5});
  kept_.push_back(kept_.front());
  expect_arrival(hand_over()[1], kFrozen + 1 - kStateBlock, kStateBlock);
}

// All have loaded the same checkpoint, or used the same seed.
TEST_P(PartialTransfer, AtTheBeginningOnlyWhatDiffersTravels) {
  add_worker({with_changed_blocks(frozen_, {5})});
  add_worker({frozen_});
  std::array<std::shared_ptr<runtime::WorkMeter>, 2> meters{std::make_shared<runtime::WorkMeter>(),
                                                            std::make_shared<runtime::WorkMeter>()};
  test::run_world(
      2,
      [&](int rank, runtime::World& world) {
        CommitProtocol protocol(world, 1, 0, mark_);
        Worker& worker = *workers_[static_cast<std::size_t>(rank)];
        begin(worker, protocol);
        EXPECT_TRUE(worker.weights == workers_[0]->weights);
        (void)protocol.channel().barrier("end of test");
      },
      [&](runtime::WorldSpec& spec) {
        spec.members[0].host = "another";  // so that all goes over connections
        spec.meter = meters[static_cast<std::size_t>(spec.rank)];
      });
  EXPECT_GE(meters[1]->received(), kStateBlock);
  EXPECT_LT(meters[1]->received(), 2 * kStateBlock);
}

// ---- blocks ----

TEST(StateBlocks, AreCutWithinEachPart) {
  const auto cut = cut_into_blocks({10, 0, kStateBlock + 1, kStateBlock});
  std::vector<std::pair<std::uint64_t, std::uint64_t>> seen;
  for (const auto& block : cut) seen.emplace_back(block.begin, block.end);
  EXPECT_EQ(seen, (std::vector<std::pair<std::uint64_t, std::uint64_t>>{
                      {0, 10},
                      {10, 10 + kStateBlock},
                      {10 + kStateBlock, 11 + kStateBlock},
                      {11 + kStateBlock, 11 + 2 * kStateBlock}}));
  EXPECT_TRUE(cut_into_blocks({0, 0}).empty());
}

TEST(StateBlocks, NeighboursInASetAreOneRange) {
  const auto cut = cut_into_blocks({12 * kStateBlock});
  BlockSet set(cut.size());
  for (const std::size_t block : {0U, 3U, 4U, 7U, 8U, 11U}) set.add(block);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> seen;
  for (const auto& range : set.ranges(cut)) {
    seen.emplace_back(range.begin / kStateBlock, range.end / kStateBlock);
  }
  EXPECT_EQ(seen, (std::vector<std::pair<std::uint64_t, std::uint64_t>>{
                      {0, 1}, {3, 5}, {7, 9}, {11, 12}}));
  EXPECT_EQ(set.count(), 6U);
}

}  // namespace
}  // namespace hvd::worker
