// Workers that end well, or stop taking part, before the work is done; workers that cannot take
// part; and workers that take their time before they do. The job goes on, or says why not.
#include <csignal>

#include "base/text.h"
#include "tests/e2e/elastic_job.h"

namespace hvd::test {
namespace {

class EarlyEndTest : public ElasticJobTest {
 protected:
  std::int64_t expect_world(Process& job, int size, std::int64_t after = 0) {
    const auto world = step_logs().wait_for_world(size, after);
    EXPECT_NE(world, 0) << "no world of " << size << "\n" << step_logs().summary() << job.err();
    EXPECT_TRUE(step_logs().wait_for_steps_more(5)) << step_logs().summary();
    return world;
  }
  void expect_in(const std::string& text, const Words& parts) {
    for (const auto& part : parts) {
      EXPECT_NE(text.find(part), std::string::npos) << '"' << part << "\" is not in:\n" << text;
    }
  }
  void first_ends_at(const char* point) {
    order("localhost#1", point, "end");
    Process& job = start_training({"-np", "3", "--min-np", "2"});
    expect_world(job, 3);
    EXPECT_TRUE(was_obeyed("localhost#1", point));
    finish(job);
  }
  // A shell's words: this program, unless it is the worker in `slot`, and does `instead` first.
  Words after(const std::string& instead, int slot, const Words& program) const {
    std::string line =
        cat("if [ $HVD_WORKER = localhost#", slot, " ]; then ", instead, "; fi; exec");
    for (const auto& word : program) line += " " + word;
    return {"sh", "-c", line};
  }
  std::string until_there(const std::string& file) const {
    return cat("while [ ! -e ", (directory() / file).string(), " ]; do sleep 0.05; done");
  }
};

// ---- early good ends ----

TEST_F(EarlyEndTest, ExitZeroAtAnyPointLeavesTheOthersInAWorldWithoutIt) {
  Process& job = start_training({"-np", "3", "--min-np", "2", "--restarts", "100"});
  auto world = expect_world(job, 3);
  for (const char* const point : {"step", "save", "committed", "step", "committed"}) {
    for (const char* const action : {"end", "end-elsewhere"}) {
      order("localhost#1", point, action);
      world = expect_world(job, 3, world);
      ASSERT_NE(world, 0) << point << " " << action;
    }
  }
  order("localhost#0", "step", "end");  // it coordinates
  expect_world(job, 3, world);
  const auto end = finish(job);
  expect_in(end.err, {"localhost#1 left early"});
}

TEST_F(EarlyEndTest, ShutdownInTheMidstOfTrainingIsTheSame) {
  Process& job = start_training({"-np", "3", "--min-np", "2", "--restarts", "100"});
  auto world = expect_world(job, 3);
  for (const char* const worker : {"localhost#2", "localhost#0"}) {
    order(worker, "step", "shutdown");
    world = expect_world(job, 3, world);
  }
  const auto end = finish(job);
  expect_in(end.err, {"localhost#2 left early", "localhost#0 left early"});
}

TEST_F(EarlyEndTest, ExitZeroBeforeOrAfterInitIsHealed) {
  Process& job = start_training({"-np", "3", "--min-np", "2", "--restarts", "100"});
  auto world = expect_world(job, 3);
  for (const char* const point : {"init", "ready"}) {
    order("any", point, "end");
    kill_rank(2);
    ASSERT_TRUE(eventually([&] { return was_obeyed("any", point); })) << job.err();
    world = expect_world(job, 3, world);
  }
  finish(job);
}

TEST_F(EarlyEndTest, AFirstWorkerThatEndsBeforeInitIsReplaced) { first_ends_at("init"); }
TEST_F(EarlyEndTest, AFirstWorkerThatEndsAfterInitIsReplaced) { first_ends_at("ready"); }

// ---- workers that cannot take part ----

TEST_F(EarlyEndTest, AWorkerWithoutDescriptorsIsToldOfAndReplaced) {
  Process& job = start_training({"-np", "3", "--min-np", "2"});
  const auto world = expect_world(job, 3);
  order("localhost#1", "step", "grab");
  ASSERT_TRUE(eventually([&] { return was_obeyed("localhost#1", "step"); }));
  ASSERT_TRUE(step_logs().wait_for_steps_more(5));
  kill_rank(2);
  expect_world(job, 3, world);
  const auto end = finish(job, {.may_end_in_error = true});
  expect_in(end.err, {"to form generation", "Too many open files", "localhost#1 gave up"});
}

// It hangs elsewhere when another dies, so that the next world waits for it.
TEST_F(EarlyEndTest, AWorkerThatNeverComesToTheNextWorldIsReplaced) {
  Process& job = start_training({"-np", "3", "--min-np", "2", "--stall-check-warning-time-seconds",
                                 "1", "--stall-check-shutdown-time-seconds", "2"});
  const auto world = expect_world(job, 3);
  order("localhost#1", "step", "stall");
  ASSERT_TRUE(eventually([&] { return was_obeyed("localhost#1", "step"); }));
  kill_rank(2);
  expect_world(job, 3, world);
  const auto end = finish(job);
  expect_in(end.err, {"localhost#1 did not come to generation 2 within 2 s"});
}

// ---- workers that take their time before hvd::init ----

TEST_F(EarlyEndTest, NightlySlowRanksAreWaitedForLongerThanTheStartTimeout) {
  const Words limits{"--start-timeout", "3", "--init-timeout", "20", "-np", "2"};
  for (const bool elastic : {false, true}) {
    Words words = limits;
    if (elastic) words.insert(words.end(), {"--min-np", "1"});
    const auto program =
        after(until_there(elastic ? "go-elastic" : "go"), 1, {binary("allreduce_once")});
    words.insert(words.end(), program.begin(), program.end());
    Process& job = start(words);
    EXPECT_TRUE(job.wait_for_error("has not called hvd::init for 5 s")) << job.err();
    directory_file(elastic ? "go-elastic" : "go");
    const auto end = job.wait();
    EXPECT_EQ(end.code, 0) << end.err;
    expect_in(end.err, {"rank 1 on localhost", "rank 0 waits for it there",
                        "at most 20 s (--init-timeout)", "s of processor time"});
  }
}

TEST_F(EarlyEndTest, AMemberThatNeverCallsInitIsReplacedAfterTheInitTimeout) {
  const std::string once = (directory() / "once").string();
  const auto program =
      after(cat("[ -e ", once, " ] || { touch ", once, "; exec sleep 3600; }"), 1,
            {binary("elastic_steps"), "--log", (directory() / "step_logs").string(), "--until",
             (directory() / "enough").string()});
  Words words{"--init-timeout", "2", "-np", "3", "--min-np", "2"};
  words.insert(words.end(), program.begin(), program.end());
  Process& job = start(words);
  expect_world(job, 3);
  const auto end = finish(job);
  expect_in(end.err, {"localhost#1 did not call hvd::init within 2 s (--init-timeout)"});
}

}  // namespace
}  // namespace hvd::test
