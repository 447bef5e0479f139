// Hosts that are about to be taken away, as --notice-command says (docs/elastic.md), and what a
// program does then (State::on_notice).
#include <csignal>
#include <filesystem>
#include <string>

#include "base/text.h"
#include "tests/e2e/elastic_job.h"

namespace hvd::test {
namespace {

constexpr int kSuspended = 75;

class NoticeTest : public ElasticJobTest {
 protected:
  // On two hosts of this machine. A host has a notice when its file is there.
  Process& train(const Words& flags, const Words& program_flags = {}) {
    Words words{"-H",
                "localhost:2,127.0.0.1:2",
                "--min-np",
                "1",
                "--notice-command",
                cat("f=", (directory() / "notice-").string(),
                    "$HVD_HOSTNAME; while ! [ -e $f ]; do sleep 0.02; done; cat $f"),
                "--events",
                events()};
    words.insert(words.end(), flags.begin(), flags.end());
    return start_training(words, program_flags);
  }
  std::string events() const { return directory() / "events.jsonl"; }
  void notify(const std::string& host, const std::string& seconds) {
    const std::string made = directory_file("made-notice", seconds + "\n");
    std::filesystem::rename(made, directory() / ("notice-" + host));
  }
  void take_notices_back() {
    for (const char* const host : {"localhost", "127.0.0.1"}) {
      std::filesystem::remove(directory() / (std::string("notice-") + host));
    }
  }
  static void expect_said(Process& job, const std::string& text) {
    EXPECT_TRUE(job.wait_for_error(text)) << text << "\n" << job.err();
  }
};

TEST_F(NoticeTest, TheWorkersOfAHostLeaveAtACommitAndTheOthersGoOn) {
  Process& job = train({});
  const auto world = step_logs().wait_for_world(4, 0);
  ASSERT_GT(world, 0) << job.err();
  notify("127.0.0.1", "60");
  expect_said(job,
              "host 127.0.0.1 has a notice: it is about to be taken away, in 60 s; its workers "
              "leave at the next commit");
  EXPECT_GT(step_logs().wait_for_world(2, world), world) << job.err();
  ASSERT_TRUE(step_logs().wait_for_steps_more(5)) << job.err();
  finish(job);
  EXPECT_EQ(step_logs().steps_done_again(), 0);
  const std::string told = read_file(events());
  EXPECT_NE(told.find(R"("is_notice":true,"left":60000)"), std::string::npos) << told;
}

TEST_F(NoticeTest, ForAllHostsSuspendsAJobThatHasAStateFile) {
  const std::string state = directory() / "state";
  order("localhost#0", "notice", "hold");
  order("127.0.0.1#1", "notice", "hold");
  Process& first = train({"--state-file", state});
  ASSERT_GT(step_logs().wait_for_world(4, 0), 0) << first.err();
  ASSERT_TRUE(step_logs().wait_for_step(20)) << first.err();
  notify("127.0.0.1", "60");
  notify("localhost", "50");
  expect_said(first, "all workers were told to go: the job ends at its next commit");
  // Programs have something to write, one of them perhaps at an earlier commit.
  EXPECT_TRUE(eventually(
      [&] { return was_obeyed("localhost#0", "notice") && was_obeyed("127.0.0.1#1", "notice"); }));
  EXPECT_TRUE(std::filesystem::exists(state)) << "it is kept before the program is asked";
  directory_file("orders/go");
  const ExitStatus end = first.wait();
  EXPECT_EQ(end.code, kSuspended) << end.err;
  expect_nobody_left("the suspended job");

  take_notices_back();
  Process& second = train({"--state-file", state});
  ASSERT_TRUE(step_logs().wait_for_steps_more(10)) << second.err();
  finish(second);
  EXPECT_EQ(step_logs().steps_done_again(), 0);
}

TEST_F(NoticeTest, OfOneSecondIsWaitedForNoLonger) {
  Process& job = train({"--leave-grace", "300", "--grace", "0.2"});
  const auto world = step_logs().wait_for_world(4, 0);
  ASSERT_GT(world, 0) << job.err();
  order("127.0.0.1#0", "step", "stall");
  ASSERT_TRUE(eventually([&] { return was_obeyed("127.0.0.1#0", "step"); }));
  notify("127.0.0.1", "1");
  expect_said(job, "127.0.0.1#0 came to no commit before its host was taken away");
  EXPECT_GT(step_logs().wait_for_world(2, world), world) << job.err();
  finish(job);
}

TEST_F(NoticeTest, TheProgramIsAskedOnceInTheWorkersThatLeaveAndTheOthersTrainOn) {
  Process& job = train({});
  const auto world = step_logs().wait_for_world(4, 0);
  ASSERT_GT(world, 0) << job.err();
  order("127.0.0.1#0", "notice", "hold");
  order("localhost#0", "notice", "exit 3");
  notify("127.0.0.1", "");
  EXPECT_TRUE(eventually([&] { return was_obeyed("127.0.0.1#0", "notice"); })) << job.err();
  EXPECT_GT(step_logs().wait_for_world(2, world), world) << job.err();
  ASSERT_TRUE(step_logs().wait_for_steps_more(20)) << "nobody waits for its checkpoint";
  directory_file("orders/go");
  finish(job);
  EXPECT_FALSE(was_obeyed("localhost#0", "notice")) << "it stayed";
  EXPECT_EQ(step_logs().steps_done_again(), 0);
}

TEST_F(NoticeTest, ACommandThatFailsIsToldOfOnceAndTheJobGoesOn) {
  Process& job = start_training({"-np", "2", "--min-np", "1", "--notice-command",
                                 "echo there is no metadata service >&2; exit 4"});
  expect_said(job, "exited with code 4: there is no metadata service; it is run again every 5 s");
  ASSERT_GT(step_logs().wait_for_world(2, 0), 0) << job.err();
  finish(job);
}

}  // namespace
}  // namespace hvd::test
