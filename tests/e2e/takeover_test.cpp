// hvdrun dies, and another one goes on with its job (--state).
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/descriptors.h"
#include "base/socket.h"
#include "base/text.h"
#include "rendezvous/access.h"
#include "tests/e2e/elastic_job.h"
#include "tests/support/free_address.h"

namespace hvd::test {
namespace {

class TakeoverTest : public AskedJobTest {
 protected:
  std::string state() const { return directory() / "state"; }
  std::string journal() const { return directory() / "state" / "journal.jsonl"; }
  // The same command line each time, as a loop has it.
  Process& start_driver(const Words& flags = {}) {
    Words words{"--state",  state(), "-H",  "localhost:3", "--min-np", "1",
                "--max-np", "3",     "-np", "3",           "--verbose"};
    words.insert(words.end(), flags.begin(), flags.end());
    return start_training(words);
  }
  std::set<pid_t> members() {
    step_logs().read();
    std::set<pid_t> pids;
    for (const StepLog* const member : step_logs().members()) pids.insert(member->pid);
    return pids;
  }
  std::size_t lines_of_journal() const {
    std::ifstream file(journal());
    std::string line;
    std::size_t count = 0;
    while (std::getline(file, line) && !file.eof()) ++count;
    return count;
  }
  // The job's driver dies when its journal has so many lines; the next one ends the job.
  void dies_at_line(std::size_t line) {
    Process& first = start_driver();
    const auto has_line = [&] { return lines_of_journal() >= line; };
    EXPECT_TRUE(eventually(has_line));
    crash(first);
    Process& second = start_driver();
    ASSERT_GT(step_logs().wait_for_world(3, 0), 0)
        << "line " << line << "\n"
        << first.err() << second.err() << read_file(journal());
    finish(second);
  }
};

TEST_F(TakeoverTest, ATrainingGoesOnWhileThereIsNoDriverAndUnderTheNextOne) {
  Process& first = start_driver();
  const auto world = step_logs().wait_for_world(3, 0);
  ASSERT_GT(world, 0) << first.err();
  const auto workers = members();
  crash(first);
  ASSERT_TRUE(step_logs().wait_for_steps_more(20)) << "a world that is whole needs no driver";

  Process& second = start_driver();
  ASSERT_TRUE(second.wait_for_error("goes on with job")) << second.err();
  ASSERT_TRUE(step_logs().wait_for_steps_more(20));
  EXPECT_EQ(members(), workers);
  EXPECT_EQ(step_logs().newest_world(), world);
  EXPECT_EQ(step_logs().steps_done_again(), 0);
  finish(second);
  EXPECT_FALSE(std::filesystem::exists(directory() / "state" / "job.json")) << "the job is over";
}

TEST_F(TakeoverTest, AWorkerThatDiesWhileThereIsNoDriverIsReplacedByTheNextOne) {
  Process& first = start_driver();
  const auto world = step_logs().wait_for_world(3, 0);
  ASSERT_GT(world, 0) << first.err();
  crash(first);
  kill_rank(1);
  Process& second = start_driver();
  const auto next = step_logs().wait_for_world(3, world);
  EXPECT_GT(next, world) << second.err() << step_logs().summary();
  finish(second);
}

TEST_F(TakeoverTest, OneDriverAfterTheOther) {
  Process* driver = &start_driver();
  std::int64_t world = step_logs().wait_for_world(3, 0);
  ASSERT_GT(world, 0) << driver->err();
  for (int i = 0; i < 4; ++i) {
    crash(*driver);
    driver = &start_driver();
    ASSERT_TRUE(driver->wait_for_error("goes on with job")) << driver->err();
    kill_rank(i % 3);
    world = step_logs().wait_for_world(3, world);
    ASSERT_GT(world, 0) << driver->err();
  }
  finish(*driver);
}

TEST_F(TakeoverTest, TheWorkMayBeDoneBeforeTheNextDriverComes) {
  Process& first = start_driver();
  ASSERT_GT(step_logs().wait_for_world(3, 0), 0) << first.err();
  crash(first);
  say_enough();
  ASSERT_TRUE(step_logs().wait([&] {
    const auto& logs = step_logs().step_logs();
    return std::all_of(logs.begin(), logs.end(), [](const StepLog& log) { return log.done != 0; });
  }));
  Process& second = start_driver();
  finish(second);
}

TEST_F(TakeoverTest, OfTwoDriversOneActsAndTheOtherMayStandBy) {
  Process& first = start_driver();
  ASSERT_GT(step_logs().wait_for_world(3, 0), 0) << first.err();
  Process& other = start_driver();
  EXPECT_EQ(other.wait().code, 1);
  EXPECT_NE(other.err().find("is in use: another hvdrun drives the job"), std::string::npos)
      << other.err();

  Process& standby = start_driver({"--standby"});
  ASSERT_TRUE(standby.wait_for_error("stands by")) << standby.err();
  crash(first);
  ASSERT_TRUE(standby.wait_for_error("goes on with job")) << standby.err();
  ASSERT_TRUE(step_logs().wait_for_steps_more(5));
  finish(standby);
}

TEST_F(TakeoverTest, WithoutANextDriverAllEnds) {
  Process& first = start_driver({"--hold", "0.5"});
  ASSERT_GT(step_logs().wait_for_world(3, 0), 0) << first.err();
  crash(first);
  EXPECT_TRUE(eventually([&] { return processes().empty(); }));
}

// The committed state has died with the workers.
TEST_F(TakeoverTest, ADriverThatComesTooLateSaysThatNoWorkerIsLeft) {
  Process& first = start_driver({"--hold", "0.5"});
  ASSERT_GT(step_logs().wait_for_world(3, 0), 0) << first.err();
  crash(first);
  ASSERT_TRUE(eventually([&] { return processes().empty(); }));
  Process& second = start_driver({"--hold", "0.5"});
  EXPECT_EQ(second.wait().code, 1);
  EXPECT_NE(second.err().find("had ended, with its workers, before this hvdrun came (--hold)"),
            std::string::npos)
      << second.err();
  EXPECT_NE(second.err().find("no worker of the world is left"), std::string::npos) << second.err();
}

TEST_F(TakeoverTest, FilesOfOutputAreGoneOnWith) {
  const auto script =
      directory_file("say.sh", cat("echo first; while [ ! -e ", (directory() / "go").string(),
                                   " ]; do sleep 0.02; done; echo second; touch ",
                                   (directory() / "said").string(), "; exec \"$@\"\n"));
  const Words words{"--state",
                    state(),
                    "-H",
                    "localhost:1",
                    "--min-np",
                    "1",
                    "--verbose",
                    "--output-filename",
                    directory() / "output",
                    "sh",
                    script,
                    "true"};
  Process& first = start(words);
  const std::string file = directory() / "output" / "localhost#0" / "stdout";
  ASSERT_TRUE(eventually([&] { return read_file(file) == "first\n"; })) << first.err();
  crash(first);  // and the agent holds the worker: it has closed the standard error
  directory_file("go");
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(directory() / "said"); }));
  Process& second = start(words);
  EXPECT_EQ(second.wait().code, 0) << second.err();
  EXPECT_EQ(read_file(file), "first\nsecond\n");
}

