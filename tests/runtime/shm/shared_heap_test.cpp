#include "runtime/shm/shared_heap.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "base/socket.h"
#include "runtime/shm/segment.h"
#include "tests/runtime/shm/shm_ranks.h"
#include "tests/support/missing_calls.h"

namespace hvd::runtime {
namespace {

using test::answer_next;
using test::hold_reservations;
using test::kLong;

std::byte* allocated(std::size_t bytes) {
  const auto memory = SharedHeap::of_process().allocate(bytes);
  EXPECT_TRUE(memory.ok()) << memory.status().to_string();
  return memory.ok() ? *memory : nullptr;
}

// Runs `body` in a child of this process and returns the exit code of the child.
template <typename F>
int in_child(F body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::size_t size_of_file(int fd) {
  struct stat what {};
  EXPECT_EQ(::fstat(fd, &what), 0);
  return static_cast<std::size_t>(what.st_size);
}

blkcnt_t blocks_of_file(int fd) {
  struct stat what {};
  EXPECT_EQ(::fstat(fd, &what), 0);
  return what.st_blocks;
}

// A thread that allocates two pieces of memory at once, which the kernel gives when the test says.
class HeldAllocation {
 public:
  HeldAllocation() {
    SharedHeap::of_process().free(allocated(1));  // it is mapped
    std::promise<void> held;
    thread_ = std::thread([this, &held] {
      held_ = hold_reservations();
      held.set_value();
      if (held_) memory_ = SharedHeap::of_process().allocate(kBytes);
    });
    held.get_future().wait();
  }
  ~HeldAllocation() { end(); }
  HeldAllocation(const HeldAllocation&) = delete;
  HeldAllocation& operator=(const HeldAllocation&) = delete;

  bool is_possible() const { return static_cast<bool>(held_); }
  bool is_under_way() const { return wait_for(held_.get(), POLLIN, Clock::now() + kLong).ok(); }
  // The end of the allocation, if the kernel answers its calls in this way.
  Result<std::byte*> answer(std::vector<int> errors) {
    answers_ = std::move(errors);
    end();
    return memory_;
  }
  static constexpr std::size_t kBytes = std::size_t{16} << 20;

 private:
  void end() {
    if (!thread_.joinable()) return;
    for (const int error : held_ ? answers_ : std::vector<int>()) {
      EXPECT_TRUE(answer_next(held_, error));
    }
    thread_.join();
  }

  UniqueFd held_;
  std::vector<int> answers_{ENOSPC};
  Result<std::byte*> memory_ = Status(Code::internal, "nothing was allocated");
  std::thread thread_;
};

bool is_zero(const std::byte* memory, std::size_t bytes) {
  return std::all_of(memory, memory + bytes, [](std::byte byte) { return byte == std::byte{0}; });
}

TEST(SharedHeap, GivesZerosAlsoWhereMemoryIsReused) {
  auto& heap = SharedHeap::of_process();
  constexpr std::size_t kBytes = 100'000;
  std::byte* const first = allocated(kBytes);
  EXPECT_TRUE(is_zero(first, kBytes));
  std::memset(first, 1, kBytes);
  heap.free(first);
  std::byte* const second = allocated(kBytes);
  EXPECT_EQ(second, first);
  EXPECT_TRUE(is_zero(second, kBytes));
  heap.free(second);
}

TEST(SharedHeap, MergesFreeBlocksInAnyOrder) {
  auto& heap = SharedHeap::of_process();
  std::vector<int> order{0, 1, 2, 3};
  do {
    std::vector<std::byte*> pieces;
    for (std::size_t i = 0; i < order.size(); ++i) pieces.push_back(allocated(page_bytes()));
    for (const int piece : order) heap.free(pieces[static_cast<std::size_t>(piece)]);
    std::byte* const whole = allocated(order.size() * page_bytes());
    EXPECT_EQ(whole, pieces.front()) << ::testing::PrintToString(order);
    heap.free(whole);
  } while (std::next_permutation(order.begin(), order.end()));
}

// Gigabytes take the kernel seconds, and a world that forms needs the descriptor.
TEST(SharedHeap, NobodyWaitsWhileTheKernelGivesMemoryToAnother) {
  auto& heap = SharedHeap::of_process();
  std::byte* const before = allocated(page_bytes());
  HeldAllocation large;
  if (!large.is_possible()) GTEST_SKIP() << "the kernel takes no filter of system calls";
  ASSERT_TRUE(large.is_under_way());
  auto small = std::async(std::launch::async, [&] {
    EXPECT_GE(heap.fd(), 0);
    heap.free(before);
    return allocated(page_bytes());
  });
  EXPECT_EQ(small.wait_for(kLong), std::future_status::ready);
  const auto memory = large.answer({0, 0});
  ASSERT_TRUE(memory.ok()) << memory.status().to_string();
  EXPECT_TRUE(is_zero(*memory, HeldAllocation::kBytes));
  heap.free(*memory);
  heap.free(small.get());
}

TEST(SharedHeap, KeepsNothingOfAnAllocationThatFails) {
  auto& heap = SharedHeap::of_process();
  const auto blocks = blocks_of_file(heap.fd());
  HeldAllocation large;
  if (!large.is_possible()) GTEST_SKIP() << "the kernel takes no filter of system calls";
  EXPECT_EQ(large.answer({0, ENOSPC}).status().code(), Code::resource_exhausted);
  EXPECT_EQ(blocks_of_file(heap.fd()), blocks);
  std::byte* const again = allocated(HeldAllocation::kBytes);
  EXPECT_EQ(heap.offset_of(again, HeldAllocation::kBytes), 0U);
  heap.free(again);
}

TEST(SharedHeap, KnowsItsOwnAddresses) {
  auto& heap = SharedHeap::of_process();
  EXPECT_FALSE(heap.owns(&heap));
  EXPECT_FALSE(heap.offset_of(nullptr, 0));
  std::byte* const first = allocated(1);
  std::byte* const second = allocated(0);
  EXPECT_NE(first, second);
  EXPECT_TRUE(heap.owns(first));
  const auto there = heap.offset_of(first, page_bytes());
  ASSERT_TRUE(there.has_value());
  EXPECT_EQ(heap.offset_of(first + 8, 1), *there + 8);
  EXPECT_FALSE(heap.offset_of(first, size_of_file(heap.fd()) - *there + 1));
  heap.free(first);
  heap.free(first);  // it is no more there
  heap.free(second);
}

TEST(SharedHeap, RefusesMoreThanTheMachineHas) {
  auto& heap = SharedHeap::of_process();
  for (const std::size_t bytes : {size_of_file(heap.fd()) + 1, ~std::size_t{0}}) {
    EXPECT_EQ(heap.allocate(bytes).status().code(), Code::resource_exhausted);
  }
  heap.free(allocated(1));
}

// It would be killed by SIGXFSZ.
TEST(SharedHeap, ObeysTheLimitOnTheSizeOfFiles) {
  EXPECT_EQ(in_child([] {
              const rlimit little{1 << 20, 1 << 20};
              ::setrlimit(RLIMIT_FSIZE, &little);
              auto& heap = SharedHeap::of_process();
              if (!heap.allocate(1 << 10).ok()) return 1;
              return heap.allocate(2 << 20).ok() ? 2 : 0;
            }),
            0);
}

// A process that allocates nothing loses nothing of a limit on its address space.
TEST(SharedHeap, IsMappedWhenItIsNeeded) {
  const auto mapped = [] { return test::heaps_mapped() > 0; };
  EXPECT_EQ(in_child([&] {
              if (mapped()) return 1;  // by a test before this one, of the parent
              if (SharedHeap::of_process().fd() < 0 || mapped()) return 2;
              return SharedHeap::of_process().allocate(1).ok() && mapped() ? 0 : 3;
            }),
            mapped() ? 1 : 0);
}

TEST(SharedHeap, IsAnErrorWhereTheAddressSpaceIsTooSmall) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs more address space than that";
#endif
  EXPECT_EQ(in_child([] {
              const rlimit little{1 << 30, 1 << 30};
              ::setrlimit(RLIMIT_AS, &little);
              auto& heap = SharedHeap::of_process();
              return heap.fd() >= 0 && !heap.allocate(1).ok() ? 0 : 1;
            }),
            0);
}

TEST(SharedHeap, AChildSeesTheTensorsOfItsParentAndHasAHeapOfItsOwn) {
  auto& heap = SharedHeap::of_process();
  std::byte* const before = allocated(page_bytes());
  before[0] = std::byte{7};
  EXPECT_EQ(in_child([&] {
              auto& own = SharedHeap::of_process();
              if (&own == &heap || before[0] != std::byte{7}) return 1;
              if (!own.owns(before) || own.offset_of(before, 1)) return 2;
              own.free(before);  // it stays, for the parent
              if (before[0] != std::byte{7}) return 3;
              const auto mine = own.allocate(page_bytes());
              if (!mine.ok() || !own.offset_of(*mine, 1) || heap.offset_of(*mine, 1)) return 4;
              own.free(*mine);
              before[1] = std::byte{8};
              return 0;
            }),
            0);
  EXPECT_EQ(before[0], std::byte{7});
  EXPECT_EQ(before[1], std::byte{8});
  heap.free(before);
}

}  // namespace
}  // namespace hvd::runtime
