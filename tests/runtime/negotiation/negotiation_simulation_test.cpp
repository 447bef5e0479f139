// The negotiation of whole worlds, with random timing. A seed reproduces a run.
#include <algorithm>
#include <gtest/gtest.h>

#include "tests/runtime/negotiation/simulated_world.h"

namespace hvd::runtime {
namespace {

using test::SimulatedWorld;
using Time = SimulatedWorld::Time;

// A random program: the steps of each rank, one after the other, with or without waiting in
// between. Made from a seed; equal on all ranks except for the order within a step, the extents of
// ragged tensors, and deliberate errors.
class Program {
 public:
  struct Options {
    bool mismatches = true;
    bool process_sets = true;
    bool joins = true;
    bool leaves = false;  // ranks leave at different steps: later requests of the others then fail
    int steps = 6;
  };

  Program(SimulatedWorld& world, unsigned seed, const Options& options)
      : world_(world), options_(options), random_(seed * 7919 + 1), ranks_(world.size()) {
    for (int i = 0; i < 3 + below(10); ++i) tensors_.push_back(random_tensor(i));
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      ranks_[rank].steps = options.steps;
      if (options.leaves || options.joins) {
        ranks_[rank].steps = 1 + below(options.steps);
      }
    }
  }

  void start() {
    world_.on_answer(
        [this](int rank, const Request& request, const SimulatedWorld::Answer& answer) {
          on_answer(rank, request, answer);
        });
    for (int rank = 0; rank < world_.size(); ++rank) {
      world_.after(Time(world_.below(500)), [this, rank] { next_step(rank); });
    }
  }

