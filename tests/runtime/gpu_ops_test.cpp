// The operations of a GPU, on GPUs in the memory of the host: everything but the device itself.
#include <gtest/gtest.h>

#include "tests/runtime/gpu_ranks.h"
#include "tests/runtime/host_gpu.h"
#include "tests/runtime/worlds.h"

namespace hvd::test {
namespace {

using runtime::gpu::Gpu;

runtime::gpu::OpenGpu opener(Fabric& fabric, const HostGpuOptions& options = {}) {
  return [&fabric, options](int device, int lanes) -> Result<std::unique_ptr<Gpu>> {
    return make_host_gpu(fabric, device, lanes, options);
  };
}

// `packed_bytes`: what is larger is not packed.
Backend host_gpu_backend(std::size_t packed_bytes, int lanes) {
  return {"gpu", false,
          [=](RanksAs /*threads*/, int size, const Backend::Body& body) {
            Fabric fabric;
            on_gpu_ranks(
                size,
                [&](int /*rank*/) {
                  return GpuRankOptions{opener(fabric), lanes, {packed_bytes}};
                },
                body);
            // They have left in peace.
            EXPECT_EQ(fabric.living, 0);
            EXPECT_EQ(fabric.aborted, 0);
          },
          false};
}

// Eight ranks go no other way than four; three are a part of these.
std::vector<Table> tables_of(const Backend& backend) {
  auto tables = every_table_of(backend, RanksAs::threads);
  std::erase_if(tables, [](const Table& table) { return table.size > 4 || table.size == 3; });
  return tables;
}

INSTANTIATE_TEST_SUITE_P(Gpu, Conformance,
                         ::testing::ValuesIn(tables_of(host_gpu_backend(kLittleBytes, 1))),
                         table_name);

// --- worlds -------------------------------------------------------------------------------------

Change with_gpus(Fabric& fabric, const HostGpuOptions& options = {}, int lanes = 1) {
  return [&fabric, options, lanes](runtime::WorldSpec& spec) {
    spec.config.open_gpu = opener(fabric, options);
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
        auto entry = gpu_allreduce("late", gpu);
        entry.ready = event;
        auto late = submit(world, std::move(entry));
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
        // What comes behind it in the lane is there after it.
        std::vector<float> next(10, 1.0F);
        ASSERT_TRUE(outcome_of(submit(world, gpu_allreduce("next", next))).ok());
        EXPECT_TRUE(reached);
        EXPECT_EQ(gpu, std::vector<float>(10, 2.0F));
      },
      with_gpus(fabric));
}

TEST(GpuWorlds, AFailureEndsWhatIsInFlightAndTheCommunicatorsRestUntilTheNextWorld) {
  for (const bool can_revoke : {true, false}) {
    Fabric fabric;
    HostGpuOptions options;
    options.can_revoke = can_revoke;
    for (int generation = 0; generation < 3; ++generation) {
      Hub begun(3);
      Hub told(3);
      run_world(
          3,
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
          with_gpus(fabric, options));
      // Three of this world; those of worlds before have been destroyed.
      EXPECT_EQ(fabric.living, can_revoke ? 3 : 0) << "generation " << generation;
    }
    EXPECT_EQ(fabric.revoked, can_revoke ? 9 : 0);
    EXPECT_EQ(fabric.aborted, can_revoke ? 0 : 9);
    runtime::gpu::destroy_what_rests();
    EXPECT_EQ(fabric.living, 0);
  }
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
          EXPECT_TRUE(mentions(outcome.failure, "rank 1 (h0#1): no driver here"))
              << outcome.failure.status.message();
          EXPECT_TRUE(mentions(outcome.failure, "allreduce \"t\""))
              << outcome.failure.status.message();
        }
        std::vector<float> cpu(10, 1.0F);
        EXPECT_TRUE(outcome_of(allreduce(world, "cpu", cpu)).ok());
      },
      [&](runtime::WorldSpec& spec) {
        spec.config.open_gpu = opener(fabric);
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
          spec.config.open_gpu = opener(fabric, options);
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
              mentions(outcome.failure, "rank 0 (h0#0) and rank 2 (h1#0) are on the same GPU"))
              << outcome.failure.status.message();
        },
        [&](runtime::WorldSpec& spec) {
          HostGpuOptions options;
          options.may_share_device = can_share;
          options.uuid = spec.rank == 1 ? "GPU-one" : "GPU-two";
          spec.config.open_gpu = opener(fabric, options);
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
