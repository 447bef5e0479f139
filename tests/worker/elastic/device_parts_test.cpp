// The tensors of a GPU in a State, on GPUs in the memory of the host.
#include "worker/elastic/device_parts.h"

#include <cstring>
#include <functional>
#include <future>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include <hvd/error.h>

#include "base/text.h"
#include "runtime/gpu/digest.h"
#include "tests/runtime/control/worlds.h"
#include "tests/runtime/gpu/hidden_memory.h"
#include "tests/runtime/gpu/host_copier.h"
#include "worker/elastic/progress.h"

namespace hvd::worker {
namespace {

using elastic::CommitMode;
using runtime::gpu::KeptIn;
using test::HiddenMemory;
using test::HostLane;
using test::mentions;

constexpr std::size_t kMegabyte = std::size_t{1} << 20;

// A device, its legacy stream, and a tensor on it.
struct OneGpu {
  explicit OneGpu(std::size_t capacity = 64 * kMegabyte) : memory(capacity) {}
  TensorView tensor(std::size_t bytes) {
    return {memory.allocate(bytes), {static_cast<std::int64_t>(bytes)}, DataType::uint8, {0}};
  }
  DeviceOptions options(std::optional<std::size_t> limit = {}) {
    DeviceOptions made;
    made.on_device_limit = limit;
    made.open = [this](int) -> Result<std::unique_ptr<runtime::gpu::Copier>> {
      return test::make_host_copier(
          {&memory, &stream, [this] { return memory.free_bytes(); }, [this] { on_copy(); }});
    };
    return made;
  }
  void fill(const TensorView& tensor, char with) {
    stream.put([at = memory.reach(tensor.data), bytes = tensor.bytes(), with] {
      std::memset(at, with, bytes);
    });
  }
  std::string text(const TensorView& tensor) {
    std::promise<void> done;
    stream.put([&done] { done.set_value(); });
    done.get_future().wait();
    return {static_cast<const char*>(memory.reach(tensor.data)), tensor.bytes()};
  }
  HiddenMemory memory;
  HostLane stream;
  std::function<void()> on_copy = [] {};
};

TEST(DeviceParts, CopiesStayOnTheDeviceIfTwoOfThemAreWithinTheLimit) {
  EXPECT_EQ(place_of_copies(50, 1000, 100), KeptIn::device);
  EXPECT_EQ(place_of_copies(51, 1000, 100), KeptIn::pinned);
  EXPECT_EQ(place_of_copies(1, 1000, 0), KeptIn::pinned);
  EXPECT_EQ(place_of_copies(125, 1000, {}), KeptIn::device) << "a quarter of what is free";
  EXPECT_EQ(place_of_copies(126, 1000, {}), KeptIn::pinned);
}

TEST(DeviceParts, ADigestSaysWhatTheBytesAreAndWhereTheyLie) {
  const std::vector<std::uint64_t> words = {1, 2, 3};
  const std::vector<std::uint64_t> others = {2, 1, 3};
  const auto digest = runtime::gpu::digest_on_host(words.data(), 24);
  EXPECT_EQ(digest, runtime::gpu::digest_on_host(std::vector(words).data(), 24));
  EXPECT_NE(digest, runtime::gpu::digest_on_host(others.data(), 24));
  EXPECT_NE(digest, runtime::gpu::digest_on_host(words.data(), 23)) << "a byte that is 0";
  EXPECT_NE(digest, runtime::gpu::digest_on_host(words.data(), 17));
  EXPECT_EQ(runtime::gpu::digest_on_host(nullptr, 0), 0U);
}

TEST(DeviceParts, ACopyHasTheStateAtItsPlaceInTheStreamAndNoCallWaitsForIt) {
  for (const std::size_t limit : {std::size_t{0}, kMegabyte}) {
    OneGpu gpu;
    DeviceParts parts(gpu.options(limit));
    const auto tensor = gpu.tensor(1000);
    const auto other = gpu.tensor(3);
    ASSERT_TRUE(parts.add("weights", tensor).ok());
    ASSERT_TRUE(parts.add("bias", other).ok());
    std::promise<void> begin;
    gpu.stream.put([started = begin.get_future().share()] { started.wait(); });
    gpu.fill(tensor, 'a');
    gpu.fill(other, 'A');
    ASSERT_TRUE(parts.keep(0).ok());
    gpu.fill(tensor, 'b');  // not before the copy is made
    gpu.fill(other, 'B');
    ASSERT_TRUE(parts.keep(1).ok());
    gpu.fill(tensor, 'c');
    ASSERT_TRUE(parts.load(0).ok());  // and all of it has not begun yet
    begin.set_value();
    EXPECT_EQ(gpu.text(tensor), std::string(1000, 'a'));
    EXPECT_EQ(gpu.text(other), "AAA");
    ASSERT_TRUE(parts.load(1).ok());
    EXPECT_EQ(gpu.text(tensor), std::string(1000, 'b'));
    EXPECT_EQ(parts.kept(0).where, limit == 0 ? KeptIn::pinned : KeptIn::device);
    EXPECT_NE(*parts.digest(0), *parts.digest(1));
  }
}

TEST(DeviceParts, AProgramWithAStreamOfItsOwnIsFollowedThere) {
  OneGpu gpu;
  HostLane own;
  auto options = gpu.options();
  options.stream = own.stream();
  DeviceParts parts(options);
  const auto tensor = gpu.tensor(10);
  ASSERT_TRUE(parts.add("weights", tensor).ok());
  const auto fill = [&](char with) {
    own.put([at = gpu.memory.reach(tensor.data), with] { std::memset(at, with, 10); });
  };
  fill('a');
  ASSERT_TRUE(parts.keep(0).ok());
  fill('b');
  ASSERT_TRUE(parts.load(0).ok());
  std::promise<std::string> found;
  own.put([&] { found.set_value(gpu.text(tensor)); });
  EXPECT_EQ(found.get_future().get(), std::string(10, 'a'));
}

TEST(DeviceParts, RoomForACopyIsTakenBeforeTheFirstOne) {
  OneGpu gpu;
  Store store(CommitMode::copy, gpu.options());
  ASSERT_TRUE(store.add("weights", gpu.tensor(kMegabyte)).ok());
  const auto free = gpu.memory.free_bytes();
  store.make_room();
  EXPECT_EQ(gpu.memory.free_bytes(), free - 2 * kMegabyte);
}

TEST(DeviceParts, AFullDeviceKeepsItsCopiesOnTheHost) {
  OneGpu gpu(kMegabyte);
  DeviceParts parts(gpu.options(8 * kMegabyte));
  const auto tensor = gpu.tensor(3 * kMegabyte / 4);
  ASSERT_TRUE(parts.add("weights", tensor).ok());
  gpu.fill(tensor, 'a');
  ASSERT_TRUE(parts.keep(0).ok());
  EXPECT_EQ(parts.kept(0).where, KeptIn::pinned);
  gpu.fill(tensor, 'b');
  ASSERT_TRUE(parts.load(0).ok());
  EXPECT_EQ(gpu.text(tensor), std::string(tensor.bytes(), 'a'));
}

TEST(DeviceParts, MemoryOfDroppedCopiesIsReturned) {
  OneGpu gpu;
  const auto tensor = gpu.tensor(kMegabyte);
  const auto free = gpu.memory.free_bytes();
  {
    DeviceParts parts(gpu.options());
    ASSERT_TRUE(parts.add("weights", tensor).ok());
    ASSERT_TRUE(parts.keep(0).ok());
    ASSERT_TRUE(parts.keep(1).ok());
    EXPECT_EQ(gpu.memory.free_bytes(), free - 2 * kMegabyte);
    parts.let_go(1);
    EXPECT_EQ(gpu.memory.free_bytes(), free - kMegabyte);
  }
  EXPECT_EQ(gpu.memory.free_bytes(), free);
}

TEST(DeviceParts, ADeviceThatCannotBeOpenedIsAnErrorAtTheFirstCopy) {
  OneGpu gpu;
  DeviceOptions options;
  options.open = [](int device) -> Result<std::unique_ptr<runtime::gpu::Copier>> {
    return Status(Code::unavailable, cat("CUDA device ", device, " has fallen off the bus"));
  };
  DeviceParts parts(std::move(options));
  ASSERT_TRUE(parts.add("weights", gpu.tensor(8)).ok());
  EXPECT_TRUE(mentions({parts.make_room(0)}, "CUDA device 0 has fallen off the bus"));
  EXPECT_TRUE(mentions({parts.keep(0)}, "CUDA device 0 has fallen off the bus"));
}

TEST(DeviceParts, TensorsOfTwoDevicesOrOfNoMemoryAreRefused) {
  OneGpu gpu;
  DeviceParts parts(gpu.options());
  auto tensor = gpu.tensor(8);
  ASSERT_TRUE(parts.add("weights", tensor).ok());
  tensor.device.cuda = 1;
  EXPECT_TRUE(mentions({parts.add("bias", tensor)}, "\"bias\": it is on CUDA device 1"));
  tensor.device.cuda = 0;
  tensor.data = nullptr;
  EXPECT_TRUE(mentions({parts.add("bias", tensor)}, "no memory"));
}

// --- transfers ----------------------------------------------------------------------------------

// A rank with a GPU, and on it the state's tensors.
struct DeviceWorker {
  DeviceWorker(char letter, std::size_t bytes, std::optional<std::size_t> limit,
               CommitMode mode = CommitMode::copy)
      : weights(gpu.tensor(bytes)),
        bias(gpu.tensor(7)),
        progress({.mode = mode, .compare_every = 1}, gpu.options(limit)) {
    EXPECT_TRUE(progress.store().add("weights", weights).ok());
    EXPECT_TRUE(progress.store().add("step", elastic::detail::handler_of(step)).ok());
    EXPECT_TRUE(progress.store().add("bias", bias).ok());
    set(letter);
  }
  void set(char letter) {
    progress.mutate([&] {
      gpu.fill(weights, letter);
      gpu.fill(bias, letter);
      step = letter;
    });
  }
  bool is(char letter) {
    return step == letter && gpu.text(weights) == std::string(weights.bytes(), letter) &&
           gpu.text(bias) == std::string(bias.bytes(), letter);
  }
  OneGpu gpu;
  TensorView weights;
  TensorView bias;
  char step = ' ';
  Progress progress;
  runtime::World* world = nullptr;  // that it is in
};

class DeviceTransfer : public ::testing::Test {
 protected:
  using Body = std::function<void(DeviceWorker& worker, CommitProtocol& protocol)>;
  void generation(const std::vector<DeviceWorker*>& members, const Body& body) {
    ++number_;
    test::run_world(
        static_cast<int>(members.size()),
        [&](int rank, runtime::World& world) {
          CommitProtocol protocol(world, number_, 0, mark_, kWindow);
          DeviceWorker& self = *members[static_cast<std::size_t>(rank)];
          self.world = &world;
          body(self, protocol);
          (void)protocol.channel().barrier("end of test");
          if (world.failure().ok()) (void)world.shutdown(Clock::now() + test::kLong);
        },
        [&](runtime::WorldSpec& spec) {
          spec.generation = number_;
          auto& memory = members[static_cast<std::size_t>(spec.rank)]->gpu.memory;
          spec.config.open_gpu = [&](int device,
                                     int lanes) -> Result<std::unique_ptr<runtime::gpu::Gpu>> {
            test::HostGpuOptions options;
            options.memory = &memory;
            return test::make_host_gpu(fabric_, device, lanes, options);
          };
        });
  }
  static void begin(DeviceWorker& worker, CommitProtocol& protocol) {
    const auto begun = worker.progress.begin(protocol, true);
    ASSERT_TRUE(begun.ok()) << begun.status.to_string();
  }
  static void commit(DeviceWorker& worker, CommitProtocol& protocol) {
    std::string next;
    const auto done = worker.progress.commit(
        protocol, [] { return std::string(); }, next);
    ASSERT_TRUE(done.ok()) << done.status.to_string();
  }
  static constexpr std::uint64_t kWindow = 1000;  // a few of a GPU's make a state of 20,000 bytes