  bool ended() const {
    return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.ended; });
  }
  std::size_t answers() const { return answers_; }

 private:
  struct Rank {
    int steps = 0;
    int step = 0;
    std::size_t waiting = 0;  // entries of this step without an answer
    bool joined = false;
    bool ended = false;
  };
  enum class Phase { work, add, use, remove };

  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

  Request random_tensor(int number) {
    constexpr std::array kKinds{Kind::allreduce,     Kind::allreduce, Kind::allgather,
                                Kind::reducescatter, Kind::alltoall,  Kind::broadcast,
                                Kind::barrier};
    auto request = test::of_kind(kKinds[static_cast<std::size_t>(below(kKinds.size()))],
                                 cat("t", number), {1 + below(5), 1 + below(3)});
    if (below(3) == 0) request.type = DataType::int64;
    // A root that has joined or left cannot send.
    if (request.kind == Kind::broadcast && (options_.joins || options_.leaves)) {
      request.kind = Kind::allreduce;
    }
    if (number % 4 == 1 && request.kind != Kind::barrier) {
      request.group = "pair";
      request.group_size = 0;  // counted when the group is complete
    }
    return request;
  }

  // The requests of all ranks in this step, each in its own order.
  std::vector<Request> requests_of(int rank, int step) {
    std::vector<Request> requests;
    std::mt19937 of_step(static_cast<unsigned>(step) * 31 + 5);
    int grouped = 0;
    for (const auto& tensor : tensors_) grouped += tensor.group.empty() ? 0 : 1;
    for (auto request : tensors_) {
      if (!request.group.empty()) request.group_size = grouped;
      const auto change = of_step() % 10;
      const auto odd_rank = static_cast<int>(of_step() % static_cast<unsigned>(world_.size()));
      if (change == 0) request.shape[1] += 1;  // on all ranks
      if (is_ragged(request)) request.shape[0] = (rank + (change == 1 ? step : 0)) % 4;
      if (options_.mismatches && change == 2 && rank == odd_rank) request.type = DataType::int8;
      if (options_.mismatches && change == 3 && rank == odd_rank) request.shape[1] += 2;
      requests.push_back(std::move(request));
    }
    add_sends(rank, step, requests);
    if (options_.process_sets) {
      // A process set of the upper half of the world, which is added and removed.
      std::vector<int> upper;
      for (int r = world_.size() / 2; r < world_.size(); ++r) upper.push_back(r);
      if (upper.size() == static_cast<std::size_t>(world_.size())) upper.clear();
      const bool exists = step % 3 == 1;
      if (!upper.empty() && step % 3 == 0) requests.push_back(test::add_set("add", upper));
      if (!upper.empty() && exists && rank >= world_.size() / 2) {
        requests.push_back(test::in_set(test::tensor("t0"), 1 + step / 3));
        requests.push_back(test::in_set(test::tensor("upper"), 1 + step / 3));
      }
      if (!upper.empty() && step % 3 == 2) {
        auto remove = test::of_kind(Kind::remove_process_set, "remove", {0});
        remove.process_set = 1 + step / 3;
        requests.push_back(remove);
        // In flight while the set is removed: answered all the same.
        if (rank >= world_.size() / 2 && of_step() % 2 == 0) {
          requests.insert(requests.begin(), test::in_set(test::tensor("late"), 1 + step / 3));
        }
      }
    }
    return requests;
  }

  // A few ranks send something to a few others.
  void add_sends(int rank, int step, std::vector<Request>& requests) {
    if (world_.size() < 2) return;
    std::mt19937 of_step(static_cast<unsigned>(step) * 17 + 3);
    const auto any_rank = [&] {
      return static_cast<int>(of_step() % static_cast<unsigned>(world_.size()));
    };
    for (unsigned left = of_step() % 4; left > 0; --left) {
      const int sender = any_rank();
      const int receiver = any_rank();
      const bool mismatch = of_step() % 5 == 0 && options_.mismatches;
      if (sender == receiver || (rank != sender && rank != receiver)) continue;
      auto request = test::send_recv(cat("s", left, ".", sender, "->", receiver), sender, receiver);
      if (mismatch && rank == receiver) request.type = DataType::int8;
      requests.push_back(std::move(request));
    }
  }

  void next_step(int rank) {
    auto& self = ranks_[static_cast<std::size_t>(rank)];
    if (self.step == self.steps) return end(rank);
    auto requests = requests_of(rank, self.step++);
    self.waiting = requests.size();
    // Groups stay together; everything else is submitted in pieces and in any order.
    std::vector<std::vector<Request>> pieces;
    std::vector<Request> group;
    for (auto& request : requests) {
      if (request.group.empty()) {
        pieces.push_back({std::move(request)});
      } else {
        group.push_back(std::move(request));
      }
    }
    if (!group.empty()) pieces.push_back(std::move(group));
    for (auto i = pieces.size(); i > 1; --i) {
      std::swap(pieces[i - 1], pieces[world_.below(static_cast<unsigned>(i))]);
    }
    Time delay(0);
    for (auto& piece : pieces) {
      delay += Time(world_.below(4) == 0 ? world_.below(3000) : 0);
      world_.after(delay, [this, rank, piece = std::move(piece)] { world_.submit(rank, piece); });
    }
    if (requests.empty()) next_step(rank);
  }

  void end(int rank) {
    auto& self = ranks_[static_cast<std::size_t>(rank)];
    if (options_.joins && !self.joined) {
      self.joined = true;
      self.waiting = 1;
      world_.submit(rank, {test::of_kind(Kind::join, std::string(kJoinName), {0})});
      return;
    }
    self.ended = true;
    world_.leave(rank);
  }

  void on_answer(int rank, const Request&, const SimulatedWorld::Answer&) {
    auto& self = ranks_[static_cast<std::size_t>(rank)];
    ++answers_;
    if (--self.waiting == 0) {
      world_.after(Time(world_.below(200)), [this, rank] { next_step(rank); });
    }
  }

  SimulatedWorld& world_;
  Options options_;
  std::mt19937 random_;
  std::vector<Rank> ranks_;
  std::vector<Request> tensors_;
  std::size_t answers_ = 0;
};

struct Scenario {
  const char* name;
  Program::Options options;
  int seeds;
};

