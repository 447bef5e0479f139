// Worlds whose ranks are threads: every operation against a plain reference.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>

#include "runtime/core/arithmetic.h"
#include "tests/runtime/control/worlds.h"

namespace hvd::runtime {
namespace {

using test::outcome_of;
using test::run_world_to_end;
using test::submit;

constexpr std::array kTypes{DataType::boolean, DataType::uint8,   DataType::int8,
                            DataType::uint16,  DataType::int16,   DataType::int32,
                            DataType::int64,   DataType::float16, DataType::bfloat16,
                            DataType::float32, DataType::float64};
constexpr std::array kOps{ReduceOp::average, ReduceOp::sum, ReduceOp::min, ReduceOp::max,
                          ReduceOp::product};
constexpr std::array<std::int64_t, 4> kCounts{0, 1, 7, 1009};

// Small whole numbers, so that every type holds every result exactly, in whatever order it is made.
int value_at(int rank, std::size_t i) {
  return static_cast<int>((i + static_cast<std::size_t>(rank)) % 3);
}

void store(DataType type, std::byte* at, double value) {
  const auto put = [&](auto typed) { std::memcpy(at, &typed, sizeof(typed)); };
  switch (type) {
    case DataType::boolean:
      return put(static_cast<std::uint8_t>(value != 0));
    case DataType::uint8:
      return put(static_cast<std::uint8_t>(value));
    case DataType::int8:
      return put(static_cast<std::int8_t>(value));
    case DataType::uint16:
      return put(static_cast<std::uint16_t>(value));
    case DataType::int16:
      return put(static_cast<std::int16_t>(value));
    case DataType::int32:
      return put(static_cast<std::int32_t>(value));
    case DataType::int64:
      return put(static_cast<std::int64_t>(value));
    case DataType::float16:
      return put(float_to_half(static_cast<float>(value)));
    case DataType::bfloat16:
      return put(float_to_bfloat16(static_cast<float>(value)));
    case DataType::float32:
      return put(static_cast<float>(value));
    case DataType::float64:
      return put(value);
    case DataType::float8_e4m3:
    case DataType::float8_e5m2:
      break;  // their sums here would be rounded; the conformance tables have them
  }
}

bool is_float(DataType type) { return type >= DataType::float16; }

// The value of element i on every rank, computed in double.
double expected(DataType type, ReduceOp op, int size, std::size_t i) {
  std::vector<double> values;
  for (int rank = 0; rank < size; ++rank) {
    const double value = value_at(rank, i);
    values.push_back(type == DataType::boolean ? (value != 0 ? 1 : 0) : value);
  }
  double sum = 0;
  double product = 1;
  for (const double value : values) {
    sum += value;
    product *= value;
  }
  switch (op) {
    case ReduceOp::min:
      return *std::min_element(values.begin(), values.end());
    case ReduceOp::max:
      return *std::max_element(values.begin(), values.end());
    case ReduceOp::product:
      return product;
    case ReduceOp::average: {
      // float16 and bfloat16 divide as float32 does, and store() rounds the same way.
      if (type == DataType::float64) return sum / size;
      const double mean = static_cast<float>(sum) / static_cast<float>(size);
      return is_float(type) ? mean : std::trunc(sum / size);
    }
    default:
      return sum;  // a bool is stored as "not zero"
  }
}

std::vector<std::byte> tensor(DataType type, std::int64_t count,
                              const std::function<double(std::size_t)>& value) {
  const auto n = static_cast<std::size_t>(count);
  std::vector<std::byte> bytes(n * size_of(type));
  for (std::size_t i = 0; i < n; ++i) store(type, bytes.data() + i * size_of(type), value(i));
  return bytes;
}

class WorldTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, WorldTest, ::testing::Values(1, 2, 3, 4, 8),
                         [](const auto& test_info) { return cat(test_info.param); });

TEST_P(WorldTest, AllreduceIsRightForEveryTypeOperationAndSize) {
  const int size = GetParam();
  run_world_to_end(size, [&](int rank, World& world) {
    for (const auto type : kTypes) {
      for (const auto op : kOps) {
        for (const auto count : kCounts) {
          for (const bool in_place : {true, false}) {
            const auto name = cat(type_name(type), ".", op_name(op), ".", count, ".", in_place);
            auto input = tensor(type, count, [&](std::size_t i) { return value_at(rank, i); });
            const auto untouched = input;
            std::vector<std::byte> other(input.size());
            auto& output = in_place ? input : other;
            const auto outcome =
                outcome_of(submit(world, test::allreduce_request(name, count, type, op),
                                  input.data(), output.data()));
            ASSERT_TRUE(outcome.ok()) << name << ": " << outcome.status.to_string();
            const auto right =
                tensor(type, count, [&](std::size_t i) { return expected(type, op, size, i); });
            ASSERT_EQ(output, right) << name << " on rank " << rank;
            if (!in_place) {
              ASSERT_EQ(input, untouched) << name;
            }
          }
        }
      }
    }
  });
}

TEST_P(WorldTest, ManyTensorsInFlightAreFusedAndStillRight) {
  const int size = GetParam();
  run_world_to_end(
      size,
      [&](int rank, World& world) {
        constexpr int kTensors = 300;
        std::vector<std::vector<float>> data;
        std::vector<std::future<Failure>> pending;
        for (int i = 0; i < kTensors; ++i) {
          data.emplace_back(static_cast<std::size_t>(i % 50), static_cast<float>(rank + i));
        }
        // Each rank in an order of its own: tensors are matched by name.
        for (int k = 0; k < kTensors; ++k) {
          const int i = (k * 7 + rank * 31) % kTensors;
          pending.push_back(test::allreduce(world, cat("t", i), data[static_cast<std::size_t>(i)]));
        }
        for (auto& future : pending) ASSERT_TRUE(outcome_of(std::move(future)).ok());
        for (int i = 0; i < kTensors; ++i) {
          const int ranks = size * (size - 1) / 2;
          const auto sum = static_cast<float>(size * i + ranks);
          for (const float value : data[static_cast<std::size_t>(i)]) ASSERT_EQ(value, sum) << i;
        }
      },
      [](WorldSpec& spec) { spec.config.fusion_threshold = 2000; });
}

TEST_P(WorldTest, FactorsAreAppliedBeforeAndAfter) {
  const int size = GetParam();
  run_world_to_end(size, [&](int rank, World& world) {
    std::vector<double> data(5, rank + 1);
    auto request = test::allreduce_request("scaled", 5, DataType::float64, ReduceOp::max);
    request.prescale = -1;
    request.postscale = 10;
    ASSERT_TRUE(outcome_of(submit(world, request, data.data(), data.data())).ok());
    EXPECT_EQ(data, std::vector<double>(5, -10));  // the largest of -1, -2, ...
    request.name = "averaged";
    request.op = ReduceOp::average;
    data.assign(5, rank);
    ASSERT_TRUE(outcome_of(submit(world, request, data.data(), data.data())).ok());
    EXPECT_EQ(data, std::vector<double>(5, -10.0 * (size - 1) / 2));
  });
}

TEST_P(WorldTest, BroadcastReachesAllFromEveryRoot) {
  const int size = GetParam();
  run_world_to_end(size, [&](int rank, World& world) {
    for (int root = 0; root < size; ++root) {
      for (const auto count : kCounts) {
        Request request;
        request.name = cat("b.", root, ".", count);
        request.kind = Kind::broadcast;
        request.type = DataType::int32;
        request.root = root;
        request.shape = {count};
        std::vector<int> data(static_cast<std::size_t>(count), rank == root ? 100 + root : -1);
        ASSERT_TRUE(outcome_of(submit(world, request, data.data(), data.data())).ok());
        ASSERT_EQ(data, std::vector<int>(static_cast<std::size_t>(count), 100 + root));
      }
    }
  });
}

TEST_P(WorldTest, NoRankPassesABarrierBeforeAllHaveReachedIt) {
  const int size = GetParam();
  std::atomic<int> arrived = 0;
  run_world_to_end(size, [&](int /*rank*/, World& world) {
    for (int round = 1; round <= 20; ++round) {
      Request request;
      request.name = "barrier";
      request.kind = Kind::barrier;
      request.shape = {0};
      ++arrived;
      ASSERT_TRUE(outcome_of(submit(world, request, nullptr, nullptr)).ok());
      ASSERT_GE(arrived, round * size);
    }
  });
}

TEST_P(WorldTest, ALargeTensorGoesThroughUnfused) {
  const int size = GetParam();
  run_world_to_end(
      size,
      [&](int rank, World& world) {
        std::vector<float> data(3'000'017, static_cast<float>(rank));
        ASSERT_TRUE(outcome_of(test::allreduce(world, "large", data)).ok());
        const int ranks = size * (size - 1) / 2;
        const auto sum = static_cast<float>(ranks);
        EXPECT_EQ(std::count(data.begin(), data.end(), sum), static_cast<long>(data.size()));
      },
      [](WorldSpec& spec) { spec.config.fusion_threshold = 1 << 20; });
}

TEST(WorldNames, ADuplicateInFlightIsAnErrorAtOnceAndTheNameIsFreeAfterwards) {
  std::promise<void> seen;
  run_world_to_end(2, [&](int rank, World& world) {
    std::vector<float> a(3, 1);
    std::vector<float> b(3, 2);
    if (rank == 0) {
      // Rank 1 has not asked for it yet, so it is in flight for certain.
      auto first = test::allreduce(world, "same", a);
      const auto second = outcome_of(test::allreduce(world, "same", b));
      EXPECT_EQ(second.status.code(), Code::invalid_argument);
      EXPECT_NE(second.status.message().find("\"same\""), std::string::npos);
      EXPECT_FALSE(second.world_failed);
      seen.set_value();
      EXPECT_TRUE(outcome_of(std::move(first)).ok());
    } else {
      seen.get_future().wait();
      EXPECT_TRUE(outcome_of(test::allreduce(world, "same", a)).ok());
    }
    EXPECT_TRUE(outcome_of(test::allreduce(world, "same", a)).ok());
  });
}

TEST(WorldNames, TheNameOfAGroupIsTakenUntilAllOfItIsDone) {
  std::promise<void> seen;
  run_world_to_end(2, [&](int rank, World& world) {
    std::vector<float> a(3, 1);
    std::vector<float> b(3, 2);
    const auto in_group = [&](const std::string& name, std::vector<float>& data) {
      auto request = test::allreduce_request(name, 3);
      request.group = "g";
      request.group_size = 1;
      return test::submit(world, request, data.data(), data.data());
    };
    if (rank == 0) {
      auto first = in_group("one", a);
      const auto second = outcome_of(in_group("another", b));
      EXPECT_EQ(second.status.code(), Code::invalid_argument);
      EXPECT_NE(second.status.message().find("group \"g\" is already in flight"), std::string::npos)
          << second.status.message();
      seen.set_value();
      EXPECT_TRUE(outcome_of(std::move(first)).ok());
    } else {
      seen.get_future().wait();
      EXPECT_TRUE(outcome_of(in_group("one", a)).ok());
    }
    EXPECT_TRUE(outcome_of(in_group("another", b)).ok());
  });
}

TEST(WorldOfOne, MakesNoSocket) {
  const auto sockets = [] {
    int count = 0;
    for (const auto& item : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code ignored;
      const auto target = std::filesystem::read_symlink(item.path(), ignored).string();
      if (target.starts_with("socket:")) ++count;
    }
    return count;
  };
  const int before = sockets();
  run_world_to_end(1, [&](int /*rank*/, World& world) {
    std::vector<float> data(3, 2);
    ASSERT_TRUE(outcome_of(test::allreduce(world, "x", data)).ok());
    EXPECT_EQ(sockets(), before);
  });
}

int count_of(const char* directory) {
  int count = 0;
  for ([[maybe_unused]] const auto& item : std::filesystem::directory_iterator(directory)) ++count;
  return count;
}

TEST(WorldLifecycle, AHundredRoundsLeaveNoDescriptorAndNoThreadBehind) {
  const auto round = [] {
    run_world_to_end(3, [](int /*rank*/, World& world) {
      std::vector<float> data(10, 1);
      ASSERT_TRUE(outcome_of(test::allreduce(world, "x", data)).ok());
    });
  };
  round();  // whatever the libraries open once
  const int descriptors = count_of("/proc/self/fd");
  const int threads = count_of("/proc/self/task");
  for (int i = 0; i < 100; ++i) round();
  EXPECT_EQ(count_of("/proc/self/fd"), descriptors);
  EXPECT_EQ(count_of("/proc/self/task"), threads);
}

// One rank on each host: all goes over connections.
TEST(WorldLifecycle, TheMeterOfARankCountsWhatItReceives) {
  constexpr std::size_t kRows = 1 << 20;
  std::array<std::shared_ptr<WorkMeter>, 2> meters{std::make_shared<WorkMeter>(),
                                                   std::make_shared<WorkMeter>()};
  run_world_to_end(
      2,
      [&](int rank, World& world) {
        std::vector<std::uint8_t> bytes(kRows, 7);
        Request request;
        request.name = "bytes";
        request.kind = Kind::broadcast;
        request.type = DataType::uint8;
        request.shape = {static_cast<std::int64_t>(kRows)};
        const auto sent = outcome_of(submit(world, request, bytes.data(), bytes.data()));
        EXPECT_TRUE(sent.ok()) << sent.status.to_string();
        const auto received = meters.at(static_cast<std::size_t>(rank))->received();
        if (rank == 0) EXPECT_LT(received, kRows / 2);
        if (rank == 1) EXPECT_GE(received, kRows);
      },
      [&](WorldSpec& spec) {
        const auto rank = static_cast<std::size_t>(spec.rank);
        spec.members[0].host = "one";
        spec.meter = meters.at(rank);
      });
}

}  // namespace
}  // namespace hvd::runtime
