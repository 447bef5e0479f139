// Worlds with GPUs in the memory of the host: steps, streams, failures, capabilities, teardown.
#include <cmath>
#include <gtest/gtest.h>

#include <hvd/float8.h>

#include "runtime/gpu/async_destroy.h"
#include "tests/runtime/control/worlds.h"
#include "tests/runtime/gpu/host_gpu.h"

namespace hvd::test {
namespace {

using runtime::gpu::Gpu;

Change with_gpus(Fabric& fabric, const HostGpuOptions& options = {}, int lanes = 1) {
  return [&fabric, options, lanes](runtime::WorldSpec& spec) {
    spec.config.open_gpu = open_host_gpus(fabric, options);
    spec.config.gpu_lanes = lanes;
  };
}

runtime::Entry gpu_allreduce(const std::string& name, std::vector<float>& data, int device = 0) {
  runtime::Entry entry;
  entry.request = allreduce_request(name, static_cast<std::int64_t>(data.size()));
  entry.request.on_host = false;
  entry.input = data.data();
  entry.output = data.data();
  entry.device.cuda = device;
  return entry;
}

// The GPU waits for the event before it reads the data.
std::future<runtime::Outcome> submit_late(runtime::World& world, std::vector<float>& data,
                                          const std::shared_ptr<HostEvent>& event) {
  auto entry = gpu_allreduce("late", data);
  entry.ready = event;
  return submit(world, std::move(entry));
}

TEST(GpuWorlds, TensorsOfTheHostAndOfGpusAreReducedInOneStep) {
  Fabric fabric;
  run_world_to_end(
      4,
      [](int rank, runtime::World& world) {
        for (int step = 0; step < 20; ++step) {
          std::vector<std::vector<float>> gpu(8, std::vector<float>(100, static_cast<float>(rank)));
          std::vector<float> cpu(50, 1.0F);
          std::vector<std::future<runtime::Outcome>> futures;
          for (std::size_t i = 0; i < gpu.size(); ++i) {
            futures.push_back(submit(world, gpu_allreduce(cat("gpu.", i), gpu[i])));
          }
          auto host = allreduce(world, "cpu", cpu);
          for (auto& future : futures) {
            const auto outcome = outcome_of(std::move(future));
            ASSERT_TRUE(outcome.ok()) << outcome.failure.status.to_string();
            EXPECT_EQ(outcome.contributors, 4);
          }
          ASSERT_TRUE(outcome_of(std::move(host)).ok());
          for (const auto& tensor : gpu) EXPECT_EQ(tensor, std::vector<float>(100, 6.0F));
          EXPECT_EQ(cpu, std::vector<float>(50, 4.0F));
        }
      },
      with_gpus(fabric, {}, 2));
  EXPECT_EQ(fabric.living, 0);
  EXPECT_EQ(fabric.aborted, 0);
}

TEST(GpuWorlds, TheHostGoesOnWhileAGpuWaitsForItsInput) {
  Fabric fabric;
  run_world_to_end(
      2,
      [](int rank, runtime::World& world) {
        std::vector<float> gpu(10, 1.0F);
        std::vector<float> cpu(10, 1.0F);
        const auto event = std::make_shared<HostEvent>();
        auto late = submit_late(world, gpu, event);
        // The same thread of the runtime does both.
        ASSERT_TRUE(outcome_of(allreduce(world, "cpu", cpu)).ok());
        EXPECT_NE(late.wait_for(std::chrono::seconds(0)), std::future_status::ready);
        gpu.assign(10, static_cast<float>(rank));
        event->set();
        ASSERT_TRUE(outcome_of(std::move(late)).ok());
        EXPECT_EQ(gpu, std::vector<float>(10, 1.0F));
      },
      with_gpus(fabric));
}

// The caller may execute nothing itself then, and nobody tells it when it may.
TEST(GpuWorlds, TheHostGoesOnForACallerThatDrivesWhileAGpuWaitsForItsInput) {
  Fabric fabric;
  run_world_to_end(
      2,
      [](int /*rank*/, runtime::World& world) {
        for (int step = 0; step < 10; ++step) {
          std::vector<float> gpu(10, 1.0F);
          std::vector<float> cpu(10, 1.0F);
          const auto event = std::make_shared<HostEvent>();
          auto late = submit_late(world, gpu, event);
          // The GPU has its batch when this is done, which comes after it.
          ASSERT_TRUE(outcome_of(allreduce(world, "first", cpu)).ok());
          auto second = allreduce(world, "second", cpu);
          progress_until_ready(world, second);
          ASSERT_TRUE(outcome_of(std::move(second)).ok());
          event->set();
          ASSERT_TRUE(outcome_of(std::move(late)).ok());
        }
      },
      with_gpus(fabric));
}

TEST(GpuWorlds, WithAStreamTheCallIsDoneAsSoonAsTheStreamWaitsForTheResult) {
  Fabric fabric;
  run_world_to_end(
      2,
      [](int /*rank*/, runtime::World& world) {
        std::vector<float> gpu(10, 1.0F);
        const auto event = std::make_shared<HostEvent>();
        std::atomic<runtime::gpu::Mark> stream = nullptr;
        auto entry = gpu_allreduce("in a stream", gpu);
        entry.ready = event;
        event->stream = &stream;
        ASSERT_TRUE(outcome_of(submit(world, std::move(entry))).ok());
        ASSERT_NE(stream, nullptr);
        const auto& reached = *static_cast<std::atomic<bool>*>(stream.load());
        EXPECT_FALSE(reached);
        event->set();
        // Later work of the lane is done after it.
        std::vector<float> next(10, 1.0F);
        ASSERT_TRUE(outcome_of(submit(world, gpu_allreduce("next", next))).ok());
        EXPECT_TRUE(reached);
        EXPECT_EQ(gpu, std::vector<float>(10, 2.0F));
      },
      with_gpus(fabric));
}

Change by_hosts(const Change& change) {
  return [change](runtime::WorldSpec& spec) {
    change(spec);
    spec.config.hierarchical_allreduce = true;
  };
}

// Three worlds one after the other, each of which fails during an allreduce; each rank has so many
// communicators.
void fail_again_and_again(int size, int communicators, const Change& configure) {
  for (const bool can_revoke : {true, false}) {
    Fabric fabric;
    HostGpuOptions options;
    options.can_revoke = can_revoke;
    for (int generation = 0; generation < 3; ++generation) {
      Hub begun(size);
      Hub told(size);
      run_world(
          size,
          [&](int rank, runtime::World& world) {
            std::vector<float> data(10, 1.0F);
            // Of the last world nothing is left, once all have met in this one.
            ASSERT_TRUE(outcome_of(submit(world, gpu_allreduce("together", data))).ok());
            const auto event = std::make_shared<HostEvent>();
            auto entry = gpu_allreduce("for ever", data);
            if (rank == 0) entry.ready = event;  // the others wait for it in the collective
            auto stuck = submit(world, std::move(entry));
            const auto what_became_of_it = [&] { return outcome_of(std::move(stuck)); };
            std::vector<float> cpu(1);
            ASSERT_TRUE(outcome_of(allreduce(world, "cpu", cpu)).ok());
            ASSERT_TRUE(begun.exchange(rank, "", Clock::now() + kLong).ok());
            if (rank == 1) world.abort(Status(Code::unavailable, "the test says so"));
            if (rank != 0) {
              const auto outcome = what_became_of_it();
              EXPECT_TRUE(mentions(outcome.failure, "the test says so"))
                  << outcome.failure.status.message();
            }
            // All but the one whose device still waits have been told.
            ASSERT_TRUE(told.exchange(rank, "", Clock::now() + kLong).ok());
            event->set();
            EXPECT_FALSE(rank == 0 && what_became_of_it().ok());
          },
          [&](runtime::WorldSpec& spec) {
            with_gpus(fabric, options)(spec);
            configure(spec);
          });
      // The communicators of this world; those of earlier worlds have been destroyed.
      EXPECT_EQ(fabric.living, can_revoke ? size * communicators : 0)
          << "generation " << generation;
    }
    EXPECT_EQ(fabric.revoked, can_revoke ? 3 * size * communicators : 0);
    EXPECT_EQ(fabric.aborted, can_revoke ? 0 : 3 * size * communicators);
    runtime::gpu::destroy_retired();
    EXPECT_EQ(fabric.living, 0);
  }
}

TEST(GpuWorlds, AFailureEndsCollectivesInFlightAndTheCommunicatorsRestUntilTheNextWorld) {
  fail_again_and_again(3, 1, [](runtime::WorldSpec&) {});
}

TEST(GpuWorlds, AFailureEndsHierarchicalCollectivesOnBothLevels) {
  fail_again_and_again(4, 3, by_hosts([](runtime::WorldSpec&) {}));
}

TEST(GpuWorlds, AllreducesGoByHostsIfThatWasAskedForOnAllRanksOfEvenHosts) {
  struct Case {
    int size;  // two ranks on each host, one on the last if it is odd
    int unwilling;
    bool wanted;
    bool goes;
  };
  for (const auto& [size, unwilling, wanted, goes] :
       {Case{4, -1, true, true}, Case{6, -1, true, true}, Case{3, -1, true, false},
        Case{2, -1, true, false}, Case{4, 3, true, false}, Case{4, -1, false, false}}) {
    Fabric fabric;
    run_world_to_end(
        size,
        [size = size](int rank, runtime::World& world) {
          // Together in a buffer, and alone, with what cannot be shared out evenly.
          std::vector<float> a(7, static_cast<float>(rank));
          std::vector<float> b(9, 1.0F);
          auto first = submit(world, gpu_allreduce("a", a));
          ASSERT_TRUE(outcome_of(submit(world, gpu_allreduce("b", b))).ok());
          ASSERT_TRUE(outcome_of(std::move(first)).ok());
          const int sum_of_ranks = size * (size - 1) / 2;
          EXPECT_EQ(a, std::vector<float>(7, static_cast<float>(sum_of_ranks)));
          EXPECT_EQ(b, std::vector<float>(9, static_cast<float>(size)));
        },
        [&, unwilling = unwilling, wanted = wanted](runtime::WorldSpec& spec) {
          with_gpus(fabric, {}, 2)(spec);
          if (wanted) spec.config.hierarchical_allreduce = spec.rank != unwilling;
        });
    EXPECT_EQ(fabric.scattered > 0, goes) << size << " ranks, but for " << unwilling;
    EXPECT_EQ(fabric.living, 0);
    EXPECT_EQ(fabric.aborted, 0);
  }
}

// Of tensors of the host, and of the same on GPUs.
TEST(GpuWorlds, AdasumOnGpusIsThatOfTheHostToTheBit) {
  constexpr std::size_t kElements = 1'003;
  for (const auto compression : {Compression::none, Compression::bfloat16}) {
    Fabric fabric;
    run_world_to_end(
        3,
        [compression](int rank, runtime::World& world) {
          std::vector<std::vector<float>> results;
          for (const bool on_host : {true, false}) {
            std::vector<float> data(kElements);
            for (std::size_t i = 0; i < data.size(); ++i) {
              data[i] = std::sin(static_cast<float>(i + 1) * static_cast<float>(rank + 1));
            }
            auto entry = gpu_allreduce(cat("adasum ", on_host), data);
            entry.request.op = ReduceOp::adasum;
            entry.request.compression = compression;
            entry.request.prescale = 0.3;
            entry.request.postscale = 7;
            entry.request.on_host = on_host;
            if (on_host) entry.device = {};
            const auto outcome = outcome_of(submit(world, std::move(entry)));
            ASSERT_TRUE(outcome.ok()) << outcome.failure.status.to_string();
            results.push_back(std::move(data));
          }
          EXPECT_EQ(results[0], results[1]);
        },
        by_hosts(with_gpus(fabric, {}, 2)));
    EXPECT_EQ(fabric.living, 0);
  }
}

TEST(GpuWorlds, AnAdasumThatWaitsForItsInputEndsWithTheWorld) {
  Fabric fabric;
  Hub begun(2);
  Hub told(2);
  run_world(
      2,
      [&](int rank, runtime::World& world) {
        std::vector<float> data(10, 1.0F);
        ASSERT_TRUE(outcome_of(submit(world, gpu_allreduce("together", data))).ok());
        const auto event = std::make_shared<HostEvent>();
        auto entry = gpu_allreduce("late", data);
        entry.request.op = ReduceOp::adasum;
        if (rank == 0) entry.ready = event;
        auto late = submit(world, std::move(entry));
        ASSERT_TRUE(begun.exchange(rank, "", Clock::now() + kLong).ok());
        if (rank == 1) world.abort(Status(Code::unavailable, "the test says so"));
        const auto is_told = [&] {
          const auto outcome = outcome_of(std::move(late));
          EXPECT_TRUE(mentions(outcome.failure, "the test says so"))
              << outcome.failure.status.message();
        };
        // The one whose device still waits is told when it no longer does.
        if (rank == 1) is_told();
        ASSERT_TRUE(told.exchange(rank, "", Clock::now() + kLong).ok());
        event->set();
        if (rank == 0) is_told();
      },
      with_gpus(fabric));
  runtime::gpu::destroy_retired();
  EXPECT_EQ(fabric.living, 0);
}

TEST(GpuWorlds, ARankThatCannotIsAnErrorOfTheCallOnAllRanksThatNamesIt) {
  Fabric fabric;
  run_world_to_end(
      3,
      [](int /*rank*/, runtime::World& world) {
        for (int time = 0; time < 2; ++time) {
          std::vector<float> data(10, 1.0F);
          const auto outcome = outcome_of(submit(world, gpu_allreduce("t", data)));
          ASSERT_FALSE(outcome.ok());
          EXPECT_FALSE(outcome.failure.world_failed);
          EXPECT_TRUE(mentions(outcome.failure, "rank 1 on h0#1: no driver here"))
              << outcome.failure.status.message();
          EXPECT_TRUE(mentions(outcome.failure, "allreduce \"t\""))
              << outcome.failure.status.message();
        }
        std::vector<float> cpu(10, 1.0F);
        EXPECT_TRUE(outcome_of(allreduce(world, "cpu", cpu)).ok());
      },
      [&](runtime::WorldSpec& spec) {
        spec.config.open_gpu = open_host_gpus(fabric);
        if (spec.rank != 1) return;
        spec.config.open_gpu = [](int, int) -> Result<std::unique_ptr<Gpu>> {
          return Status(Code::not_found, "no driver here");
        };
      });
}

TEST(GpuWorlds, Float8IsRightAlsoAmongGpusOfWhichOneCannotAddIt) {
  for (const int without : {-1, 1}) {
    Fabric fabric;
    run_world_to_end(
        3,
        [](int rank, runtime::World& world) {
          for (const auto op : {ReduceOp::sum, ReduceOp::average}) {
            const auto mine = static_cast<float>(192 + 16 * rank);
            std::vector<float8_e4m3> data(100, float8_e4m3(mine));
            runtime::Entry entry;
            entry.request =
                allreduce_request(cat(runtime::op_name(op)), 100, DataType::float8_e4m3, op);
            entry.request.on_host = false;
            entry.input = entry.output = data.data();
            entry.device.cuda = 0;
            ASSERT_TRUE(outcome_of(submit(world, std::move(entry))).ok());
            const float wanted = op == ReduceOp::sum ? 448 : 208;
            EXPECT_EQ(data, std::vector<float8_e4m3>(100, float8_e4m3(wanted)));
          }
        },
        [&](runtime::WorldSpec& spec) {
          HostGpuOptions options;
          options.adds_float8 = spec.rank != without;
          spec.config.open_gpu = open_host_gpus(fabric, options);
        });
  }
}

TEST(GpuWorlds, TwoRanksOnOneGpuAreAnErrorThatNamesBothUnlessTheLibraryCanDoThat) {
  for (const bool can_share : {false, true}) {
    Fabric fabric;
    run_world_to_end(
        3,
        [&](int /*rank*/, runtime::World& world) {
          std::vector<float> data(10, 1.0F);
          const auto outcome = outcome_of(submit(world, gpu_allreduce("t", data)));
          EXPECT_EQ(outcome.ok(), can_share);
          if (can_share) return;
          EXPECT_TRUE(
              mentions(outcome.failure, "rank 0 on h0#0 and rank 2 on h1#0 are on the same GPU"))
              << outcome.failure.status.message();
        },
        [&](runtime::WorldSpec& spec) {
          HostGpuOptions options;
          options.may_share_device = can_share;
          options.uuid = spec.rank == 1 ? "GPU-one" : "GPU-two";
          spec.config.open_gpu = open_host_gpus(fabric, options);
        });
  }
}

TEST(GpuWorlds, ARankThatGoesToAnotherGpuIsRefusedAtOnce) {
  Fabric fabric;
  run_world_to_end(
      1,
      [](int /*rank*/, runtime::World& world) {
        std::vector<float> data(10, 1.0F);
        ASSERT_TRUE(outcome_of(submit(world, gpu_allreduce("t", data, 0))).ok());
        const auto outcome = outcome_of(submit(world, gpu_allreduce("t", data, 1)));
        EXPECT_TRUE(mentions(outcome.failure, "CUDA device 1")) << outcome.failure.status.message();
        EXPECT_TRUE(mentions(outcome.failure, "device 0"));
      },
      with_gpus(fabric));
}

TEST(GpuWorlds, AProcessSetHasCommunicatorsOfItsOwnUntilItIsRemoved) {
  Fabric fabric;
  run_world_to_end(
      3,
      [](int rank, runtime::World& world) {
        std::vector<float> data(10, 1.0F);
        auto entry = gpu_allreduce("part", data);
        entry.request.process_set = 1;
        if (rank != 1) {
          ASSERT_TRUE(outcome_of(submit(world, std::move(entry))).ok());
          EXPECT_EQ(data, std::vector<float>(10, 2.0F));
        }
        runtime::Entry removal;
        removal.request.name = "remove";
        removal.request.kind = runtime::Kind::remove_process_set;
        removal.request.process_set = 1;
        ASSERT_TRUE(outcome_of(submit(world, std::move(removal))).ok());
        data.assign(10, 1.0F);
        ASSERT_TRUE(outcome_of(submit(world, gpu_allreduce("all", data))).ok());
        EXPECT_EQ(data, std::vector<float>(10, 3.0F));
      },
      [&](runtime::WorldSpec& spec) {
        with_gpus(fabric)(spec);
        spec.process_sets = {{0, 2}};
      });
  EXPECT_EQ(fabric.finalized, 5);
  EXPECT_EQ(fabric.living, 0);
}

}  // namespace
}  // namespace hvd::test