TEST_F(TakeoverTest, AnotherCommandIsRefused) {
  Process& first = start_driver();
  ASSERT_GT(step_logs().wait_for_world(3, 0), 0) << first.err();
  crash(first);
  const auto other = run_job({"--state", state(), "-H", "localhost:3", "--min-np", "1", "true"});
  EXPECT_EQ(other.code, 1);
  EXPECT_NE(other.err.find("go on with the same command line there"), std::string::npos)
      << other.err;
  Process& second = start_driver();
  ASSERT_TRUE(second.wait_for_error("goes on with job")) << second.err();
  finish(second);
}

TEST_F(TakeoverTest, AJobThatIsToldToStopEndsUnderItsSecondDriver) {
  Process& first = start_driver();
  ASSERT_GT(step_logs().wait_for_world(3, 0), 0) << first.err();
  crash(first);
  Process& second = start_driver();
  ASSERT_TRUE(second.wait_for_error("goes on with job")) << second.err();
  second.signal(SIGINT);
  EXPECT_EQ(second.wait().code, 130) << second.err();
  expect_nobody_left("the job");
}

TEST_F(TakeoverTest, ADamagedJournalIsNamedWithItsLine) {
  Process& first = start_driver({"--hold", "1"});
  ASSERT_GT(step_logs().wait_for_world(3, 0), 0) << first.err();
  crash(first);
  std::string text = read_file(journal());
  text.replace(text.find('\n', text.find('\n') + 1) + 1, 1, "?");
  std::ofstream(journal(), std::ios::trunc) << text;
  Process& second = start_driver();
  EXPECT_EQ(second.wait().code, 1);
  EXPECT_NE(second.err().find("journal.jsonl: line 3: it is not a JSON object"), std::string::npos)
      << second.err();
  EXPECT_TRUE(eventually([&] { return processes().empty(); }));
}