// Changes the parameters again and again, at random times.
void tune_at_random(SimulatedWorld& world, int times) {
  if (times == 0) return;
  world.after(Time(world.below(1'000)), [&world, times] {
    Parameters parameters;
    parameters.fusion_threshold = 1 + world.below(300);
    parameters.cycle_time = Time(world.below(5'000));
    parameters.cache = world.below(2) == 0;
    parameters.hierarchical_allreduce = world.below(2) == 0;
    parameters.hierarchical_allgather = world.below(2) == 0;
    world.tune(parameters);
    tune_at_random(world, times - 1);
  });
}

class NegotiationSimulation : public ::testing::TestWithParam<Scenario> {};

TEST_P(NegotiationSimulation, EveryEntryIsAnsweredOnceInOneOrderAndTheWorldEndsCleanly) {
  for (unsigned seed = 0; seed < static_cast<unsigned>(GetParam().seeds); ++seed) {
    SCOPED_TRACE(cat(GetParam().name, ", seed ", seed));
    std::mt19937 random(seed);
    Config config;
    config.cache_capacity = std::array<std::size_t, 4>{0, 3, 7, 1024}[random() % 4];
    config.fusion_threshold = 1 + random() % 300;
    config.deterministic = random() % 4 == 0;
    const int size = 1 + static_cast<int>(random() % 23);
    SimulatedWorld world(size, 1 + static_cast<int>(random() % 7), seed, config);
    if (random() % 5 == 0) world.slowest_message(Time(400'000));  // gatherers forward rows in part
    Program program(world, seed, GetParam().options);
    program.start();
    if (random() % 2 == 0) tune_at_random(world, 20);
    world.run();
    world.check_orders();
    ASSERT_EQ(world.failure(), "");
    ASSERT_EQ(world.in_flight(), 0U);
    ASSERT_TRUE(program.ended());
    ASSERT_TRUE(world.all_said_goodbye());
    ASSERT_GT(program.answers(), 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Scenarios, NegotiationSimulation,
    ::testing::Values(Scenario{"Plain", {false, false, false, false, 6}, 120},
                      Scenario{"Mismatches", {true, false, false, false, 6}, 120},
                      Scenario{"ProcessSets", {true, true, false, false, 9}, 120},
                      Scenario{"Joins", {false, false, true, false, 6}, 120},
                      Scenario{"Leaves", {true, false, false, true, 6}, 120}),
    [](const auto& test_info) { return std::string(test_info.param.name); });

TEST(NegotiationSimulation, TheSameSeedIsTheSameRun) {
  const auto batches = [](unsigned seed) {
    SimulatedWorld world(9, 3, seed, {});
    Program program(world, 1, {false, false, false, false, 5});
    program.start();
    world.run();
    return world.batches();
  };
  EXPECT_EQ(batches(3), batches(3));
  EXPECT_NE(batches(3), batches(4));
}

TEST(NegotiationSimulation, WithoutTheCacheEverythingIsAskedForInFullUntilItIsBack) {
  SimulatedWorld world(6, 3, 1, {});
  const auto step = [&world](const std::string& name) {
    for (int rank = 0; rank < world.size(); ++rank) world.submit(rank, {test::tensor(name)});
    world.run();
    ASSERT_EQ(world.failure(), "");
    ASSERT_EQ(world.in_flight(), 0U);
  };
  step("a");
  EXPECT_EQ(world.negotiator(5).cache().size(), 1U);
  Parameters parameters;
  parameters.cache = false;
  world.tune(parameters);
  step("a");
  step("b");
  EXPECT_EQ(world.negotiator(5).cache().size(), 1U) << "b was kept";
  parameters.cache = true;
  world.tune(parameters);
  step("b");
  EXPECT_EQ(world.negotiator(5).cache().size(), 2U);
  EXPECT_EQ(world.negotiator(5).cache().next_id(), world.negotiator(0).cache().next_id());
}

// Ranks that request the same tensors again and again, whatever the answers are, while others leave
// one by one: a request that is under way when an error answers it must not be taken for the next
// one.
TEST(NegotiationSimulation, RepeatedRequestsAfterAnErrorAreNotMixedUp) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    constexpr int kSize = 13;
    Config config;
    config.cache_capacity = seed % 3;
    SimulatedWorld world(kSize, 4, seed, config);
    std::vector<int> left(kSize);
    for (auto& times : left) times = 1 + static_cast<int>(world.below(30));
    const auto ask = [&](int rank, const std::string& name) {
      world.submit(rank, {test::tensor(name)});
    };
    std::vector<std::set<std::string>> names(kSize, {"x", "y"});
    world.on_answer([&](int rank, const Request& request, const SimulatedWorld::Answer&) {
      const auto r = static_cast<std::size_t>(rank);
      if (--left[r] > 0) {
        world.after(Time(world.below(50)), [&, rank, name = request.name] { ask(rank, name); });
      } else {
        names[r].erase(request.name);
        if (names[r].empty()) world.leave(rank);
      }
    });
    for (int rank = 0; rank < kSize; ++rank) {
      for (const auto* name : {"x", "y"}) ask(rank, name);
    }
    world.run();
    world.check_orders();
    ASSERT_EQ(world.failure(), "");
    ASSERT_EQ(world.in_flight(), 0U);
    ASSERT_TRUE(world.all_said_goodbye());
  }
}

// Ids are under way when their tensors leave the caches.
class WorldOfSmallCaches : public SimulatedWorld {
 public:
  explicit WorldOfSmallCaches(unsigned seed)
      : SimulatedWorld(2 + static_cast<int>(seed % 17), 1 + static_cast<int>(seed % 5), seed,
                       config_of(seed)) {
    if (seed % 5 == 0) slowest_message(Time(400'000));  // gatherers forward rows in part
  }

 private:
  static Config config_of(unsigned seed) {
    Config config;
    config.cache_capacity = 1 + seed % 7;
    config.deterministic = seed % 4 == 0;
    return config;
  }
};

// Ranks that close with calls in flight, some of which no other rank makes.
TEST(NegotiationSimulation, InShutdownJustThoseCallsFailThatARankDoesNotMake) {
  std::size_t failed = 0;
  std::size_t completed = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    WorldOfSmallCaches world(seed);
    const int size = world.size();
    constexpr int kTensors = 8;
    struct Rank {
      std::size_t in_flight = 0;
      int answered = 0;
      bool closes = false;
    };
    std::vector<Rank> ranks(static_cast<std::size_t>(size));
    std::map<std::string, int> made;  // by how many ranks in their last step
    const auto last_step = [&](int rank) {
      auto& self = ranks[static_cast<std::size_t>(rank)];
      self.closes = true;
      std::vector<Request> calls;
      for (int i = 0; i < kTensors; ++i) {
        if (world.below(4u * static_cast<unsigned>(size)) == 0) continue;
        // Some differ from the step before on all ranks, and drop what was agreed about them.
        calls.push_back(test::tensor(cat("t", i), i % 3 == 0 ? 9 : 3));
      }
      if (world.below(3) == 0) calls.push_back(test::tensor(cat("only ", rank)));
      for (const auto& call : calls) ++made[call.name];
      self.in_flight = calls.size();
      for (const auto& call : calls) world.submit(rank, {call});
      world.close(rank);
      if (calls.empty()) world.leave(rank);
    };
    std::vector<std::pair<std::string, bool>> answers;
    world.on_answer([&](int rank, const Request& request, const SimulatedWorld::Answer& answer) {
      auto& self = ranks[static_cast<std::size_t>(rank)];
      if (self.closes) {
        answers.emplace_back(request.name, answer.ok);
        if (--self.in_flight == 0) world.leave(rank);
      } else if (++self.answered == kTensors) {
        world.after(Time(world.below(300)), [&, rank] { last_step(rank); });
      }
    });
    for (int rank = 0; rank < size; ++rank) {
      for (int i = 0; i < kTensors; ++i) {
        world.after(Time(world.below(500)),
                    [&, rank, i] { world.submit(rank, {test::tensor(cat("t", i), 3)}); });
      }
    }
    world.run();
    world.check_orders();
    ASSERT_EQ(world.failure(), "");
    ASSERT_EQ(world.in_flight(), 0U);
    ASSERT_TRUE(world.all_said_goodbye());
    for (const auto& [name, ok] : answers) {
      ASSERT_EQ(ok, made[name] == size) << name;
      ++(ok ? completed : failed);
    }
  }
  EXPECT_GT(failed, 1'000U);
  EXPECT_GT(completed, 1'000U);
}

// Tensors that have left the caches are asked for again in full.
TEST(NegotiationSimulation, RanksJoinWithCallsInFlight) {
  std::size_t answers = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    WorldOfSmallCaches world(seed);
    const int size = world.size();
    constexpr int kTensors = 8;
    struct Rank {
      int steps = 0;
      int in_flight = 0;
    };
    std::vector<Rank> ranks(static_cast<std::size_t>(size));
    const auto step = [&](int rank) {
      auto& self = ranks[static_cast<std::size_t>(rank)];
      for (int i = 0; i < kTensors; ++i) {
        if (--self.steps < 0) break;  // in the middle of a step, too
        ++self.in_flight;
        world.submit(rank, {test::tensor(cat("t", i), 3)});
      }
      if (self.steps > 0) return;
      ++self.in_flight;
      world.submit(rank, {test::of_kind(Kind::join, std::string(kJoinName), {0})});
    };
    world.on_answer([&](int rank, const Request&, const SimulatedWorld::Answer& answer) {
      EXPECT_TRUE(answer.ok) << answer.text;
      ++answers;
      auto& self = ranks[static_cast<std::size_t>(rank)];
      if (--self.in_flight > 0) return;
      if (self.steps > 0) {
        world.after(Time(world.below(300)), [&, rank] { step(rank); });
      } else {
        world.leave(rank);
      }
    });
    for (int rank = 0; rank < size; ++rank) {
      ranks[static_cast<std::size_t>(rank)].steps = 1 + static_cast<int>(world.below(4 * kTensors));
      world.after(Time(world.below(500)), [&, rank] { step(rank); });
    }
    world.run();
    world.check_orders();
    ASSERT_EQ(world.failure(), "");
    ASSERT_EQ(world.in_flight(), 0U);
    ASSERT_TRUE(world.all_said_goodbye());
  }
  EXPECT_GT(answers, 10'000U);
}

// Sets that their members add, use and remove, each in its own time, while all ranks reduce.
TEST(NegotiationSimulation, MembersAddUseAndRemoveTheirSetsWhileTheWorldGoesOn) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    constexpr int kSets = 6;
    Config config;
    config.deterministic = seed % 4 == 0;
    config.cache_capacity = seed % 3 == 0 ? 0 : 7;
    SimulatedWorld world(2 + static_cast<int>(seed % 12), 3, seed, config);
    if (seed % 5 == 0) world.slowest_message(Time(400'000));  // gatherers forward rows in part
    std::vector<int> steps(static_cast<std::size_t>(world.size()), 20);
    std::vector<int> parts(static_cast<std::size_t>(world.size()), 1);  // a rank leaves after all
    const auto ended = [&](int rank) {
      if (--parts[static_cast<std::size_t>(rank)] == 0) world.leave(rank);
    };
    std::map<std::string, std::set<int>> numbers;  // by the name of the set
    std::map<std::string, std::vector<int>> members;
    const auto ask = [&](int rank, Request request) {
      world.after(Time(world.below(2'000)),
                  [&world, rank, request = std::move(request)] { world.submit(rank, {request}); });
    };
    world.on_answer([&](int rank, const Request& request, const SimulatedWorld::Answer& answer) {
      EXPECT_TRUE(answer.ok) << answer.text;
      if (request.kind == Kind::add_process_set) {
        numbers[request.name].insert(answer.process_set);
        ask(rank, test::in_set(test::tensor(request.name), answer.process_set));
      } else if (request.kind == Kind::remove_process_set) {
        ended(rank);
      } else if (request.process_set != kGlobalSet) {
        auto removal = test::by_members(
            test::remove_set(cat("remove ", request.process_set), request.process_set));
        removal.ranks = members[request.name];
        ask(rank, removal);
      } else if (--steps[static_cast<std::size_t>(rank)] > 0) {
        ask(rank, test::tensor("gradient"));
      } else {
        ended(rank);
      }
    });
    for (int set = 0; set < kSets; ++set) {
      auto& ranks = members[cat("set ", set)];
      for (int rank = 0; rank < world.size(); ++rank) {
        if (world.below(2) == 0 || rank == set % world.size()) ranks.push_back(rank);
      }
      for (const int rank : ranks) ++parts[static_cast<std::size_t>(rank)];
    }
    for (const auto& [name, ranks] : members) {
      for (const int rank : ranks) ask(rank, test::by_members(test::add_set(name, ranks)));
    }
    for (int rank = 0; rank < world.size(); ++rank) ask(rank, test::tensor("gradient"));
    world.run();
    world.check_orders();
    ASSERT_EQ(world.failure(), "");
    ASSERT_EQ(world.in_flight(), 0U);
    ASSERT_TRUE(world.all_said_goodbye());
    std::set<int> all;
    for (const auto& [name, own] : numbers) {
      EXPECT_EQ(own.size(), 1U) << name << " has a number of its own on some member";
      all.insert(own.begin(), own.end());
    }
    EXPECT_EQ(all.size(), numbers.size());
  }
}

// Messages that rank 0 sends and receives for a step of 100 cached tensors, which each rank submits
// at a time of its own, in `pieces`.
double messages_of_a_cached_step(int size, int per_host, unsigned pieces, int steps) {
  constexpr int kTensors = 100;
  SimulatedWorld world(size, per_host, 1, {});
  std::vector<int> left(static_cast<std::size_t>(size), 0);
  std::vector<int> step(static_cast<std::size_t>(size), 0);
  std::uint64_t before = 0;
  const std::function<void(int)> next = [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    if (step[r] == steps + 1) return;
    if (rank == 0 && step[r] == 1) before = world.messages_of_root();
    ++step[r];
    left[r] = kTensors;
    for (unsigned piece = 0; piece < pieces; ++piece) {
      std::vector<Request> requests;
      for (unsigned i = piece; i < kTensors; i += pieces) {
        requests.push_back(test::tensor(cat("gradient", i), 1000));
      }
      world.after(Time(piece * 1000 + world.below(500)),
                  [&world, rank, requests] { world.submit(rank, requests); });
    }
  };
  world.on_answer([&](int rank, const Request&, const SimulatedWorld::Answer& answer) {
    EXPECT_TRUE(answer.ok) << answer.text;
    if (--left[static_cast<std::size_t>(rank)] == 0) next(rank);
  });
  for (int rank = 0; rank < size; ++rank) next(rank);
  world.run();
  EXPECT_EQ(world.failure(), "");
  EXPECT_EQ(world.in_flight(), 0U);
  return static_cast<double>(world.messages_of_root() - before) / steps;
}

TEST(NegotiationSimulation, RankZeroHandlesABoundedNumberOfMessagesHoweverLargeTheWorld) {
  for (const unsigned pieces : {1U, 5U}) {
    const double at_4 = messages_of_a_cached_step(4, 4, pieces, 10);
    const double at_64 = messages_of_a_cached_step(64, 8, pieces, 3);
    const double at_256 = messages_of_a_cached_step(256, 8, pieces, 1);
    EXPECT_LE(at_64, 4 * at_4);
    EXPECT_LE(at_256, 5 * at_4);
  }
}

// Deterministic mode: whatever the timing, rank 0 and hence all ranks run the same batches in the
// same order; without it they do not.
TEST(NegotiationSimulation, InDeterministicModeBatchesDependOnTheProgramAlone) {
  const auto batches = [](bool deterministic, unsigned seed) {
    Config config;
    config.deterministic = deterministic;
    config.fusion_threshold = 200;
    constexpr int kSize = 7;
    SimulatedWorld world(kSize, 3, seed, config);
    std::vector<int> left(kSize, 0);
    std::vector<int> step(kSize, 0);
    const std::function<void(int)> next = [&](int rank) {
      const auto r = static_cast<std::size_t>(rank);
      if (step[r]++ == 4) return;
      std::vector<std::vector<Request>> pieces;
      for (int i = 0; i < 12; ++i) pieces.push_back({test::tensor(cat("t", i), 5)});
      for (int g = 0; g < 3; ++g) {
        std::vector<Request> group;
        for (int i = 0; i < 7; ++i) {
          auto request = test::tensor(cat("g", g, ".", i), 11 + i);
          if (i % 3 == 0) request.type = DataType::int32;
          group.push_back(test::in_group(request, cat("g", g), 7));
        }
        pieces.insert(pieces.begin() + g * 4, group);
      }
      for (const auto& piece : pieces) left[r] += static_cast<int>(piece.size());
      // Rank 0 keeps the program's order; the others use a random one.
      for (auto i = pieces.size(); rank != 0 && i > 1; --i) {
        std::swap(pieces[i - 1], pieces[world.below(static_cast<unsigned>(i))]);
      }
      Time delay(0);
      for (auto& piece : pieces) {
        delay += Time(world.below(1000));
        world.after(delay, [&world, rank, piece] { world.submit(rank, piece); });
      }
    };
    world.on_answer([&](int rank, const Request&, const SimulatedWorld::Answer&) {
      if (--left[static_cast<std::size_t>(rank)] == 0) next(rank);
    });
    for (int rank = 0; rank < kSize; ++rank) next(rank);
    world.run();
    world.check_orders();
    EXPECT_EQ(world.failure(), "");
    EXPECT_EQ(world.in_flight(), 0U);
    return world.batches();
  };
  const auto first = batches(true, 0);
  EXPECT_LT(first.size(), 4U * (12 + 3 * 7));  // groups are fused
  int others = 0;
  for (unsigned seed = 1; seed < 60; ++seed) {
    ASSERT_EQ(batches(true, seed), first) << "seed " << seed;
    others += batches(false, seed) == batches(false, 0) ? 0 : 1;
  }
  EXPECT_GT(others, 0);
}

}  // namespace
}  // namespace hvd::runtime
