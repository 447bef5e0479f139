// The public calls, in a world of one, as a program sees them: against libhvd.so.
#include <array>
#include <atomic>
#include <exception>
#include <gtest/gtest.h>
#include <new>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <type_traits>
#include <unistd.h>
#include <utility>
#include <vector>

#include <hvd/hvd.h>

namespace {

class Api : public ::testing::Test {
 protected:
  void SetUp() override { hvd::init(); }
  void TearDown() override { hvd::shutdown(); }
};

TEST_F(Api, TheExampleOfTheDocumentationWorks) {
  std::vector<float> gradients{1, 2, 3};
  hvd::allreduce(gradients, {.name = "gradients", .op = hvd::Average});
  EXPECT_EQ(gradients, (std::vector<float>{1, 2, 3}));
}

TEST_F(Api, TakesWhateverIsASpan) {
  std::array<double, 2> array{1, 2};
  std::int64_t plain[2] = {3, 4};
  std::vector<std::uint8_t> vector{5, 6};
  hvd::allreduce(array, {.op = hvd::Sum, .prescale = 2.0});
  hvd::allreduce(plain, {.op = hvd::Max, .postscale = 3.0});
  hvd::allreduce(std::span(vector));
  hvd::broadcast(array, {.root = 0});
  hvd::barrier();
  EXPECT_EQ(array, (std::array<double, 2>{2, 4}));
  EXPECT_EQ(plain[1], 12);
  EXPECT_EQ(vector, (std::vector<std::uint8_t>{5, 6}));
}

TEST_F(Api, WritesIntoAnotherBufferAndLeavesTheInputAlone) {
  const std::vector<float> input{1, 2};
  std::vector<float> output(2);
  hvd::allreduce(input, output, {.prescale = 10.0});
  EXPECT_EQ(output, (std::vector<float>{10, 20}));
  EXPECT_EQ(input, (std::vector<float>{1, 2}));
}

TEST_F(Api, HandlesBecomeReadyAndMayBeWaitedForTwice) {
  std::vector<float> data{1};
  const auto handle = hvd::allreduce_async(data, {.name = "a"});
  handle.wait();
  EXPECT_TRUE(handle.ready());
  handle.wait();
  EXPECT_TRUE(hvd::Handle().ready());
  hvd::Handle().wait();
}

TEST_F(Api, CarriesTypesThatHaveNoNameInCpp) {
  std::array<std::uint16_t, 2> halves{0x3C00, 0xC000};  // 1, -2
  const hvd::TensorView view{halves.data(), {2, 1}, hvd::DataType::float16};
  hvd::allreduce(view, {.op = hvd::Sum, .prescale = 0.5});
  EXPECT_EQ(halves, (std::array<std::uint16_t, 2>{0x3800, 0xBC00}));  // 0.5, -1
}

TEST_F(Api, RefusesInvalidArgumentsByName) {
  std::vector<float> data{1};
  const auto refusal = [](auto call) -> std::string {
    try {
      call();
    } catch (const hvd::InvalidArgumentError& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_NE(refusal([&] {
              hvd::broadcast(data, {.name = "w", .root = 1});
            }).find("\"w\": there is no root rank 1 in a world of 1"),
            std::string::npos);
  EXPECT_NE(refusal([&] {
              std::vector<int> whole{1};
              hvd::allreduce(whole, {.name = "w", .op = hvd::ReduceOp::adasum});
            }).find("adasum"),
            std::string::npos);
  std::vector<float> two(2);
  EXPECT_NE(refusal([&] { hvd::allreduce(data, two, {.name = "w"}); }).find("float32[1]"),
            std::string::npos);
  EXPECT_NE(refusal([&] {
              hvd::allreduce(hvd::TensorView{nullptr, {4}, hvd::DataType::int8}, {.name = "w"});
            }).find("no memory"),
            std::string::npos);
  EXPECT_NE(refusal([&] {
              hvd::allreduce(hvd::TensorView{data.data(), {-4}, hvd::DataType::int8});
            }).find("[-4]"),
            std::string::npos);
  hvd::allreduce(data, {.name = "w"});  // and goes on
}

TEST_F(Api, MayBeCalledFromManyThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 100; ++i) {
        std::vector<int> data{i};
        hvd::allreduce(data, {.op = hvd::Sum});
        EXPECT_EQ(data[0], i);
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(ApiLifecycle, CallsOutsideOfAWorldAreErrorsThatSaySo) {
  EXPECT_FALSE(hvd::is_initialized());
  EXPECT_THROW(hvd::rank(), hvd::NotInitializedError);
  EXPECT_THROW(hvd::barrier(), hvd::NotInitializedError);
  hvd::shutdown();  // nothing to leave
  hvd::init();
  hvd::init();
  EXPECT_TRUE(hvd::is_initialized());
  EXPECT_EQ(hvd::size(), 1);
  hvd::shutdown();
  EXPECT_THROW(hvd::size(), hvd::Error);
}

TEST(ApiLifecycle, ASecondInitMayAskForTheSameOrNothingButNotForSomethingElse) {
  hvd::init({.dynamic_process_sets = true});
  hvd::init({.dynamic_process_sets = true});
  hvd::init();
  try {
    hvd::init({.lost_member = hvd::LostMember::shrink});
    ADD_FAILURE() << "no error";
  } catch (const hvd::InvalidArgumentError& error) {
    EXPECT_STREQ(error.what(),
                 "hvd::init(): the world was made with other options; hvd::shutdown() comes before "
                 "a new one");
  }
  EXPECT_EQ(hvd::size(), 1) << "the world goes on";
  hvd::shutdown();
  hvd::init({.lost_member = hvd::LostMember::shrink});
  hvd::shutdown();
}

// Another thread of the parent calls hvd at the moment of the fork. A child that hangs is killed.
TEST_F(Api, AForkedChildIsToldAtOnceThatItHasNoWorld) {
  std::atomic<bool> over = false;
  std::thread caller([&over] {
    while (!over) hvd::size();
  });

  int healthy = 0;
  constexpr int kChildren = 200;
  for (int i = 0; i < kChildren; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);
      ::_exit(hvd::is_initialized() ? 1 : 0);
    }
    int status = -1;
    if (::waitpid(child, &status, 0) != child || status != 0) break;
    ++healthy;
  }

  over = true;
  caller.join();
  EXPECT_EQ(healthy, kChildren);
}

// Threads of the parent make worlds and shared tensors at the moment of the fork. The child makes
// its own, and what it needs for that was locked by threads that it does not have.
TEST(ApiLifecycle, AForkedChildCanMakeAWorldAndSharedTensorsOfItsOwn) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer's own allocator may be locked in a child";
#endif
  std::atomic<bool> over = false;
  std::thread worlds([&over] {
    while (!over) {
      hvd::init();
      hvd::shutdown();
    }
  });
  std::thread tensors([&over] {
    while (!over) hvd::empty({1}, hvd::DataType::uint8);
  });

  int healthy = 0;
  constexpr int kChildren = 100;
  for (int i = 0; i < kChildren; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);
      const auto tensor = hvd::empty({1}, hvd::DataType::uint8);
      hvd::init();
      const bool is_alone = hvd::size() == 1;
      hvd::shutdown();
      ::_exit(is_alone ? 0 : 1);
    }
    int status = -1;
    if (::waitpid(child, &status, 0) != child || status != 0) break;
    ++healthy;
  }

  over = true;
  worlds.join();
  tensors.join();
  EXPECT_EQ(healthy, kChildren);
}