TEST_F(TakeoverTest, TheDriverMayDieWhileTheJobStarts) {
  for (const std::size_t line : {1U, 3U, 6U, 10U}) {
    dies_at_line(line);
    std::filesystem::remove(directory() / "enough");
    std::filesystem::remove_all(directory() / "step_logs");
    step_logs() = StepLogs({directory() / "step_logs"});
    std::filesystem::create_directories(directory() / "orders");
  }
}

using NightlyTakeoverTest = TakeoverTest;
TEST_F(NightlyTakeoverTest, TheDriverMayDieAtEachLineOfItsJournal) {
  const auto begin_anew = [&] {
    std::filesystem::remove(directory() / "enough");
    std::filesystem::remove_all(directory() / "step_logs");
    step_logs() = StepLogs({directory() / "step_logs"});
  };
  Process& undisturbed = start_driver();
  ASSERT_GT(step_logs().wait_for_world(3, 0), 0);
  // A job in which nothing happens adds no line.
  const std::size_t lines = lines_of_journal();
  finish(undisturbed);
  begin_anew();
  for (std::size_t line = 1; line <= lines; ++line) {
    SCOPED_TRACE(line);
    dies_at_line(line);
    begin_anew();
  }
}

// Agents that have joined by themselves, and join the next driver.
class JoinedTakeoverTest : public TakeoverTest {
 protected:
  Process& start_joinable_driver(const Words& flags = {}) {
    Words words{"--state", state(),    "--join-bind", where_,     "--token-file",
                token(),   "--min-np", "1",           "--verbose"};
    words.insert(words.end(), flags.begin(), flags.end());
    return start_training(words);
  }
  Process& start_agent(const std::string& host, int slots, const std::string& token_file = {}) {
    return start({"agent", "--join", cat("tls://", first_, ",tls://", second_), "--token-file",
                  token_file.empty() ? token() : token_file, "--host", host, "--slots",
                  std::to_string(slots)});
  }
  // The file with a new join token.
  std::string make_token(const std::string& name, const Words& terms) {
    const std::string file = directory() / name;
    Words words{"token", "new", "--file", file};
    words.insert(words.end(), terms.begin(), terms.end());
    const ExitStatus made = run_job(words);
    EXPECT_EQ(made.code, 0) << made.err;
    return file;
  }
  void expect_refused(const std::string& host, const std::string& token_file,
                      const std::string& why) {
    Process& newcomer = start_agent(host, 1, token_file);
    EXPECT_EQ(newcomer.wait().code, 1);
    EXPECT_NE(newcomer.err().find(why), std::string::npos) << newcomer.err();
  }
  std::string token() const { return directory() / "token"; }
  Process* newest_ = nullptr;  // driver

 private:
  // Agents know two addresses.
  const std::string first_ = free_address().to_string();
  const std::string second_ = free_address().to_string();

 protected:
  // From the next driver on.
  void move() { where_ = second_; }
  // Where workers meet, for as long as this is kept: no driver can listen there.
  std::vector<UniqueFd> take_rendezvous() const {
    std::vector<UniqueFd> taken;
    const std::string text = read_file(journal());
    const std::string field = "\"rendezvous\":\"";
    for (auto at = text.find(field); at != std::string::npos; at = text.find(field, at + 1)) {
      const auto begin = at + field.size();
      const auto where =
          rendezvous::parse_bind_address(text.substr(begin, text.find('"', begin) - begin));
      EXPECT_TRUE(where.ok()) << where.status().to_string();
      if (auto listener = listen_tcp(*where)) taken.push_back(std::move(*listener));
    }
    return taken;
  }

 private:
  std::string where_ = first_;
};

