// The phases of a process: outside, joining, inside and between worlds.
#include "worker/process/current_world.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hvd::worker {
namespace {

using Phase = CurrentWorld::Phase;

runtime::Failure lost() {
  runtime::Failure failure(Status(Code::unavailable, "lost rank 1"), 1, "b");
  failure.world_failed = true;
  return failure;
}

TEST(CurrentWorld, GoesThroughItsPhases) {
  CurrentWorld current;
  EXPECT_EQ(current.phase(), Phase::outside);
  EXPECT_FALSE(current.is_initialized());

  current.wait_for_first();
  EXPECT_EQ(current.phase(), Phase::joining);
  EXPECT_TRUE(current.is_initialized());

  current.enter({nullptr, std::chrono::milliseconds(7), true});
  EXPECT_EQ(current.phase(), Phase::inside);
  EXPECT_EQ(current.shutdown_timeout(), std::chrono::milliseconds(7));
  EXPECT_TRUE(current.has_dynamic_sets());

  current.end(lost());
  EXPECT_EQ(current.phase(), Phase::between);
  EXPECT_TRUE(current.is_initialized());
  EXPECT_EQ(current.end_reason().rank, 1);

  current.leave("lost rank 1");
  EXPECT_EQ(current.phase(), Phase::outside);
  EXPECT_TRUE(current.end_reason().ok());
  EXPECT_EQ(current.last_failure(), "lost rank 1");
}

TEST(CurrentWorld, ForgetsTheLastOneWhenTheNextIsEntered) {
  CurrentWorld current;
  current.enter({});
  EXPECT_EQ(current.next_name({"allreduce"}), "allreduce.noname.0");
  EXPECT_EQ(current.next_name({"allreduce"}), "allreduce.noname.1");
  EXPECT_EQ(current.next_name({"broadcast"}), "broadcast.noname.0");
  current.end(lost());

  current.enter({});
  EXPECT_TRUE(current.end_reason().ok());
  EXPECT_TRUE(current.last_failure().empty());
  EXPECT_EQ(current.next_name({"allreduce"}), "allreduce.noname.0");
}

TEST(CurrentWorld, TakesTheLastNumberBackAndNoOther) {
  CurrentWorld current;
  current.enter({});
  const auto first = current.next_name({"allreduce"});
  current.return_name({"allreduce"}, first);
  EXPECT_EQ(current.next_name({"allreduce"}), first);
  const auto second = current.next_name({"allreduce"});
  current.return_name({"allreduce"}, first);
  EXPECT_EQ(current.next_name({"allreduce"}), "allreduce.noname.2");
  current.restart_names();
  current.return_name({"allreduce"}, second);
  EXPECT_EQ(current.next_name({"allreduce"}), "allreduce.noname.0");
}

TEST(CurrentWorld, NumbersUnnamedCallsInEachProcessSet) {
  CurrentWorld current;
  current.enter({});
  EXPECT_EQ(current.next_name({"allreduce", 1}), "allreduce.noname.0");
  EXPECT_EQ(current.next_name({"allreduce", 2}), "allreduce.noname.0");
  EXPECT_EQ(current.next_name({"allreduce", 1}), "allreduce.noname.1");
  current.return_name({"allreduce", 2}, "allreduce.noname.0");
  EXPECT_EQ(current.next_name({"allreduce", 1}), "allreduce.noname.2");
  EXPECT_EQ(current.next_name({"allreduce", 2}), "allreduce.noname.0");
  current.forget_names(1);
  EXPECT_EQ(current.next_name({"allreduce", 1}), "allreduce.noname.0");
  EXPECT_EQ(current.next_name({"allreduce", 2}), "allreduce.noname.1");
}

TEST(CurrentWorld, WaitsForAStopOnceForEachWorld) {
  CurrentWorld current;
  const auto first = current.stop_deadline(std::chrono::seconds(1));
  EXPECT_EQ(current.stop_deadline(std::chrono::seconds(9)), first);
  current.reset_stop_deadline();
  EXPECT_GT(current.stop_deadline(std::chrono::seconds(9)), first);
}

TEST(CurrentWorld, IsNotInheritedByAForkedChild) {
  CurrentWorld current;
  current.enter({});
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(current.is_initialized() ? 1 : 0);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(current.is_initialized());
}

}  // namespace
}  // namespace hvd::worker
