// Worlds that are tuned while they run: the results are right, and the log has the candidates.
#include <filesystem>
#include <fstream>
#include <set>

#include "tests/runtime/control/worlds.h"
#include "tests/support/process.h"

namespace hvd::test {
namespace {

using runtime::Kind;
using Row = std::vector<std::string>;

// Without the header. The last field is quoted and may hold commas.
std::vector<Row> rows_of(const std::string& path) {
  std::vector<Row> rows;
  auto lines = split(read_file(path), '\n');
  for (std::size_t i = 1; i + 1 < lines.size(); ++i) {
    const auto quote = lines[i].find('"');
    Row row = split(lines[i].substr(0, quote), ',');
    row.back() = lines[i].substr(quote);
    rows.push_back(std::move(row));
  }
  return rows;
}

bool has_settled(const std::string& path) {
  return read_file(path).find("settled") != std::string::npos;
}

// One step: eight allreduces at once and an allgather with different rows each time; true if all
// ranks voted to stop.
bool step(runtime::World& world, int rank, int number, bool stop) {
  constexpr std::size_t kTensors = 8;
  constexpr std::size_t kElements = 20'000;
  std::vector<std::vector<float>> tensors;
  std::vector<std::future<runtime::Failure>> futures;
  for (std::size_t i = 0; i < kTensors; ++i) {
    tensors.emplace_back(kElements,
                         static_cast<float>(rank + number % 100) + static_cast<float>(i));
  }
  for (std::size_t i = 0; i < kTensors; ++i) {
    futures.push_back(allreduce(world, cat("gradient.", i), tensors[i]));
  }
  std::vector<std::int32_t> rows(static_cast<std::size_t>(1 + (rank + number) % 3) * 5'000, rank);
  std::vector<std::int32_t> all;
  runtime::Entry gather;
  gather.request.name = "rows";
  gather.request.kind = Kind::allgather;
  gather.request.type = DataType::int32;
  gather.request.shape = {static_cast<std::int64_t>(rows.size())};
  gather.input = rows.data();
  gather.allocate = [&all](const std::vector<std::int64_t>& shape) {
    all.resize(static_cast<std::size_t>(shape.front()));
    return static_cast<void*>(all.data());
  };
  const auto gathered = outcome_of(submit(world, std::move(gather)));
  EXPECT_TRUE(gathered.ok()) << gathered.failure.status.to_string();
  std::vector<std::int32_t> expected;
  for (int other = 0; other < world.size(); ++other) {
    expected.insert(expected.end(), static_cast<std::size_t>(1 + (other + number) % 3) * 5'000,
                    other);
  }
  EXPECT_EQ(all, expected) << "step " << number;
  float sum_of_ranks = 0;
  for (int other = 0; other < world.size(); ++other) sum_of_ranks += static_cast<float>(other);
  for (std::size_t i = 0; i < kTensors; ++i) {
    const auto outcome = outcome_of(std::move(futures[i]));
    EXPECT_TRUE(outcome.ok()) << outcome.status.to_string();
    const float each = static_cast<float>(number % 100) + static_cast<float>(i);
    EXPECT_EQ(tensors[i],
              std::vector<float>(kElements, sum_of_ranks + static_cast<float>(world.size()) * each))
        << "step " << number;
  }
  std::vector<float> votes{stop ? 1.0F : 0.0F};
  EXPECT_TRUE(outcome_of(allreduce(world, "stop", votes)).ok());
  return votes.front() > 0;
}

// Runs until the log says that the search has ended.
void work_until_settled(
    const std::string& path, const Change& change = [](auto&) {}) {
  const auto deadline = Clock::now() + kLong;
  run_world_to_end(
      4,
      [&](int rank, runtime::World& world) {
        for (int number = 0;; ++number) {
          const bool stop =
              rank == 0 && number % 20 == 0 && (has_settled(path) || Clock::now() > deadline);
          if (step(world, rank, number, stop) || ::testing::Test::HasFailure()) break;
        }
      },
      [&](runtime::WorldSpec& spec) {
        spec.config.tuning.enabled = true;
        spec.config.tuning.warmup_samples = 1;
        spec.config.tuning.steps_per_sample = 2;
        spec.config.tuning.log_path = path;
        change(spec);
      });
  EXPECT_TRUE(has_settled(path)) << read_file(path);
}

std::set<std::string> values_of(const std::vector<Row>& rows, std::size_t column) {
  std::set<std::string> values;
  for (const auto& row : rows) values.insert(row.at(column));
  return values;
}

TEST(WorldTuning, ResultsAreRightWhileEverythingIsTried) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() / "tune.csv";
  // Two hosts of two ranks.
  work_until_settled(path, [](runtime::WorldSpec& spec) { spec.config.tuning.max_samples = 40; });
  const auto rows = rows_of(path);
  EXPECT_GT(values_of(rows, 2).size(), 1U) << "fusion threshold";
  EXPECT_GT(values_of(rows, 3).size(), 1U) << "cycle time";
  EXPECT_EQ(values_of(rows, 4), (std::set<std::string>{"0", "1"})) << "cache";
  EXPECT_EQ(values_of(rows, 5), (std::set<std::string>{"0", "1"})) << "hierarchical allreduce";
  EXPECT_EQ(values_of(rows, 6), (std::set<std::string>{"0", "1"})) << "hierarchical allgather";
}

TEST(WorldTuning, InDeterministicModeNothingIsTriedThatChangesBits) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() / "tune.csv";
  work_until_settled(path, [](runtime::WorldSpec& spec) { spec.config.deterministic = true; });
  const auto rows = rows_of(path);
  EXPECT_EQ(values_of(rows, 2).size(), 1U) << "fusion threshold";
  EXPECT_EQ(values_of(rows, 5), (std::set<std::string>{"1"})) << "hierarchical allreduce";
  EXPECT_GT(values_of(rows, 3).size(), 1U) << "cycle time";
}

TEST(WorldTuning, OnOneHostNothingGoesByHosts) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() / "tune.csv";
  work_until_settled(path, [](runtime::WorldSpec& spec) {
    for (auto& member : spec.members) member.host = "one";
  });
  EXPECT_EQ(values_of(rows_of(path), 5), (std::set<std::string>{"0"}));
  EXPECT_EQ(values_of(rows_of(path), 6), (std::set<std::string>{"0"}));
}

TEST(WorldTuning, ALogThatCannotBeWrittenIsAnErrorOfRankZeroAtTheStart) {
  auto spec = spec_of(0, 1);
  spec.config.tuning.enabled = true;
  spec.config.tuning.log_path = "/no/such/place/tune.csv";
  Hub hub(1);
  HubExchange exchange(hub, 0);
  const auto world = runtime::World::create(spec, exchange);
  ASSERT_FALSE(world.ok());
  EXPECT_NE(world.status().message().find(
                "open autotuner's log (HVD_AUTOTUNE_LOG) /no/such/place/tune.csv"),
            std::string::npos)
      << world.status().message();
}

}  // namespace
}  // namespace hvd::test