TEST_F(JoinedTakeoverTest, TheNextDriverMayBeAtOtherAddresses) {
  Process& first = start_joinable_driver();
  Process& a = start_agent("a", 1);
  Process& b = start_agent("b", 2);
  auto world = step_logs().wait_for_world(3, 0);
  ASSERT_GT(world, 0) << first.err() << a.err() << b.err();
  auto workers = members();
  crash(first);
  const auto taken = take_rendezvous();
  ASSERT_FALSE(taken.empty()) << read_file(journal());
  move();
  Process& second = start_joinable_driver();
  ASSERT_TRUE(second.wait_for_error("elsewhere than the hvdrun before has told them"))
      << second.err();
  ASSERT_TRUE(second.wait_for_error("host a has joined again")) << second.err() << a.err();
  ASSERT_TRUE(second.wait_for_error("host b has joined again")) << second.err() << b.err();
  ASSERT_TRUE(step_logs().wait_for_steps_more(10)) << second.err();
  EXPECT_EQ(members(), workers) << second.err();
  EXPECT_EQ(step_logs().newest_world(), world) << second.err();

  // Worlds form there, of workers that have moved, and of new ones.
  kill_rank(1);
  world = step_logs().wait_for_world(3, world);
  ASSERT_GT(world, 0) << second.err();
  workers = members();
  // The driver after that knows where they are now.
  crash(second);
  Process& third = start_joinable_driver();
  ASSERT_TRUE(third.wait_for_error("host b has joined again")) << third.err() << b.err();
  ASSERT_TRUE(step_logs().wait_for_steps_more(10)) << third.err();
  EXPECT_EQ(third.err().find("elsewhere"), std::string::npos) << third.err();
  EXPECT_EQ(members(), workers) << third.err();
  kill_rank(0);
  EXPECT_GT(step_logs().wait_for_world(3, world), world) << third.err();
  finish(third);
}

// As where a machine of shared storage stood still, and its lock went over to another one.
TEST_F(JoinedTakeoverTest, ADriverThatStoodStillMakesWay) {
  const Words flags{"--heartbeat-timeout", "2"};
  Process& first = start_joinable_driver(flags);
  Process& a = start_agent("a", 2);
  const auto world = step_logs().wait_for_world(2, 0);
  ASSERT_GT(world, 0) << first.err() << a.err();
  const auto workers = members();
  first.signal(SIGSTOP);
  // Other files under their names are not locked.
  std::filesystem::remove(directory() / "state" / "lock");
  std::filesystem::copy_file(journal(), journal() + ".copy");
  std::filesystem::rename(journal() + ".copy", journal());
  take_rendezvous();  // of which none can be had
  move();
  Process& second = start_joinable_driver(flags);
  ASSERT_TRUE(second.wait_for_error("host a has joined again")) << second.err() << a.err();
  ASSERT_TRUE(step_logs().wait_for_steps_more(10)) << second.err();
  first.signal(SIGCONT);
  EXPECT_EQ(first.wait().code, 1);
  EXPECT_NE(first.err().find("another hvdrun has taken the job over"), std::string::npos)
      << first.err();
  ASSERT_TRUE(step_logs().wait_for_steps_more(10)) << second.err();
  EXPECT_EQ(members(), workers) << second.err();
  EXPECT_TRUE(std::filesystem::exists(directory() / "state" / "job.json"));
  crash(second);
  Process& third = start_joinable_driver(flags);
  ASSERT_TRUE(third.wait_for_error("host a has joined again")) << third.err() << a.err();
  EXPECT_EQ(members(), workers);
  finish(third);
}

TEST_F(JoinedTakeoverTest, AgentsJoinTheNextDriverWithTheirWorkers) {
  Process& first = start_joinable_driver();
  Process& a = start_agent("a", 1);
  Process& b = start_agent("b", 2);
  auto world = step_logs().wait_for_world(3, 0);
  ASSERT_GT(world, 0) << first.err() << a.err() << b.err();
  for (int driver = 2; driver < 5; ++driver) {
    const auto workers = members();
    crash(driver == 2 ? first : *newest_);
    ASSERT_TRUE(step_logs().wait_for_steps_more(10)) << a.err();
    newest_ = &start_joinable_driver();
    ASSERT_TRUE(newest_->wait_for_error("goes on with job")) << newest_->err();
    ASSERT_TRUE(newest_->wait_for_error("host a has joined again")) << newest_->err() << a.err();
    ASSERT_TRUE(newest_->wait_for_error("host b has joined again")) << newest_->err() << b.err();
    ASSERT_TRUE(step_logs().wait_for_steps_more(10)) << newest_->err();
    EXPECT_EQ(members(), workers) << newest_->err();
    EXPECT_EQ(step_logs().newest_world(), world) << newest_->err();
  }
  // The world still changes.
  start_agent("c", 1);
  EXPECT_GT(step_logs().wait_for_world(4, world), world) << newest_->err();
  finish(*newest_);
  EXPECT_EQ(a.wait().code, 0) << a.err();
  EXPECT_EQ(b.wait().code, 0) << b.err();
}

