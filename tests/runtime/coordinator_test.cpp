#include "runtime/coordinator.h"

#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <random>

#include "base/text.h"

namespace hvd::runtime {
namespace {

using std::chrono::milliseconds;

Request tensor(const std::string& name, std::int64_t elements = 4) {
  Request request;
  request.name = name;
  request.type = DataType::float32;
  request.shape = {elements};
  return request;
}

std::vector<std::string> names_of(const Response& response) {
  std::vector<std::string> names;
  for (const auto& tensor : response.tensors) names.push_back(tensor.request.name);
  return names;
}

std::vector<std::string> hosts(int size) {
  std::vector<std::string> names;
  for (int rank = 0; rank < size; ++rank) names.push_back(cat("host", rank));
  return names;
}

class CoordinatorTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kThreshold = 1024;
  Coordinator coordinator_{hosts(3), kThreshold, milliseconds(5)};
  TimePoint now_{};

  void submit_everywhere(const Request& request) {
    for (int rank = 0; rank < 3; ++rank) {
      ASSERT_TRUE(coordinator_.submit(rank, {request}, now_).ok());
    }
  }
};

TEST_F(CoordinatorTest, RunsATensorOnceAllRanksHaveAskedForIt) {
  ASSERT_TRUE(coordinator_.submit(2, {tensor("a")}, now_).ok());
  ASSERT_TRUE(coordinator_.submit(0, {tensor("a")}, now_).ok());
  EXPECT_TRUE(coordinator_.poll(now_, 0).empty());
  ASSERT_TRUE(coordinator_.submit(1, {tensor("a")}, now_).ok());
  const auto responses = coordinator_.poll(now_, 0);
  ASSERT_EQ(responses.size(), 1U);
  EXPECT_EQ(names_of(responses[0]), std::vector<std::string>{"a"});
  EXPECT_TRUE(responses[0].error.ok());
  EXPECT_TRUE(coordinator_.poll(now_, 0).empty());
}

TEST_F(CoordinatorTest, GathersWhatIsReadyWhileTheExecutorHasEnoughToDo) {
  for (const auto* name : {"a", "b", "c"}) submit_everywhere(tensor(name));
  EXPECT_TRUE(coordinator_.poll(now_, Coordinator::kEnoughAhead).empty());
  const auto responses = coordinator_.poll(now_, Coordinator::kEnoughAhead - 1);
  ASSERT_EQ(responses.size(), 1U);
  EXPECT_EQ(names_of(responses[0]), (std::vector<std::string>{"a", "b", "c"}));
}

TEST_F(CoordinatorTest, ReleasesWhatHasWaitedForTheCycleTimeButNotWithoutEnd) {
  submit_everywhere(tensor("a"));
  EXPECT_EQ(coordinator_.next_poll(Coordinator::kEnoughAhead), now_ + milliseconds(5));
  EXPECT_TRUE(coordinator_.poll(now_ + milliseconds(4), Coordinator::kEnoughAhead).empty());
  EXPECT_TRUE(coordinator_.poll(now_ + milliseconds(5), Coordinator::kMaxAhead).empty());
  EXPECT_EQ(coordinator_.next_poll(Coordinator::kMaxAhead), kNever);
  EXPECT_EQ(coordinator_.poll(now_ + milliseconds(5), Coordinator::kEnoughAhead).size(), 1U);
  EXPECT_EQ(coordinator_.next_poll(0), kNever);
}

struct Disagreement {
  const char* what;
  std::function<void(Request&)> change;
  std::vector<std::string> said;  // must stand in the error
};

class DisagreementTest : public ::testing::TestWithParam<Disagreement> {};

TEST_P(DisagreementTest, IsAnErrorThatNamesBothSidesAndTheNextTensorIsFine) {
  Coordinator coordinator(hosts(3), 1024, milliseconds(5));
  Request odd = tensor("t");
  GetParam().change(odd);
  ASSERT_TRUE(coordinator.submit(0, {tensor("t")}, {}).ok());
  ASSERT_TRUE(coordinator.submit(1, {tensor("t")}, {}).ok());
  ASSERT_TRUE(coordinator.submit(2, {odd}, {}).ok());
  auto responses = coordinator.poll({}, 0);
  ASSERT_EQ(responses.size(), 1U);
  EXPECT_EQ(responses[0].error.code(), Code::invalid_argument);
  auto said = GetParam().said;
  said.insert(said.end(), {"\"t\"", "rank 0 on host host0", "rank 2 on host host2"});
  for (const auto& text : said) {
    EXPECT_NE(responses[0].error.message().find(text), std::string::npos)
        << text << " is not in: " << responses[0].error.message();
  }
  for (int rank = 0; rank < 3; ++rank)
    ASSERT_TRUE(coordinator.submit(rank, {tensor("t")}, {}).ok());
  responses = coordinator.poll({}, 0);
  ASSERT_EQ(responses.size(), 1U);
  EXPECT_TRUE(responses[0].error.ok());
}

INSTANTIATE_TEST_SUITE_P(
    All, DisagreementTest,
    ::testing::Values(
        Disagreement{"Type",
                     [](Request& r) { r.type = DataType::float64; },
                     {"Mismatched data types: One rank had type float32, but another rank had type "
                      "float64."}},
        Disagreement{"Shape",
                     [](Request& r) {
                       r.shape = {2, 2};
                     },
                     {"Mismatched allreduce tensor shapes", "[4]", "[2, 2]"}},
        Disagreement{"Op",
                     [](Request& r) { r.op = ReduceOp::max; },
                     {"Mismatched reduce operations", "sum", "max"}},
        Disagreement{"Kind",
                     [](Request& r) { r.kind = Kind::broadcast; },
                     {"Mismatched collective operations", "an allreduce", "a broadcast"}},
        Disagreement{"Root",
                     [](Request& r) { r.root = 2; },
                     {"Mismatched broadcast root ranks", "root rank 0", "root rank 2"}},
        Disagreement{"Prescale",
                     [](Request& r) { r.prescale = 0.5; },
                     {"Mismatched prescale factors", "0.5"}},
        Disagreement{"Postscale",
                     [](Request& r) { r.postscale = 3; },
                     {"Mismatched postscale factors", "3"}}),
    [](const auto& test) { return std::string(test.param.what); });

TEST_F(CoordinatorTest, WhatARankThatLeftWouldBeNeededForFailsAtOnce) {
  ASSERT_TRUE(coordinator_.submit(0, {tensor("a")}, now_).ok());
  coordinator_.leave(1, now_);
  ASSERT_TRUE(coordinator_.submit(2, {tensor("b")}, now_).ok());
  const auto responses = coordinator_.poll(now_, 0);
  ASSERT_EQ(responses.size(), 2U);
  for (const auto& response : responses) {
    EXPECT_EQ(response.error.code(), Code::failed_precondition);
    EXPECT_NE(response.error.message().find("rank 1 on host host1 has called shutdown()"),
              std::string::npos);
  }
  EXPECT_EQ(coordinator_.incomplete(), 0U);
  EXPECT_FALSE(coordinator_.all_left());
  coordinator_.leave(0, now_);
  coordinator_.leave(2, now_);
  coordinator_.leave(2, now_);
  EXPECT_TRUE(coordinator_.all_left());
}

TEST_F(CoordinatorTest, RefusesARankThatDoesNotKeepToTheProtocol) {
  ASSERT_TRUE(coordinator_.submit(1, {tensor("a")}, now_).ok());
  EXPECT_EQ(coordinator_.submit(1, {tensor("a")}, now_).code(), Code::already_exists);
  EXPECT_EQ(coordinator_.submit(1, {tensor("")}, now_).code(), Code::invalid_argument);
  EXPECT_EQ(coordinator_.submit(1, {tensor("b", -1)}, now_).code(), Code::invalid_argument);
  coordinator_.leave(2, now_);
  EXPECT_EQ(coordinator_.submit(2, {tensor("a")}, now_).code(), Code::failed_precondition);
}

// Ranks submit the same tensors, each in an order of its own, in pieces of random size, while the
// executor is more or less busy.
TEST(CoordinatorSimulation, EveryTensorRunsExactlyOnceWhateverTheOrderOfMessages) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    std::mt19937 random(seed);
    const auto below = [&](std::size_t n) {
      return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
    };
    const int size = 1 + static_cast<int>(below(6));
    const std::size_t count = 1 + below(40);
    Coordinator coordinator(hosts(size), 1 + below(400), milliseconds(1));
    std::vector<std::vector<Request>> left(static_cast<std::size_t>(size));
    for (auto& requests : left) {
      for (std::size_t i = 0; i < count; ++i) {
        auto request = tensor(cat("t", i), static_cast<std::int64_t>(i % 9));
        request.type = i % 3 == 0 ? DataType::int64 : DataType::float32;
        requests.push_back(request);
      }
      std::shuffle(requests.begin(), requests.end(), random);
    }
    std::map<std::string, int> ran;
    TimePoint now{};
    for (int step = 0; step < 100'000 && ran.size() < count; ++step) {
      now += milliseconds(below(3));
      const std::size_t rank = below(left.size());
      auto& requests = left[rank];
      const std::size_t take = std::min(requests.size(), below(5));
      std::vector<Request> piece(requests.end() - static_cast<std::ptrdiff_t>(take),
                                 requests.end());
      requests.resize(requests.size() - take);
      ASSERT_TRUE(coordinator.submit(static_cast<int>(rank), piece, now).ok());
      for (const auto& response : coordinator.poll(now, static_cast<int>(below(5)))) {
        ASSERT_TRUE(response.error.ok());
        ASSERT_FALSE(response.tensors.empty());
        for (const auto& name : names_of(response)) {
          EXPECT_EQ(++ran[name], 1) << name;
          // Nothing may run that some rank has not asked for yet.
          for (const auto& others : left) {
            for (const auto& request : others) EXPECT_NE(request.name, name);
          }
        }
      }
    }
    EXPECT_EQ(ran.size(), count);
    EXPECT_EQ(coordinator.incomplete(), 0U);
  }
}

}  // namespace
}  // namespace hvd::runtime
