// Timelines and flight recorders of worlds whose ranks are threads.
#include <atomic>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/descriptors.h"
#include "tests/runtime/control/worlds.h"
#include "tests/runtime/trace/trace_check.h"
#include "tests/support/process.h"

namespace hvd::test {
namespace {

class TraceTest : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const { return (directory_.path() / name).string(); }
  // Rank 0 records from the start.
  Change recording(const std::string& name) const {
    return [path = file(name)](runtime::WorldSpec& spec) { spec.config.timeline = path; };
  }
  TemporaryDirectory directory_;
};

// All at once, so that they are fused.
void allreduce_many(runtime::World& world, const std::string& prefix, int count,
                    std::size_t elements = 64) {
  std::vector<std::vector<float>> data(static_cast<std::size_t>(count),
                                       std::vector<float>(elements, 1.0F));
  std::vector<std::future<runtime::Failure>> pending;
  for (std::size_t i = 0; i < data.size(); ++i) {
    pending.push_back(allreduce(world, cat(prefix, i), data[i]));
  }
  for (auto& one : pending) {
    const auto outcome = outcome_of(std::move(one));
    EXPECT_TRUE(outcome.ok()) << outcome.status.to_string();
  }
}

runtime::Outcome barrier(runtime::World& world, const std::string& name) {
  runtime::Entry entry;
  entry.request.name = name;
  entry.request.kind = runtime::Kind::barrier;
  return outcome_of(submit(world, std::move(entry)));
}

nlohmann::json report(const std::string& path) {
  std::ifstream in(path);
  return nlohmann::json::parse(in, nullptr, false);
}

TEST_F(TraceTest, ATimelineShowsNegotiationFusionAndExecutionOfAllRanks) {
  run_world_to_end(
      4,
      [](int, runtime::World& world) {
        for (int step = 0; step < 5; ++step) allreduce_many(world, "tensor.", 12);
      },
      recording("t.json"));
  const auto timeline = expect_right_timeline(file("t.json"));
  const std::set<int> all{0, 1, 2, 3};
  for (const auto* const slice : {"NEGOTIATE_ALLREDUCE", "ALLREDUCE", "QUEUE", "GLOO_ALLREDUCE",
                                  "MEMCPY_IN_FUSION_BUFFER", "MEMCPY_OUT_FUSION_BUFFER"}) {
    EXPECT_EQ(timeline.ranks_with(slice), all) << slice;
  }
  EXPECT_EQ(timeline.processes.at(3), "rank 3 on h1#1");
  for (const int rank : all) {
    EXPECT_EQ(timeline.count(rank, "ALLREDUCE"), 60) << rank;
    EXPECT_EQ(timeline.count(rank, "NEGOTIATE_ALLREDUCE"), 60) << rank;
  }
  const auto* const track = timeline.track(0, "tensor.7");
  ASSERT_NE(track, nullptr);
  EXPECT_EQ(track->instants.size(), 20U) << "on rank 0, when each of four ranks was ready";
  EXPECT_EQ(track->arguments.front()["bytes"], 256);
  EXPECT_EQ(track->arguments.front()["dtype"], "float32");
  EXPECT_EQ(track->arguments.front()["shape"], "[64]");
  EXPECT_EQ(track->arguments.front()["algorithm"], "doubling");
}

TEST_F(TraceTest, StartsAndStopsDuringWorkAsOftenAsOneLikes) {
  constexpr int kRounds = 3;
  std::atomic<bool> over = false;
  run_world_to_end(3, [&](int rank, runtime::World& world) {
    std::thread boss;
    if (rank == 0) {
      boss = std::thread([&] {
        for (int round = 0; round < kRounds; ++round) {
          const auto started = world.start_timeline(file(cat(round, ".json")), true);
          EXPECT_TRUE(started.ok()) << started.to_string();
          EXPECT_FALSE(world.start_timeline(file("second.json"), false).ok());
          // The recording has begun once its file has grown.
          EXPECT_TRUE(eventually(
              [&] { return std::filesystem::file_size(file(cat(round, ".json"))) > 20'000; }));
          const auto stopped = world.stop_timeline(Clock::now() + kLong);
          EXPECT_TRUE(stopped.ok()) << stopped.to_string();
          EXPECT_FALSE(world.stop_timeline(Clock::now() + kLong).ok());
          // All ranks ran the same operations while it was recorded, and the file is complete
          // already.
          const auto timeline = expect_right_timeline(file(cat(round, ".json")));
          for (int other = 1; other < 3; ++other) {
            EXPECT_EQ(timeline.count(other, "ALLREDUCE"), timeline.count(0, "ALLREDUCE"));
          }
          EXPECT_GT(timeline.count(0, "CYCLE_START"), 0);
        }
        over = true;
      });
    }
    // Rank 0 announces the end with a tensor.
    for (float go_on = 1; go_on > 0;) {
      allreduce_many(world, "work.", 5);
      std::vector<float> word{rank == 0 && over ? 0.0F : rank == 0 ? 1.0F : 0.0F};
      EXPECT_TRUE(outcome_of(allreduce(world, "word", word)).ok());
      go_on = word[0];
    }
    if (boss.joinable()) boss.join();
  });
  EXPECT_FALSE(std::filesystem::exists(file("second.json")));
}

TEST_F(TraceTest, RanksOfOtherHostsAskForTheTimeFirst) {
  run_world_to_end(
      5,
      [&](int rank, runtime::World& world) {
        std::vector<float> data(10, 1.0F);
        if (rank == 0) {
          EXPECT_TRUE(world.start_timeline(file("t.json"), false).ok());
        }
        EXPECT_TRUE(barrier(world, "started").ok());
        for (int i = 0; i < 10; ++i) {
          EXPECT_TRUE(outcome_of(allreduce(world, "tensor", data)).ok());
        }
        EXPECT_TRUE(barrier(world, "ended").ok());
        // The recording ends early: ranks with events keep them until their clock offset is known.
        if (rank == 0) {
          EXPECT_TRUE(world.stop_timeline(Clock::now() + kLong).ok());
        }
        EXPECT_TRUE(barrier(world, "stopped").ok());
      },
      [](runtime::WorldSpec& spec) {
        for (std::size_t rank = 0; rank < spec.members.size(); ++rank) {
          spec.members[rank].host = cat("host", rank);
          spec.members[rank].address = cat("127.0.0.", rank + 1);
        }
      });
  const auto timeline = expect_right_timeline(file("t.json"));
  for (int rank = 0; rank < 5; ++rank) EXPECT_EQ(timeline.count(rank, "ALLREDUCE"), 10) << rank;
}

TEST_F(TraceTest, UnfinishedTensorsAreShownAsSuchWhenTheTimelineStops) {
  run_world_to_end(2, [&](int rank, runtime::World& world) {
    std::vector<float> data{1.0F};
    if (rank == 0) {
      EXPECT_TRUE(world.start_timeline(file("t.json"), false).ok());
      auto late = allreduce(world, "late", data);
      EXPECT_TRUE(world.stop_timeline(Clock::now() + kLong).ok());
      EXPECT_TRUE(barrier(world, "now").ok());
      EXPECT_TRUE(outcome_of(std::move(late)).ok());
    } else {
      EXPECT_TRUE(barrier(world, "now").ok());
      EXPECT_TRUE(outcome_of(allreduce(world, "late", data)).ok());
    }
  });
  const auto timeline = expect_right_timeline(file("t.json"));
  const auto* const late = timeline.track(0, "late");
  ASSERT_NE(late, nullptr);
  EXPECT_EQ(late->slices, std::vector<std::string>{"NEGOTIATE_ALLREDUCE"});
}

TEST_F(TraceTest, ErrorsJoinsAndProcessSetsAreInItToo) {
  run_world_to_end(
      3,
      [](int rank, runtime::World& world) {
        auto wrong = allreduce_request("wrong \"name\"\n\xff", rank == 0 ? 2 : 3);
        std::vector<float> data(3, 1.0F);
        EXPECT_FALSE(outcome_of(submit(world, wrong, data.data(), data.data())).ok());
        runtime::Entry add;
        add.request.name = "set";
        add.request.kind = runtime::Kind::add_process_set;
        add.request.ranks = {0, 2};
        const auto set = outcome_of(submit(world, std::move(add)));
        ASSERT_TRUE(set.ok()) << set.failure.status.to_string();
        if (rank != 1) {
          auto request = allreduce_request("inner", 3);
          request.process_set = set.process_set;
          EXPECT_TRUE(outcome_of(submit(world, request, data.data(), data.data())).ok());
        }
        EXPECT_TRUE(barrier(world, "all").ok());
        if (rank != 0) {
          EXPECT_TRUE(outcome_of(allreduce(world, "of ranks that work", data)).ok());
        }
        runtime::Entry join;
        join.request.kind = runtime::Kind::join;
        EXPECT_TRUE(outcome_of(submit(world, std::move(join))).ok());
      },
      [&](runtime::WorldSpec& spec) {
        recording("t.json")(spec);
        spec.dynamic_process_sets = true;
      });
  const auto timeline = expect_right_timeline(file("t.json"));
  const auto* const wrong = timeline.track(1, "wrong \"name\"\n\xef\xbf\xbd");
  ASSERT_NE(wrong, nullptr);
  EXPECT_TRUE(wrong->arguments.at(0).contains("error"));
  EXPECT_NE(timeline.track(2, "inner (process set 1)"), nullptr);
  EXPECT_EQ(timeline.track(1, "inner (process set 1)"), nullptr);
  const auto* const joined = timeline.track(0, "of ranks that work");
  ASSERT_NE(joined, nullptr);
  EXPECT_TRUE(joined->arguments.at(0).contains("joined"));
  EXPECT_EQ(timeline.ranks_with("JOIN"), (std::set<int>{0, 1, 2}));
  EXPECT_EQ(timeline.ranks_with("ADD_PROCESS_SET"), (std::set<int>{0, 1, 2}));
  EXPECT_EQ(timeline.ranks_with("BARRIER"), (std::set<int>{0, 1, 2}));
}

TEST_F(TraceTest, WaitsForDataAndTheirTensorsAreShown) {
  struct Event final : ReadyEvent {
    bool ready() const override { return false; }
    void wait() override {}
  };
  run_world_to_end(
      2,
      [](int, runtime::World& world) {
        std::vector<float> a(8, 1.0F);
        std::vector<float> b(8, 1.0F);
        std::vector<std::future<runtime::Outcome>> both;
        std::vector<runtime::Entry> entries(2);
        for (std::size_t i = 0; i < 2; ++i) {
          auto promise = std::make_shared<std::promise<runtime::Outcome>>();
          both.push_back(promise->get_future());
          auto& entry = entries[i];
          entry.request = allreduce_request(i == 0 ? "awaited" : "there", 8);
          entry.request.group = "both";
          entry.request.group_size = 2;
          entry.input = entry.output = i == 0 ? a.data() : b.data();
          entry.done = [promise](const runtime::Outcome& outcome) { promise->set_value(outcome); };
        }
        entries[0].ready = std::make_shared<Event>();
        EXPECT_TRUE(world.enqueue(std::move(entries)).ok());
        for (auto& one : both) EXPECT_TRUE(outcome_of(std::move(one)).ok());
      },
      recording("t.json"));
  const auto timeline = expect_right_timeline(file("t.json"));
  for (const int rank : {0, 1}) {
    const auto has = [&](const char* tensor, const char* slice) {
      const auto* const track = timeline.track(rank, tensor);
      return track != nullptr &&
             std::find(track->slices.begin(), track->slices.end(), slice) != track->slices.end();
    };
    EXPECT_TRUE(has("awaited", "WAIT_FOR_DATA"));
    EXPECT_TRUE(has("there", "WAIT_FOR_OTHER_TENSOR_DATA"));
    EXPECT_FALSE(has("there", "WAIT_FOR_DATA"));
  }
}

TEST_F(TraceTest, NamesThatNeverReturnShareTracks) {
  run_world_to_end(
      2,
      [](int, runtime::World& world) {
        for (int i = 0; i < 50; ++i) {
          std::vector<float> data{1.0F};
          EXPECT_TRUE(outcome_of(allreduce(world, cat("allreduce.noname.", i), data)).ok());
        }
      },
      recording("t.json"));
  const auto timeline = expect_right_timeline(file("t.json"));
  EXPECT_EQ(timeline.count(1, "ALLREDUCE"), 50);
  EXPECT_LT(timeline.tracks.at(1).size(), 5U);
}

TEST_F(TraceTest, AFileThatCannotBeWrittenIsAnErrorAtOnce) {
  const std::map<std::string, std::string> refused = {
      {file("no/such/directory.json"), "No such file or directory"},
      {directory_.path().string(), "Is a directory"},
      {"/dev/null", "not a regular file"},
  };
  run_world_to_end(1, [&](int, runtime::World& world) {
    for (const auto& [path, why] : refused) {
      const auto status = world.start_timeline(path, false);
      EXPECT_FALSE(status.ok());
      EXPECT_NE(status.message().find(path), std::string::npos) << status.message();
      EXPECT_NE(status.message().find(why), std::string::npos) << status.message();
    }
    EXPECT_TRUE(world.start_timeline(file("t.json"), false).ok()) << "nothing has been begun";
  });
  Hub hub(1);
  HubExchange exchange(hub, 0);
  auto spec = spec_of(0, 1);
  spec.config.timeline = "/dev/null";
  EXPECT_FALSE(runtime::World::create(spec, exchange).ok());
}

TEST_F(TraceTest, AFileThatCanGrowNoMoreStaysWholeAndTheJobGoesOn) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  run_world_to_end(
      2,
      [&](int rank, runtime::World& world) {
        if (rank == 0) {
          rlimit small = before;
          small.rlim_cur = 30'000;
          ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
        }
        EXPECT_TRUE(barrier(world, "limited").ok());
        for (int step = 0; step < 20; ++step) allreduce_many(world, "tensor.", 20);
      },
      recording("t.json"));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  expect_right_timeline(file("t.json"));
  EXPECT_LE(std::filesystem::file_size(file("t.json")), 30'000U);
}

TEST_F(TraceTest, TheSameNameAgainReplacesTheFile) {
  for (const char* const tensor : {"first", "second"}) {
    run_world_to_end(
        2,
        [&](int, runtime::World& world) {
          std::vector<float> data{1.0F};
          EXPECT_TRUE(outcome_of(allreduce(world, tensor, data)).ok());
        },
        recording("t.json"));
  }
  const auto timeline = expect_right_timeline(file("t.json"));
  EXPECT_EQ(timeline.track(0, "first"), nullptr);
  EXPECT_NE(timeline.track(0, "second"), nullptr);
}

TEST_F(TraceTest, AfterALossTheTimelineIsWholeAndTheFlightRecordersShowTensorsInFlight) {
  run_world(
      3,
      [](int rank, runtime::World& world) {
        allreduce_many(world, "done.", 3);
        EXPECT_TRUE(barrier(world, "done by all").ok() || rank != 2);
        if (rank == 2) return;  // leaves without shutdown()
        std::vector<float> data{1.0F};
        EXPECT_FALSE(outcome_of(allreduce(world, "stuck", data)).ok());
      },
      [&](runtime::WorldSpec& spec) {
        recording("t.json")(spec);
        spec.config.flight_recorder = directory_.path().string();
      });
  const auto timeline = expect_right_timeline(file("t.json"));
  EXPECT_GE(timeline.count(0, "ALLREDUCE"), 3);
  for (const int rank : {0, 1}) {
    const auto all = report(file(cat("flight-recorder.rank-", rank, ".1.json")));
    ASSERT_TRUE(all.is_object()) << rank;
    EXPECT_EQ(all["rank"], rank);
    EXPECT_NE(all["reason"].get<std::string>().find("rank 2"), std::string::npos);
    int done = 0;
    for (const auto& operation : all["operations"]) {
      if (operation["name"].get<std::string>().starts_with("done.")) {
        EXPECT_EQ(operation["state"], "done");
        ++done;
      }
    }
    EXPECT_EQ(done, 3);
  }
}

// The kinds whose first extent may be another one on each rank, twice: the second time they are
// known from the response cache.
void gather_and_exchange(int rank, runtime::World& world) {
  std::vector<float> rows(static_cast<std::size_t>(3 * (rank + 1)), 1.0F);
  std::vector<float> received;
  for (int i = 0; i < 2; ++i) {
    for (const auto kind : {runtime::Kind::allgather, runtime::Kind::alltoall}) {
      runtime::Entry entry;
      entry.request.name = kind_name(kind);
      entry.request.kind = kind;
      entry.request.type = DataType::float32;
      entry.request.shape = {static_cast<std::int64_t>(rows.size())};
      entry.input = rows.data();
      entry.allocate = [&received](const std::vector<std::int64_t>& shape) {
        received.resize(static_cast<std::size_t>(shape.front()));
        return static_cast<void*>(received.data());
      };
      const auto outcome = outcome_of(submit(world, std::move(entry)));
      EXPECT_TRUE(outcome.ok()) << outcome.failure.status.to_string();
    }
  }
}

TEST_F(TraceTest, TheFlightRecorderOfARankShowsItsOwnBytes) {
  run_world(
      3,
      [](int rank, runtime::World& world) {
        gather_and_exchange(rank, world);
        allreduce_many(world, "sum.", 3, 5);
        EXPECT_TRUE(barrier(world, "done by all").ok() || rank != 2);
        if (rank == 2) return;  // leaves without shutdown()
        std::vector<float> data{1.0F};
        EXPECT_FALSE(outcome_of(allreduce(world, "stuck", data)).ok());
      },
      [&](runtime::WorldSpec& spec) { spec.config.flight_recorder = directory_.path().string(); });
  for (const int rank : {0, 1}) {
    const auto all = report(file(cat("flight-recorder.rank-", rank, ".1.json")));
    ASSERT_TRUE(all.is_object()) << rank;
    std::map<std::string, std::vector<int>> bytes;
    for (const auto& one : all["operations"]) {
      // The loss may have been noticed before it was asked for.
      if (one["name"] != "stuck") bytes[one["kind"]].push_back(one["bytes"]);
    }
    const int own = 12 * (rank + 1);
    EXPECT_EQ(bytes["allgather"], (std::vector{own, own}));
    EXPECT_EQ(bytes["alltoall"], (std::vector{own, own}));
    EXPECT_EQ(bytes["allreduce"], (std::vector{20, 20, 20}));
  }
}

TEST_F(TraceTest, AStallMakesAllRanksWriteTheirFlightRecorders) {
  run_world_to_end(
      4,
      [&](int rank, runtime::World& world) {
        std::vector<float> data{1.0F};
        std::future<runtime::Failure> waits;
        if (rank != 3) waits = allreduce(world, "waits for rank 3", data);
        EXPECT_TRUE(eventually([&] {
          return std::filesystem::exists(file(cat("flight-recorder.rank-", rank, ".1.json")));
        }));
        if (rank == 3) waits = allreduce(world, "waits for rank 3", data);
        EXPECT_TRUE(outcome_of(std::move(waits)).ok());
      },
      [&](runtime::WorldSpec& spec) {
        spec.config.stall_warning = std::chrono::milliseconds(300);
        spec.config.flight_recorder = directory_.path().string();
      });
}

TEST_F(TraceTest, ARequestThroughTheDescriptorMakesARankWrite) {
  const UniqueFd requests(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  ASSERT_TRUE(requests);
  run_world_to_end(
      1,
      [&](int, runtime::World& world) {
        for (int i = 0; i < 1200; ++i) {
          std::vector<float> data{1.0F};
          ASSERT_TRUE(outcome_of(allreduce(world, cat("n", i), data)).ok());
        }
        const std::uint64_t once = 1;
        ASSERT_EQ(::write(requests.get(), &once, sizeof(once)), 8);
        EXPECT_TRUE(eventually(
            [&] { return std::filesystem::exists(file("flight-recorder.rank-0.1.json")); }));
      },
      [&](runtime::WorldSpec& spec) {
        spec.config.dump_requests = requests.get();
        spec.config.flight_recorder = directory_.path().string();
      });
  const auto all = report(file("flight-recorder.rank-0.1.json"));
  ASSERT_EQ(all["operations"].size(), 1000U) << "the last thousand";
  EXPECT_EQ(all["operations"][999]["name"], "n1199");
  EXPECT_EQ(all["operations"][999]["bytes"], 4);
}

}  // namespace
}  // namespace hvd::test