TEST(ApiVersion, IsThatOfTheHeaders) {
  EXPECT_STREQ(hvd::version(), HVD_VERSION_STRING);
  EXPECT_EQ(HVD_VERSION, HVD_VERSION_MAJOR * 10000 + HVD_VERSION_MINOR * 100 + HVD_VERSION_PATCH);
}

// A program that logs errors and goes on must not go on in a world that is over.
static_assert(!std::is_base_of_v<hvd::Error, hvd::HostsUpdated>);
static_assert(std::is_base_of_v<std::exception, hvd::HostsUpdated>);

TEST(ApiErrors, CanBeCaughtAsWhatTheyAre) {
  try {
    throw hvd::CollectiveError("text", 3, "b", "killed");
  } catch (const hvd::Error& error) {
    const auto* const collective = dynamic_cast<const hvd::CollectiveError*>(&error);
    ASSERT_NE(collective, nullptr);
    EXPECT_EQ(collective->rank(), 3);
    EXPECT_EQ(collective->host(), "b");
    EXPECT_EQ(collective->cause(), "killed");
    EXPECT_STREQ(error.what(), "text");
  }
}

// --- memory that ranks share --------------------------------------------------------------------

TEST(SharedMemory, IsATensorOfZerosBeforeInitAndAfterShutdown) {
  hvd::Tensor tensor = hvd::empty({2, 3}, hvd::DataType::float64);
  EXPECT_EQ(tensor.shape(), (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(tensor.type(), hvd::DataType::float64);
  EXPECT_TRUE(tensor.device().is_host());
  for (const double value : tensor.as<double>()) EXPECT_EQ(value, 0);
  hvd::init();
  tensor.as<double>()[5] = 2;
  hvd::allreduce(tensor, {.op = hvd::Sum, .prescale = 3});
  hvd::shutdown();
  EXPECT_EQ(tensor.as<double>()[5], 6);
  const hvd::Tensor moved = std::move(tensor);
  EXPECT_EQ(moved.as<double>()[5], 6);
}

TEST(SharedMemory, OfNoElementsHasAnAddress) {
  const hvd::Tensor nothing = hvd::empty({0, 3}, hvd::DataType::float32);
  EXPECT_NE(nothing.data(), nullptr);
  EXPECT_EQ(nothing.bytes(), 0U);
}

TEST(SharedMemory, OfAnImpossibleShapeIsRefused) {
  EXPECT_THROW(hvd::empty({-1}, hvd::DataType::uint8), hvd::InvalidArgumentError);
  constexpr std::int64_t kMuch = std::int64_t{1} << 62;
  EXPECT_THROW(hvd::empty({kMuch, 8}, hvd::DataType::uint8), hvd::InvalidArgumentError);
  EXPECT_THROW(hvd::empty({kMuch}, hvd::DataType::uint8), std::bad_alloc);
}

TEST(SharedMemory, IsForContainersToo) {
  std::vector<float, hvd::SharedAllocator<float>> values;
  for (int i = 0; i < 10'000; ++i) values.push_back(static_cast<float>(i));
  auto copy = values;
  values = {};
  EXPECT_EQ(copy[9'999], 9'999);
  hvd::init();
  hvd::allreduce(copy, {.op = hvd::Sum, .prescale = 2});
  hvd::shutdown();
  EXPECT_EQ(copy[9'999], 2 * 9'999);
  EXPECT_THROW(hvd::SharedAllocator<double>().allocate(~std::size_t{0} / 2),
               std::bad_array_new_length);
}

// The limit on the size of files is one on what can be shared.
[[noreturn]] void make_tensors_where_little_can_be_shared() {
  const rlimit little{1 << 20, 1 << 20};
  ::setrlimit(RLIMIT_FSIZE, &little);
  for (int round = 0; round < 3; ++round) {
    const hvd::Tensor tensor = hvd::empty({1 << 20}, hvd::DataType::float32);
    for (const float value : tensor.as<float>()) {
      if (value != 0) ::_exit(1);
    }
  }
  ::_exit(0);
}

TEST(SharedMemory, IsOrdinaryMemoryWhereTheMachineGivesNone) {
  EXPECT_EXIT(make_tensors_where_little_can_be_shared(), testing::ExitedWithCode(0),
              "ordinary memory instead of shared memory");
}

[[noreturn]] void use_in_child(hvd::Tensor& tensor) {
  tensor.as<std::int32_t>()[0] = 5;
  { const hvd::Tensor own = hvd::empty({10}, hvd::DataType::int32); }
  { const hvd::Tensor gone = std::move(tensor); }
  ::_exit(0);
}

TEST(SharedMemory, OfAParentIsThereInAChildWhichHasItsOwn) {
  hvd::Tensor tensor = hvd::empty({10}, hvd::DataType::int32);
  EXPECT_EXIT(use_in_child(tensor), testing::ExitedWithCode(0), "");
  EXPECT_EQ(tensor.as<std::int32_t>()[0], 5) << "both write to the same memory";
}

}  // namespace
