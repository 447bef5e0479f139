// Elastic jobs whose agents join by themselves: they come, leave, are killed, frozen and cut off,
// and come again, while elastic_steps trains. Each agent is a real `hvdrun agent`, under a name of
// its own, on this machine.
#include <csignal>
#include <filesystem>
#include <map>
#include <thread>

#include "base/text.h"
#include "tests/e2e/elastic_job.h"
#include "tests/support/free_address.h"

namespace hvd::test {
namespace {

class JoiningAgentsTest : public AskedJobTest {
 protected:
  Words joining(const Words& flags) const {
    Words words{"--join-bind", where_, "--token-file", token()};
    words.insert(words.end(), flags.begin(), flags.end());
    return words;
  }
  // A flag that is given again counts as it is given last.
  Process& start_agent(const std::string& host, int slots, const Words& flags = {}) {
    Words words{"agent",  "--join", "tls://" + where_, "--token-file",       token(),
                "--host", host,     "--slots",         std::to_string(slots)};
    words.insert(words.end(), flags.begin(), flags.end());
    return start(words);
  }
  // The file with a new join token.
  std::string make_token(const std::string& name, const Words& terms) {
    const std::string file = directory() / name;
    Words words{"token", "new", "--file", file};
    words.insert(words.end(), terms.begin(), terms.end());
    const ExitStatus made = run_job(words);
    EXPECT_EQ(made.code, 0) << made.err;
    EXPECT_EQ(made.out.find("hvd-join-"), std::string::npos) << "it is in the file alone";
    return file;
  }
  void expect_refused(const std::string& host, const std::string& token_file,
                      const std::string& why) {
    Process& agent = start_agent(host, 1, {"--token-file", token_file});
    EXPECT_EQ(agent.wait().code, 1);
    EXPECT_NE(agent.err().find(why), std::string::npos) << agent.err();
    EXPECT_EQ(agent.err().find("trying again"), std::string::npos) << agent.err();
  }
  // A world of so many, newer than that; its number.
  std::int64_t expect_world(Process& job, std::size_t size, std::int64_t after = 0) {
    const auto world = step_logs().wait_for_world(static_cast<int>(size), after);
    EXPECT_GT(world, after) << "no world of " << size << "\n" << step_logs().summary() << job.err();
    return world;
  }
  // Beside localhost, which these flags name.
  void expect_others_join(const Words& named) {
    Words flags{"--min-np", "1", "--max-np", "2"};
    flags.insert(flags.end(), named.begin(), named.end());
    Process& job = start_training(joining(flags));
    const auto first = expect_world(job, 1);
    Process& stranger = start_agent("localhost", 1);
    EXPECT_EQ(stranger.wait().code, 1);
    EXPECT_NE(stranger.err().find("the job reaches a host localhost by itself"), std::string::npos)
        << stranger.err();
    start_agent("b", 1);
    expect_world(job, 2, first);
    finish(job);
  }
  std::string token() const { return directory() / "token"; }
  const std::string& where() const { return where_; }

