// The table of the workers' activity.
#include "driver/output/activity_report.h"

#include <gtest/gtest.h>

namespace hvd::driver {
namespace {

using agent_link::WorkerActivity;

TEST(ActivityTable, HasOneLineForEachWorkerInTheOrderOfRanks) {
  EXPECT_EQ(
      activity_table({{-1, "b", 0, 0, "no hvd::init() yet; its process sleeps", ""},
                      {10, "b", 1, 4321, "nothing", "allreduce \"a\", done 1.0 s ago"},
                      {2, "a", 0, 17, "allreduce \"b\" waits", "nothing"}}),
      "  rank  worker  pid   in flight                               ended last\n"
      "  2     a#0     17    allreduce \"b\" waits                     nothing\n"
      "  10    b#1     4321  nothing                                 allreduce \"a\", done 1.0 s "
      "ago\n"
      "  -     b#0     -     no hvd::init() yet; its process sleeps\n");
}

TEST(ActivityTable, ShowsNothingThatATerminalWouldObey) {
  const auto table =
      activity_table({{0, "a", 0, 1, "\x1b[2Jallreduce\n", std::string(10'000, 'x')}});
  EXPECT_NE(table.find("\\x1b[2Jallreduce\\n  "), std::string::npos) << table;
  EXPECT_LT(table.size(), 800U);
}

TEST(ActivityText, SaysWhyAWorkerDoesNotAnswer) {
  EXPECT_EQ(in_flight_text(WorkerActivity{1, 2, 1, 'S', true, true, "all", "x"}), "all");
  EXPECT_EQ(in_flight_text(WorkerActivity{1, 2, 1, 'T', true, false, "", ""}),
            "no answer; its process is stopped");
  EXPECT_EQ(in_flight_text(WorkerActivity{1, 2, 1, 't', true, false, "", ""}),
            "no answer; its process is held by a debugger");
  EXPECT_EQ(in_flight_text(WorkerActivity{1, 2, 1, 'R', false, false, "", ""}),
            "no hvd::init() yet; its process runs");
  EXPECT_EQ(in_flight_text(WorkerActivity{1, 2, 1, 0, false, false, "", ""}),
            "no hvd::init() yet; its process has not started its program");
}

class Asked : public testing::Test {
 protected:
  Asked() {
    workers_[7] = {0, "a", 0, 70, "", ""};
    workers_[8] = {1, "a", 1, 80, "", ""};
  }
  // Returns when a table was reported, or when nothing is pending any more.
  void run() { io_.run(); }
  WorkerActivity answer(std::uint32_t id, std::uint64_t incarnation) {
    return {id, 1, incarnation, 'S', true, true, "nothing", "nothing", {}};
  }

  boost::asio::io_context io_;
  std::vector<agent_link::AskActivity> questions_;
  std::vector<std::string> told_;
  std::map<std::uint64_t, ActivityRow> workers_;
  ActivityReport report_{
      io_,
      {[this](const agent_link::AskActivity& question) { questions_.push_back(question); },
       [this] { return workers_; }, [this](std::string_view text) { told_.emplace_back(text); }}};
};

TEST_F(Asked, TellsAsSoonAsAllHaveAnswered) {
  report_.request();
  report_.request();  // under way
  ASSERT_EQ(questions_.size(), 1U);
  report_.answered(answer(questions_[0].id, 7));
  report_.answered(answer(questions_[0].id + 1, 8));  // of another question
  EXPECT_TRUE(told_.empty());
  report_.answered(answer(questions_[0].id, 8));
  ASSERT_EQ(told_.size(), 1U);
  EXPECT_TRUE(told_[0].starts_with("what the 2 workers do:\n")) << told_[0];
}

TEST_F(Asked, AnAgentThatDoesNotAnswerHoldsUpTheTableForAWhileOnly) {
  report_.request();
  report_.answered(answer(questions_[0].id, 7));
  run();
  ASSERT_EQ(told_.size(), 1U);
  EXPECT_NE(told_[0].find("(1 did not answer)"), std::string::npos) << told_[0];
  EXPECT_NE(told_[0].find("no answer from the agent of its host"), std::string::npos) << told_[0];
}

TEST_F(Asked, ManyWorkersThatGotTheSignalMakeOneTable) {
  workers_.erase(8);
  for (int worker = 0; worker < 5; ++worker) {
    report_.request_from_worker();
    report_.answered(answer(questions_.back().id, 7));
  }
  EXPECT_EQ(told_.size(), 1U);
  report_.request();  // hvdrun itself is asked
  report_.answered(answer(questions_.back().id, 7));
  EXPECT_EQ(told_.size(), 2U);
}

TEST_F(Asked, WithoutWorkersThereIsNothingToAsk) {
  workers_.clear();
  report_.request();
  EXPECT_TRUE(questions_.empty());
  EXPECT_EQ(told_, std::vector<std::string>{"no worker is running"});
}

}  // namespace
}  // namespace hvd::driver
