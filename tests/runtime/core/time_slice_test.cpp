#include "runtime/core/time_slice.h"

#include <algorithm>
#include <filesystem>
#include <gtest/gtest.h>
#include <sched.h>
#include <set>
#include <string>
#include <sys/resource.h>
#include <thread>

#include "base/machine/proc.h"
#include "base/text.h"
#include "tests/runtime/control/worlds.h"
#include "tests/support/process.h"

namespace hvd::test {
namespace {

using runtime::ShortTimeSlice;
using runtime::time_slice;

constexpr std::uint64_t kShort = 100'000;

class TimeSlice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!time_slice()) GTEST_SKIP() << "this kernel gives threads no slices of their own";
    if (*time_slice() <= kShort) GTEST_SKIP() << "all threads have short slices here";
  }
};

template <typename Body>
void on_a_thread(Body body) {
  std::thread(body).join();
}

TEST_F(TimeSlice, IsShortForAsLongAsIsAskedFor) {
  on_a_thread([] {
    ASSERT_EQ(::setpriority(PRIO_PROCESS, 0, 5), 0);  // of this thread alone
    const auto before = time_slice();
    {
      ShortTimeSlice slice;
      EXPECT_EQ(time_slice(), before);
      slice.begin();
      EXPECT_EQ(time_slice(), kShort);
      slice.begin();
      ASSERT_EQ(::setpriority(PRIO_PROCESS, 0, 7), 0);
    }
    EXPECT_EQ(time_slice(), before);
    EXPECT_EQ(::getpriority(PRIO_PROCESS, 0), 7);
  });
}

TEST_F(TimeSlice, LeavesOtherPoliciesAlone) {
  on_a_thread([] {
    const sched_param none{};
    ASSERT_EQ(::sched_setscheduler(0, SCHED_IDLE, &none), 0);
    ShortTimeSlice slice;
    slice.begin();
    EXPECT_FALSE(time_slice());
    EXPECT_EQ(::sched_getscheduler(0), SCHED_IDLE);
  });
}

// The names of the threads of this process whose slices are short.
std::multiset<std::string> threads_with_short_slices() {
  std::multiset<std::string> names;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    const auto number = parse_number<pid_t>(task.path().filename().string());
    if (!number || time_slice(*number) != kShort) continue;
    names.emplace(trim(read_proc_file(task.path() / "comm")));
  }
  return names;
}

bool is_of_program(const std::string& name) { return !name.starts_with("hvd-"); }

TEST_F(TimeSlice, IsShortForThreadsOfAWorldAndForAWaitOfTheProgram) {
  const auto of_program = time_slice();
  run_world_to_end(2, [&](int rank, runtime::World& world) {
    EXPECT_EQ(time_slice(), of_program);
    std::vector<float> data{1};
    if (rank == 0) {
      // Rank 1 comes when rank 0 sleeps in its wait.
      auto future = allreduce(world, "x", data);
      world.progress_until([&future] {
        return future.wait_for(std::chrono::seconds::zero()) == std::future_status::ready;
      });
      EXPECT_TRUE(outcome_of(std::move(future)).ok());
    } else {
      const bool all_are_short = eventually([] {
        const auto all = threads_with_short_slices();
        return all.count("hvd-control") == 2 && all.count("hvd-executor") == 2 &&
               std::count_if(all.begin(), all.end(), is_of_program) == 1;
      });
      EXPECT_TRUE(all_are_short) << ::testing::PrintToString(threads_with_short_slices());
      EXPECT_TRUE(outcome_of(allreduce(world, "x", data)).ok());
    }
    EXPECT_EQ(time_slice(), of_program);
  });
}

}  // namespace
}  // namespace hvd::test