 private:
  const std::string where_ = free_address().to_string();
};

TEST_F(JoiningAgentsTest, TheWorldGrowsWithAgentsThatJoinAndShrinksWithAgentsThatLeave) {
  // An agent may be there before hvdrun is.
  Process& a = start_agent("a", 1);
  ASSERT_TRUE(a.wait_for_error("trying again")) << a.err();
  Process& job = start_training(joining({"--min-np", "1"}));
  const auto first = expect_world(job, 1);
  Process& b = start_agent("b", 2);
  const auto second = expect_world(job, 3, first);

  b.signal(SIGTERM);
  const auto third = expect_world(job, 1, second);
  EXPECT_EQ(b.wait().code, 0) << b.err();

  start_agent("b", 1);
  expect_world(job, 2, third);
  finish(job);
  EXPECT_EQ(a.wait().code, 0) << a.err();
}

// A token for one host and one agent, one whose time is over, one that was revoked, and the one in
// its place; and none of them says more than it has to.
TEST_F(JoiningAgentsTest, AJoinTokenLetsInWhomItIsForAsLongAsItHolds) {
  Process& job = start_training(joining({"--min-np", "1"}));
  start_agent("a", 1);
  const auto first = expect_world(job, 1);

  const auto once = make_token("once", {"--host", "b"});
  EXPECT_EQ(std::filesystem::status(once).permissions(), std::filesystem::perms{0600});
  expect_refused("c", once, "join token 1 is for host b, and this is host c");
  start_agent("b", 1, {"--token-file", once});
  const auto second = expect_world(job, 2, first);
  expect_refused("b", once, "join token 1 is used up: it has let 1 agent join");

  const auto brief = make_token("brief", {"--expires", "1s"});
  EXPECT_TRUE(eventually([&] {
    return run_job({"token", "list"}).out.find("2  expired  0 of 1 use") != std::string::npos;
  }));
  expect_refused("c", brief, "join token 2 has expired");

  const auto old = make_token("old", {"--expires", "0", "--uses", "0"});
  const ExitStatus rotated = run_job({"token", "rotate", "3"});
  EXPECT_TRUE(rotated.out.starts_with("hvd-join-4-")) << rotated.out << rotated.err;
  expect_refused("c", old, "join token 3 was revoked");
  const auto fresh = directory_file("fresh", rotated.out);
  std::filesystem::permissions(fresh, std::filesystem::perms{0600});
  start_agent("c", 1, {"--token-file", fresh});
  expect_world(job, 3, second);

  const ExitStatus revoked = run_job({"token", "revoke", "4"});
  EXPECT_NE(revoked.out.find("nobody joins by token 4 any more"), std::string::npos)
      << revoked.out << revoked.err;
  const ExitStatus unknown = run_job({"token", "revoke", "5"});
  EXPECT_EQ(unknown.code, 1);
  EXPECT_NE(unknown.err.find("there is no join token \"5\""), std::string::npos) << unknown.err;
  const auto list = run_job({"token", "list"}).out;
  EXPECT_NE(list.find("1  used up  1 of 1 use, host b"), std::string::npos) << list;
  EXPECT_NE(list.find("4  revoked  1 use"), std::string::npos) << list;

  // It opens nothing in another job.
  finish(job);
  Process& other = start(joining({"-H", "a:1", "--start-timeout", "60", "true"}));
  ASSERT_TRUE(other.wait_for_error("to join")) << other.err();
  expect_refused("a", fresh, "join token 4 may be of another job, or of an earlier run");
  start_agent("a", 1);
  EXPECT_EQ(other.wait().code, 0) << other.err();
}

TEST_F(JoiningAgentsTest, AJobThatAgentsDoNotJoinWhileItRunsHasNoJoinTokens) {
  Process& job = start_training({"-np", "1"});
  ASSERT_GT(step_logs().wait_for_world(1, 0), 0) << job.err();
  const ExitStatus asked = run_job({"token", "new"});
  EXPECT_EQ(asked.code, 1);
  EXPECT_NE(asked.err.find("agents cannot join it while it runs"), std::string::npos) << asked.err;
  finish(job);
}

// It comes while hvdrun is stopped, for longer than it would be waited for.
TEST_F(JoiningAgentsTest, AHoldUpOfHvdrunCostsNoAgentItsPlace) {
  Process& job = start(joining({"-H", "a:1", "--start-timeout", "5", "true"}));
  ASSERT_TRUE(job.wait_for_error("to join")) << job.err();
  job.signal(SIGSTOP);
  std::this_thread::sleep_for(std::chrono::seconds(3));
  start_agent("a", 1);
  std::this_thread::sleep_for(std::chrono::seconds(4));
  job.signal(SIGCONT);
  EXPECT_EQ(job.wait().code, 0) << job.err();
}

TEST_F(JoiningAgentsTest, AHostThatIsKilledIsLostAndComesAgain) {
  Process& job =
      start_training(joining({"--min-np", "1", "--blacklist-cooldown-range", "0.1", "1"}));
  start_agent("a", 1);
  Process& b = start_agent("b", 1);
  const auto first = expect_world(job, 2);
  crash(b);
  const auto second = expect_world(job, 1, first);
  start_agent("b", 1);
  expect_world(job, 2, second);
  finish(job);
}

TEST_F(JoiningAgentsTest, AKilledWorkerIsReplacedOnItsHost) {
  Process& job = start_training(joining({"--min-np", "2", "--max-np", "2"}));
  start_agent("a", 1);
  start_agent("b", 1);
  const auto first = expect_world(job, 2);
  kill_rank(1);
  expect_world(job, 2, first);
  finish(job);
}

// It is silent, as a host that is cut off is.
TEST_F(JoiningAgentsTest, AFrozenHostIsLostAndMayJoinUnderItsNameAgain) {
  Process& job = start_training(joining(
      {"--min-np", "1", "--heartbeat-timeout", "1", "--blacklist-cooldown-range", "0.1", "1"}));
  start_agent("a", 1);
  Process& b = start_agent("b", 1);
  const auto first = expect_world(job, 2);
  b.signal(SIGSTOP);
  const auto second = expect_world(job, 1, first);
  start_agent("b", 1);
  expect_world(job, 2, second);
  b.signal(SIGCONT);
  EXPECT_NE(b.wait().code, 0);
  // Which of them it is depends on whether the agent gave up on hvdrun meanwhile, and on whether
  // the newer one of the host came before that.
  EXPECT_TRUE(b.err().find("was lost") != std::string::npos ||
              b.err().find("nothing was heard from hvdrun") != std::string::npos ||
              b.err().find("a newer agent of this job is on") != std::string::npos)
      << b.err();
  finish(job);
}

TEST_F(JoiningAgentsTest, TheJobWaitsForItsLeastAndSaysSo) {
  Process& job = start_training(joining({"--min-np", "2"}));
  ASSERT_TRUE(job.wait_for_error("agents may join at " + where())) << job.err();
  start_agent("a", 1);
  ASSERT_TRUE(job.wait_for_error("host a has joined with 1 slot")) << job.err();
  start_agent("b", 1);
  expect_world(job, 2);
  finish(job);
}

TEST_F(JoiningAgentsTest, NamedHostsAreReachedAndOthersJoin) {
  expect_others_join({"-H", "localhost:1"});
}

TEST_F(JoiningAgentsTest, DiscoveredHostsAreReachedAndOthersJoin) {
  expect_others_join({"--host-discovery-script", discovery_script("localhost:1")});
}

TEST_F(JoiningAgentsTest, TwoOfOneNameAreOneAfterTheOther) {
  Process& job = start_training(joining({"--min-np", "1"}));
  Process& first = start_agent("a", 1);
  const auto world = expect_world(job, 1);
  Process& second = start_agent("a", 1);
  ASSERT_TRUE(second.wait_for_error("a host a has joined already")) << second.err();
  Process& other = start_agent("b", 1);
  const auto both = expect_world(job, 2, world);
  first.signal(SIGTERM);
  EXPECT_EQ(first.wait().code, 0) << first.err();
  // It still tries, and takes the place.
  ASSERT_TRUE(second.wait_for_error("joined the job")) << second.err();
  expect_world(job, 2, both);
  finish(job);
  EXPECT_EQ(second.wait().code, 0) << second.err();
  EXPECT_EQ(other.wait().code, 0) << other.err();
}

TEST_F(JoiningAgentsTest, MoreThanTheMostWaitForAPlace) {
  Process& job = start_training(joining({"--min-np", "1", "--max-np", "1"}));
  Process& a = start_agent("a", 1);
  const auto first = expect_world(job, 1);
  Process& b = start_agent("b", 1);
  ASSERT_TRUE(job.wait_for_error("host b has joined")) << job.err();
  a.signal(SIGTERM);
  expect_world(job, 1, first);
  EXPECT_EQ(a.wait().code, 0) << a.err();
  finish(job);
  EXPECT_EQ(b.wait().code, 0) << b.err();
}

// Its host rests, so the job sends it nothing before the end.
TEST_F(JoiningAgentsTest, AnAgentThatNeverHasItsTurnEndsWithTheJob) {
  Process& job = start_training(joining(
      {"--min-np", "1", "--failure-policy", "host", "--blacklist-cooldown-range", "1000", "1000"}));
  Process& a = start_agent("a", 1);
  Process& b = start_agent("b", 1);
  const auto first = expect_world(job, 2);
  crash(b);
  expect_world(job, 1, first);
  Process& again = start_agent("b", 1);
  ASSERT_TRUE(again.wait_for_error("joined the job")) << again.err();
  finish(job);
  EXPECT_EQ(a.wait().code, 0) << a.err();
  EXPECT_EQ(again.wait().code, 0) << again.err();
}

// Its host rests, too. A frozen agent is not offered any more.
TEST_F(JoiningAgentsTest, AnAgentThatIsFrozenBeforeItsTurnIsForgottenAndMayComeAgain) {
  Process& job =
      start_training(joining({"--min-np", "1", "--heartbeat-timeout", "1", "--failure-policy",
                              "host", "--blacklist-cooldown-range", "1000", "1000"}));
  start_agent("a", 1);
  Process& b = start_agent("b", 1);
  const auto first = expect_world(job, 2);
  crash(b);
  expect_world(job, 1, first);
  Process& again = start_agent("b", 1);
  ASSERT_TRUE(again.wait_for_error("joined the job")) << again.err();

  again.signal(SIGSTOP);
  ASSERT_TRUE(
      job.wait_for_error("host b has gone before its turn: its agent gave no sign of life for 1 s"))
      << job.err();
  again.signal(SIGCONT);
  ASSERT_TRUE(again.wait_for_error("was lost before this machine had its turn")) << again.err();
  ASSERT_TRUE(again.wait_for_error("joined the job", kGenerous, again.err().rfind("trying again")))
      << again.err();
  finish(job);
  EXPECT_EQ(again.wait().code, 0) << again.err();
}

TEST_F(JoiningAgentsTest, ProgramsWithoutHvdAreStartedAgainOnTheAgentsThatAreThere) {
  Process& job =
      start(joining({"--min-np", "1", "--grow-delay", "0.2", "sh", "-c",
                     cat("echo $RANK of $WORLD_SIZE; while [ ! -e ",
                         (directory() / "enough").string(), " ]; do sleep 0.05; done")}));
  start_agent("a", 1);
  ASSERT_TRUE(job.wait_for_output("0 of 1")) << job.err();
  start_agent("b", 1);
  ASSERT_TRUE(job.wait_for_output("1 of 2")) << job.out() << job.err();
  say_enough();
  EXPECT_EQ(job.wait().code, 0) << job.err();
}

TEST_F(JoiningAgentsTest, ATakenPortIsAnErrorThatNamesIt) {
  auto taken = *listen_tcp({"127.0.0.1", 0});
  const std::string where = local_address(taken.get())->to_string();
  const auto end =
      run_job({"--join-bind", where, "--token-file", token(), "--min-np", "1", "true"});
  EXPECT_EQ(end.code, 1);
  EXPECT_NE(end.err.find(where), std::string::npos) << end.err;
}

}  // namespace
}  // namespace hvd::test
