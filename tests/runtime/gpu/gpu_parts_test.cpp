// Decisions that need no GPU, and the search for one.
#include <algorithm>
#include <gtest/gtest.h>
#include <memory>

#include "base/text.h"
#include "runtime/gpu/capability_exchange.h"
#include "runtime/gpu/communicator_teardown.h"
#include "runtime/gpu/module.h"
#include "runtime/gpu/pieces.h"
#include "runtime/gpu/plan.h"

namespace hvd::runtime::gpu {
namespace {

// --- what travels -------------------------------------------------------------------------------

Request request_of(DataType type, ReduceOp op, Compression compression = Compression::none) {
  Request request;
  request.name = "t";
  request.type = type;
  request.op = op;
  request.compression = compression;
  return request;
}

TEST(GpuPlan, FloatingPointIsAveragedByTheLibraryAndIntegersByUs) {
  for (const auto type :
       {DataType::float16, DataType::bfloat16, DataType::float32, DataType::float64}) {
    const auto plan = plan_reduction(request_of(type, ReduceOp::average), 3, true);
    EXPECT_EQ(plan.wire, type);
    EXPECT_EQ(plan.reduction, Reduction::average);
    EXPECT_TRUE(plan.in.changes_nothing());
    EXPECT_TRUE(plan.out.changes_nothing());
  }
  const auto integers = plan_reduction(request_of(DataType::int64, ReduceOp::average), 3, true);
  EXPECT_EQ(integers.reduction, Reduction::sum);
  EXPECT_EQ(integers.out.divisor, 3);
}

TEST(GpuPlan, ElementsThatTheLibraryCannotReduceTravelAsTypesThatItCan) {
  EXPECT_EQ(plan_reduction(request_of(DataType::int16, ReduceOp::product), 2, true).wire,
            DataType::int32);
  EXPECT_EQ(plan_reduction(request_of(DataType::uint16, ReduceOp::sum), 2, true).wire,
            DataType::int32);
  const auto any = plan_reduction(request_of(DataType::boolean, ReduceOp::sum), 2, true);
  EXPECT_EQ(any.wire, DataType::uint8);
  EXPECT_EQ(any.reduction, Reduction::max);
  for (const auto all : {ReduceOp::product, ReduceOp::min, ReduceOp::average}) {
    EXPECT_EQ(plan_reduction(request_of(DataType::boolean, all), 2, true).reduction,
              Reduction::min);
  }
}

TEST(GpuPlan, Float8IsAddedByTheLibraryWhereAllCanAndElseAsFloat) {
  for (const auto type : {DataType::float8_e4m3, DataType::float8_e5m2}) {
    for (const auto op : {ReduceOp::sum, ReduceOp::min, ReduceOp::max, ReduceOp::product}) {
      const auto native = plan_reduction(request_of(type, op), 3, true);
      EXPECT_EQ(native.wire, type);
      EXPECT_TRUE(native.as_they_are());
      const auto wide = plan_reduction(request_of(type, op), 3, false);
      EXPECT_EQ(wide.wire, DataType::float32);
      EXPECT_EQ(wide.out.to, type);
      EXPECT_EQ(wide.reduction, native.reduction);
    }
    // A sum of float8 would be cut off before it is divided.
    for (const bool adds_float8 : {true, false}) {
      const auto average = plan_reduction(request_of(type, ReduceOp::average), 4, adds_float8);
      EXPECT_EQ(average.wire, DataType::float32);
      EXPECT_EQ(average.reduction, Reduction::sum);
      EXPECT_EQ(average.out.factor, 0.25);
    }
  }
}

TEST(GpuPlan, FactorsAndCompressionAreAppliedOnTheWay) {
  auto request = request_of(DataType::float32, ReduceOp::average, Compression::bfloat16);
  request.prescale = 2;
  request.postscale = 8;
  const auto plan = plan_reduction(request, 4, true);
  EXPECT_EQ(plan.wire, DataType::bfloat16);
  EXPECT_EQ(plan.reduction, Reduction::sum);
  EXPECT_EQ(plan.in.factor, 2);
  EXPECT_EQ(plan.out.factor, 2);
  EXPECT_EQ(plan.out.to, DataType::float32);
}

TEST(GpuPlan, ItGoesByHostsWhereSeveralHaveSeveralRanksAndAllAsMany) {
  const auto can = [](const std::vector<int>& ranks, const std::vector<int>& host_of) {
    return can_go_by_hosts(host_plan(ranks, 0, host_of));
  };
  const std::vector<int> two_of_two{0, 0, 1, 1};
  EXPECT_TRUE(can({0, 1, 2, 3}, two_of_two));
  EXPECT_TRUE(can({0, 1, 2, 3, 4, 5}, {0, 1, 2, 0, 1, 2})) << "in whatever order they are";
  EXPECT_FALSE(can({0, 1, 2}, two_of_two)) << "of which one has joined";
  EXPECT_FALSE(can({0, 2}, two_of_two)) << "one rank of each";
  EXPECT_FALSE(can({0, 1}, two_of_two)) << "one host";
  EXPECT_FALSE(can({0}, two_of_two));
  EXPECT_FALSE(can({0, 1, 2, 3}, {0, 0, 0, 1}));
  EXPECT_FALSE(can_go_by_hosts({}));
}

TEST(GpuPlan, TensorsLieOneAfterTheOtherAligned) {
  const std::size_t sizes[] = {1, 16, 0, 17, 4};
  const auto packing = pack(sizes);
  EXPECT_EQ(packing.offsets, (std::vector<std::size_t>{0, 16, 32, 32, 64}));
  EXPECT_EQ(packing.bytes, 80U);
}

TEST(GpuPlan, RowsAreGatheredInBlocksUnlessMostOfThemWouldBePadding) {
  const std::size_t mib = std::size_t{1} << 20;
  EXPECT_TRUE(gathers_in_blocks(std::vector<std::size_t>{4 * mib, 4 * mib, 4 * mib}));
  EXPECT_TRUE(gathers_in_blocks(std::vector<std::size_t>{0, 1000, 2}));
  EXPECT_FALSE(gathers_in_blocks(std::vector<std::size_t>{64 * mib, 0, 0}));
}

TEST(GpuPlan, LargeWorldsBootstrapAtSeveralRanksWhereTheLibraryCan) {
  EXPECT_EQ(roots_of(2048, 22000), 1);
  EXPECT_EQ(roots_of(1, 22800), 1);
  EXPECT_EQ(roots_of(256, 22800), 1);
  EXPECT_EQ(roots_of(2048, 22800), 8);
  EXPECT_EQ(root_ranks(10, 3), (std::vector<int>{0, 3, 6}));
}

// --- blocks of a kernel -------------------------------------------------------------------------

TEST(GpuPieces, EveryElementOfEveryExtentIsInExactlyOneBlock) {
  std::vector<char> memory(1 << 20);
  std::vector<CopyExtent> extents;
  std::size_t expected = 0;
  for (std::size_t i = 0; i < 2'500; ++i) {
    const std::size_t elements = i % 7 == 0 ? 0 : (i * 7919) % 5'000;
    extents.push_back({memory.data() + i, memory.data() + i, elements});
    expected += elements;
  }
  const auto per_block = elements_per_block(extents, 4, 132);
  std::span<const CopyExtent> left(extents);
  std::size_t covered = 0;
  std::size_t at = 0;  // the extent whose turn it is
  std::uint64_t from = 0;
  int launches = 0;
  while (!left.empty()) {
    ++launches;
    const auto pieces = std::make_unique<ManyPieces>();
    pieces->elements_per_block = per_block;
    const auto blocks = take_pieces(left, *pieces);
    for (std::uint64_t block = 0; block < blocks; ++block) {
      const Piece& piece = pieces->pieces[piece_of_block(*pieces, block)];
      const auto begin = (block - piece.first_block) * per_block;
      ASSERT_LT(begin, piece.elements);
      const auto count = std::min(per_block, piece.elements - begin);
      while (extents[at].elements == from) {
        ++at;
        from = 0;
      }
      ASSERT_EQ(piece.from, extents[at].from);
      ASSERT_EQ(begin, from);
      from += count;
      covered += count;
    }
  }
  EXPECT_EQ(covered, expected);
  EXPECT_EQ(launches, 3);
}

TEST(GpuPieces, BlocksAreSmallEnoughToOccupyTheDeviceAndLargeEnoughToBeWorthIt) {
  const CopyExtent little{nullptr, nullptr, 1'000};
  EXPECT_EQ(elements_per_block({&little, 1}, 4, 132), 2'048U);
  const CopyExtent much{nullptr, nullptr, std::size_t{1} << 30};
  EXPECT_EQ(elements_per_block({&much, 1}, 4, 132), 16'384U);
}

// --- capability exchange ------------------------------------------------------------------------

Capabilities ready_on(const std::string& uuid) {
  Capabilities one;
  one.identity = {uuid, "H200", "0000:1b:00.0", 22809, false, false};
  return one;
}
const std::vector<std::string> kNames{"rank 0 on a#0", "rank 1 on a#1", "rank 2 on b#0"};

std::string verdict(const std::vector<Capabilities>& all) {
  return check_capabilities(all, kNames).message();
}

TEST(GpuCapabilityExchange, EncodedCapabilitiesAreReadAndRubbishIsRefused) {
  auto one = ready_on("GPU-1");
  one.ready = {Code::not_found, std::string(2'000, 'x')};
  one.id = one.id_inside = one.id_across = std::string(128, '\xFF');
  one.by_hosts = true;
  one.lanes = 3;
  const auto bytes = one.encode();
  EXPECT_EQ(bytes.size(), Capabilities::kBytes);
  const auto read = Capabilities::decode(bytes);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->ready.code(), Code::not_found);
  EXPECT_EQ(read->id, one.id);
  EXPECT_EQ(read->id_inside, one.id_inside);
  EXPECT_EQ(read->id_across, one.id_across);
  EXPECT_TRUE(read->by_hosts);
  EXPECT_EQ(read->identity.uuid, "GPU-1");
  EXPECT_EQ(read->lanes, 3);
  EXPECT_FALSE(Capabilities::decode(std::string(Capabilities::kBytes, '\xFF')).ok());
  EXPECT_FALSE(Capabilities::decode("short").ok());
}

TEST(GpuCapabilityExchange, ItGoesByHostsOnlyIfAllWantThat) {
  std::vector<Capabilities> all{ready_on("1"), ready_on("2")};
  all[0].by_hosts = true;
  EXPECT_FALSE(all_go_by_hosts(all));
  all[1].by_hosts = true;
  EXPECT_TRUE(all_go_by_hosts(all));
}

TEST(GpuCapabilityExchange, Float8IsAddedAsItIsOnlyWhereAllCan) {
  auto one = ready_on("1");
  auto other = ready_on("2");
  one.identity.adds_float8 = true;
  EXPECT_FALSE(all_add_float8(std::vector<Capabilities>{one, other}));
  other.identity.adds_float8 = true;
  EXPECT_TRUE(all_add_float8(std::vector<Capabilities>{one, other}));
  EXPECT_TRUE(Capabilities::decode(one.encode())->identity.adds_float8);

  EXPECT_TRUE(adds_float8(22400, 22809, 9));
  EXPECT_FALSE(adds_float8(22304, 22809, 9)) << "built with a header that does not name it";
  EXPECT_FALSE(adds_float8(22809, 22304, 9));
  EXPECT_FALSE(adds_float8(22809, 22809, 8)) << "an A100 does not";
}

TEST(GpuCapabilityExchange, TheVerdictNamesTheRanksThatCannotTakePart) {
  EXPECT_EQ(verdict({ready_on("1"), ready_on("2"), ready_on("3")}), "");

  auto without = ready_on("2");
  without.ready = {Code::not_found, "no device"};
  EXPECT_EQ(verdict({ready_on("1"), without, ready_on("3")}), "rank 1 on a#1: no device");

  auto older = ready_on("3");
  older.identity.library_version = 21903;
  EXPECT_NE(verdict({ready_on("1"), ready_on("2"), older})
                .find("rank 0 on a#0 has NCCL 2.28.9, but rank 2 on b#0 has NCCL 2.19.3"),
            std::string::npos);

  auto more_lanes = ready_on("3");
  more_lanes.lanes = 2;
  EXPECT_NE(verdict({ready_on("1"), ready_on("2"), more_lanes}).find("HVD_NUM_NCCL_STREAMS"),
            std::string::npos);

  const auto clash = verdict({ready_on("1"), ready_on("2"), ready_on("1")});
  EXPECT_NE(clash.find("rank 0 on a#0 and rank 2 on b#0 are on the same GPU, H200 1"),
            std::string::npos)
      << clash;
}

TEST(GpuCapabilityExchange, TwoRanksMayShareAGpuIfBothAllowIt) {
  auto one = ready_on("1");
  auto other = ready_on("1");
  one.identity.may_share_device = true;
  EXPECT_NE(verdict({one, other}), "");
  other.identity.may_share_device = true;
  EXPECT_EQ(verdict({one, other}), "");
  EXPECT_TRUE(share_device(std::vector<Capabilities>{one, other}));
}

// --- the end ------------------------------------------------------------------------------------

using Action = CommunicatorTeardown::Action;
using State = CommunicatorTeardown::State;

class GpuTeardown : public ::testing::Test {
 protected:
  CommunicatorTeardown::Limits limits_;
  CommunicatorTeardown it_{limits_};
  TimePoint now_{std::chrono::hours(1)};
};

TEST_F(GpuTeardown, ItRevokesRestsAndDestroysWhenThePeersAreIdle) {
  EXPECT_EQ(it_.failed(now_), Action::close);
  EXPECT_EQ(it_.all_out(true, now_), Action::revoke);
  EXPECT_EQ(it_.revoked(true, now_), Action::none);
  EXPECT_EQ(it_.state(), State::resting);
  // However long that takes.
  EXPECT_EQ(it_.tick(now_ + std::chrono::hours(100)), Action::none);
  EXPECT_EQ(it_.peers_idle(now_), Action::destroy);
  EXPECT_EQ(it_.ended(), Action::none);
  EXPECT_EQ(it_.state(), State::gone);
}

TEST_F(GpuTeardown, ItAbortsWhereNothingCanBeRevoked) {
  EXPECT_EQ(it_.failed(now_), Action::close);
  EXPECT_EQ(it_.all_out(false, now_), Action::abort);
  EXPECT_EQ(it_.ended(), Action::none);
  EXPECT_EQ(it_.state(), State::gone);
}

TEST_F(GpuTeardown, ItAbortsCommunicatorsThatCouldNotBeRevoked) {
  it_.failed(now_);
  it_.all_out(true, now_);
  EXPECT_EQ(it_.revoked(false, now_), Action::abort);
  it_.ended();
  EXPECT_EQ(it_.state(), State::gone);
}

TEST_F(GpuTeardown, NothingIsAbortedWhileSomebodyIsInACall) {
  it_.failed(now_);
  EXPECT_EQ(it_.revoked(true, now_), Action::none);
  EXPECT_EQ(it_.peers_idle(now_), Action::none);
  EXPECT_EQ(it_.ended(), Action::none);
  EXPECT_EQ(it_.state(), State::closing);
}

TEST_F(GpuTeardown, EachStepThatGetsStuckEndsTheProcessAndIsNamed) {
  const auto later = now_ + std::chrono::minutes(1);
  const auto at = [&](int steps) {
    CommunicatorTeardown one(limits_);
    one.failed(now_);
    if (steps > 0) one.all_out(true, now_);
    if (steps > 1) one.revoked(steps != 2, now_);
    if (steps > 2) one.peers_idle(now_);
    EXPECT_EQ(one.tick(now_), Action::none);
    EXPECT_EQ(one.tick(later), Action::end_process);
    EXPECT_EQ(one.tick(later), Action::none);
    EXPECT_EQ(one.state(), State::stuck);
    return std::string(one.stuck_in());
  };
  EXPECT_NE(at(0).find("did not return"), std::string::npos);
  EXPECT_NE(at(1).find("revoking"), std::string::npos);
  EXPECT_NE(at(2).find("aborting"), std::string::npos);
  EXPECT_NE(at(3).find("destroying"), std::string::npos);
}

TEST_F(GpuTeardown, AWorldFailsOnce) {
  EXPECT_EQ(it_.failed(now_), Action::close);
  EXPECT_EQ(it_.failed(now_), Action::none);
}

// --- the module ---------------------------------------------------------------------------------

std::string why_not(const std::vector<std::string>& paths) {
  const auto loaded = load_module(paths);
  return loaded.ok() ? "it was loaded" : loaded.status().message();
}

TEST(GpuModule, OneThatIsMissingIsNamedWithWhereItWasLookedFor) {
  const auto why = why_not({"/nowhere/libhvd_nccl.so", "/nowhere/else/libhvd_nccl.so"});
  EXPECT_NE(why.find("/nowhere/libhvd_nccl.so nor as /nowhere/else/libhvd_nccl.so"),
            std::string::npos)
      << why;
  EXPECT_NE(why.find("HVD_NCCL_MODULE"), std::string::npos) << why;
}

TEST(GpuModule, AFileThatIsNoModuleIsAnErrorThatNamesIt) {
  const std::string text = cat(HVD_SOURCE_DIR, "/LICENSE");
  EXPECT_NE(why_not({text}).find(text), std::string::npos) << why_not({text});
  // A library, but not ours.
  EXPECT_NE(why_not({"libm.so.6"}).find("libm.so.6 is not a module of hvd"), std::string::npos)
      << why_not({"libm.so.6"});
}

TEST(GpuModule, ItLoadsWithoutAGpuAndSaysThatThereIsNone) {
  const auto loaded = load_module({HVD_NCCL_MODULE_PATH});
  if (std::string_view(HVD_NCCL_MODULE_PATH).empty()) {
    GTEST_SKIP() << "built without the module for GPUs";
  }
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ((*loaded)->libraries().find("NCCL 2."), 0U) << (*loaded)->libraries();
  const auto count = (*loaded)->device_count();
  if (count.ok()) GTEST_SKIP() << "this machine has " << *count << " GPUs";
  EXPECT_EQ(count.status().code(), Code::not_found);
  EXPECT_NE(count.status().message().find("no CUDA device"), std::string::npos)
      << count.status().message();
  EXPECT_FALSE((*loaded)->open(0, 1).ok());
  EXPECT_FALSE((*loaded)->allocate(0, 16).ok());
  EXPECT_FALSE((*loaded)->record(0, nullptr, nullptr).ok());
}

}  // namespace
}  // namespace hvd::runtime::gpu