// Tokens that let in one agent each, of which one is revoked and one expires when it has done so.
TEST_F(JoinedTakeoverTest, AgentsThatHaveJoinedByTokensOfTheirOwnJoinTheNextDriverAndNobodyElse) {
  Process& first = start_joinable_driver({"--max-np", "2"});
  ASSERT_TRUE(first.wait_for_error("agents may join at")) << first.err();
  const std::string of_a = make_token("of_a", {"--uses", "1"});
  Process& a = start_agent("a", 1, of_a);
  ASSERT_TRUE(first.wait_for_error("host a has joined")) << first.err() << a.err();
  const std::string of_b = make_token("of_b", {"--uses", "0", "--host", "b"});
  Process& b = start_agent("b", 1, of_b);
  const auto world = step_logs().wait_for_world(2, 0);
  ASSERT_GT(world, 0) << first.err() << b.err();
  // A host that has no place in the world comes again as well.
  const std::string of_c = make_token("of_c", {"--expires", "3s"});
  Process& c = start_agent("c", 1, of_c);
  ASSERT_TRUE(first.wait_for_error("host c has joined")) << first.err() << c.err();
  EXPECT_EQ(run_job({"token", "revoke", "2"}).code, 0);
  const std::string unused = make_token("unused", {"--expires", "0"});

  const auto workers = members();
  crash(first);
  ASSERT_TRUE(a.wait_for_error("run on for")) << a.err();
  Process& second = start_joinable_driver({"--max-np", "2"});
  ASSERT_TRUE(second.wait_for_error("host a has joined again")) << second.err() << a.err();
  ASSERT_TRUE(second.wait_for_error("host b has joined again")) << second.err() << b.err();
  ASSERT_TRUE(second.wait_for_error("host c has joined")) << second.err() << c.err();
  ASSERT_TRUE(step_logs().wait_for_steps_more(10)) << second.err();
  EXPECT_EQ(members(), workers) << second.err();
  EXPECT_EQ(step_logs().newest_world(), world) << second.err();

  ASSERT_TRUE(eventually([&] {
    return run_job({"token", "list"}).out.find("3  expired  1 of 1 use") != std::string::npos;
  })) << run_job({"token", "list"}).out;
  expect_refused("d", of_a, "join token 1 is used up: it has let 1 agent join");
  expect_refused("b2", of_b, "join token 2 was revoked");
  expect_refused("d", of_c, "join token 3 has expired");
  start_agent("d", 1, unused);
  ASSERT_TRUE(second.wait_for_error("host d has joined")) << second.err();
  finish(second);
  EXPECT_EQ(a.wait().code, 0) << a.err();
  EXPECT_EQ(b.wait().code, 0) << b.err();
  EXPECT_FALSE(std::filesystem::exists(directory() / "state" / "join_tokens.json"));
}

TEST_F(JoinedTakeoverTest, AnAgentThatIsKilledWhileThereIsNoDriverIsMissed) {
  Process& first = start_joinable_driver({"--start-timeout", "3"});
  Process& a = start_agent("a", 1);
  Process& b = start_agent("b", 1);
  const auto world = step_logs().wait_for_world(2, 0);
  ASSERT_GT(world, 0) << first.err();
  crash(first);
  ASSERT_TRUE(b.wait_for_error("run on for")) << b.err();
  crash(b);
  Process& second = start_joinable_driver({"--start-timeout", "3"});
  EXPECT_GT(step_logs().wait_for_world(1, world), world) << second.err() << a.err();
  finish(second);
  EXPECT_EQ(a.wait().code, 0) << a.err();
}

TEST_F(JoinedTakeoverTest, AnAgentThatIsToldToEndWhileThereIsNoDriverStopsItsWorkers) {
  Process& first = start_joinable_driver();
  Process& a = start_agent("a", 2);
  ASSERT_GT(step_logs().wait_for_world(2, 0), 0) << first.err();
  crash(first);
  ASSERT_TRUE(a.wait_for_error("run on for")) << a.err();
  a.signal(SIGTERM);
  EXPECT_EQ(a.wait().code, 143) << a.err();
  EXPECT_TRUE(eventually([&] { return processes().empty(); }));
}

TEST_F(TakeoverTest, FlagsThatNeedEachOtherAreNamed) {
  const auto alone = run_job({"--hold", "5", "-H", "localhost:1", "--min-np", "1", "true"});
  EXPECT_EQ(alone.code, 1);
  EXPECT_NE(alone.err.find("--hold: it has no effect without --state"), std::string::npos)
      << alone.err;
  const auto fixed = run_job({"--state", state(), "-np", "1", "true"});
  EXPECT_EQ(fixed.code, 1);
  EXPECT_NE(fixed.err.find("only an elastic job can be gone on with"), std::string::npos)
      << fixed.err;
}

}  // namespace
}  // namespace hvd::test