  test::Fabric fabric_;
  OwnHighWater mark_;
  std::uint64_t number_ = 0;
};

TEST_F(DeviceTransfer, RanksThatLackTheStateGetItWhereverCopiesAreKept) {
  for (const auto mode : {CommitMode::copy, CommitMode::mark}) {
    for (const std::size_t limit_of_old : {std::size_t{0}, kMegabyte}) {
      for (const std::size_t limit_of_new : {std::size_t{0}, kMegabyte}) {
        DeviceWorker first('a', 20'003, limit_of_old, mode);
        DeviceWorker second('b', 20'003, limit_of_new, mode);
        generation({&first, &second}, [&](DeviceWorker& self, CommitProtocol& protocol) {
          begin(self, protocol);
          EXPECT_TRUE(self.is('a')) << "at the beginning all have what rank 0 has";
          self.set('c');
          commit(self, protocol);
        });
        DeviceWorker third('x', 20'003, limit_of_new, mode);
        DeviceWorker fourth('y', 20'003, limit_of_old, mode);
        // Holders have gone on, and come back; one of them is neither first nor lacks anything.
        if (mode == CommitMode::copy) first.set('d');
        generation({&third, &first, &second, &fourth},
                   [&](DeviceWorker& self, CommitProtocol& protocol) {
                     begin(self, protocol);
                     EXPECT_TRUE(self.is('c'));
                     commit(self, protocol);
                   });
        mark_ = {};
      }
    }
  }
}

TEST_F(DeviceTransfer, AFailureDuringATransferIsOneMoreGenerationAndNoRankHasHalfAState) {
  for (const std::size_t limit : {std::size_t{0}, kMegabyte}) {
    DeviceWorker first('a', 20'003, limit);
    DeviceWorker second('b', 20'003, limit);
    generation({&first, &second}, [&](DeviceWorker& self, CommitProtocol& protocol) {
      begin(self, protocol);
      self.set('c');
      commit(self, protocol);
    });
    DeviceWorker joiner('x', 20'003, std::size_t{0});
    joiner.gpu.on_copy = [&joiner, copies = 0]() mutable {
      if (++copies == 3) joiner.world->abort(Status(Code::unavailable, "cut by the test"));
    };
    generation({&first, &second, &joiner}, [&](DeviceWorker& self, CommitProtocol& protocol) {
      const auto begun = self.progress.begin(protocol, true);
      EXPECT_TRUE(begun.world_failed);
      EXPECT_TRUE(mentions(begun, "cut by the test")) << begun.status.message();
      EXPECT_TRUE(self.is(&self == &joiner ? 'x' : 'c'));
    });
    joiner.gpu.on_copy = [] {};
    generation({&first, &second, &joiner}, [&](DeviceWorker& self, CommitProtocol& protocol) {
      begin(self, protocol);
      EXPECT_TRUE(self.is('c'));
      commit(self, protocol);
    });
    mark_ = {};
  }
}

TEST_F(DeviceTransfer, SyncGivesAllWhatRankZeroHasNowAndKeepsNothing) {
  DeviceWorker first('a', 5'000, kMegabyte);
  DeviceWorker second('b', 5'000, std::size_t{0});
  generation({&first, &second}, [&](DeviceWorker& self, CommitProtocol& protocol) {
    begin(self, protocol);
    commit(self, protocol);
    self.set(protocol.channel().rank() == 0 ? 'z' : 'y');
    const auto synced = self.progress.sync(protocol);
    ASSERT_TRUE(synced.ok()) << synced.status.to_string();
    EXPECT_TRUE(self.is('z'));
    self.progress.store().load();
    EXPECT_TRUE(self.is('a'));
  });
}

TEST_F(DeviceTransfer, RanksWhoseTensorsDifferAreToldAtACommit) {
  DeviceWorker first('a', 5'000, kMegabyte);
  DeviceWorker second('a', 5'000, std::size_t{0});
  generation({&first, &second}, [&](DeviceWorker& self, CommitProtocol& protocol) {
    begin(self, protocol);
    commit(self, protocol);
    if (protocol.channel().rank() == 1) self.gpu.fill(self.bias, 'q');
    std::string next;
    const auto done = self.progress.commit(
        protocol, [] { return std::string(); }, next);
    EXPECT_EQ(done.status.code(), Code::data_loss);
    EXPECT_TRUE(mentions(done, "the state of rank 1 differs from that of rank 0"))
        << done.status.message();
  });
}

TEST_F(DeviceTransfer, ATensorOfAnotherSizeIsAnErrorThatNamesTheRanks) {
  DeviceWorker first('a', 5'000, kMegabyte);
  DeviceWorker second('a', 6'000, kMegabyte);
  generation({&first, &second}, [&](DeviceWorker& self, CommitProtocol& protocol) {
    const auto begun = self.progress.begin(protocol, true);
    if (protocol.channel().rank() == 0) {  // its peer has given up
      EXPECT_TRUE(begun.world_failed);
      return;
    }
    EXPECT_TRUE(mentions(begun, "on the GPU of rank 1 have other sizes than those of rank 0"))
        << begun.status.message();
    (void)protocol.channel().give_up(begun.status);
  });
}

}  // namespace
}  // namespace hvd::worker
