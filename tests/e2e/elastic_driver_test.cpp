// The world changes and the job goes on, as hvdrun and its agents do it: the workers are
// e2e_follows, which only follow the world, and plain programs.
#include <csignal>
#include <filesystem>

#include "base/text.h"
#include "tests/e2e/job_test.h"

namespace hvd::test {
namespace {

class ElasticDriverTest : public JobTest {
 protected:
  void SetUp() override {
    go_ = directory() / "go";
    hosts_ = directory() / "hosts";
    script_ = directory_file("discover.sh", cat("#!/bin/sh\ncat ", hosts_.string(), "\n"));
    std::filesystem::permissions(script_, std::filesystem::perms{0755});
  }

  Words follows(const Words& more = {}) const {
    Words words{binary("e2e_follows"), "--until", go_.string()};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Process& start_job(Words flags, const Words& command) {
    flags.insert(flags.end(), command.begin(), command.end());
    return start(flags);
  }
  // The script names these from now on.
  void hosts_are(const std::string& lines) {
    directory_file("hosts.new", lines);
    std::filesystem::rename(directory() / "hosts.new", hosts_);
  }
  Words with_script(const Words& more = {}) const {
    Words words{"--host-discovery-script", script_, "--discovery-interval", "0.05"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  // Pids of this world's members by rank; blocks until all of them have logged it.
  std::map<int, pid_t> wait_for_world(Process& job, int generation, int size) {
    std::map<int, pid_t> pids;
    for (int rank = 0; rank < size; ++rank) {
      const std::string in = cat(" in ", generation, " ", rank, "/", size, ".");
      EXPECT_TRUE(job.wait_for_output(in)) << job.out() << job.err();
      for (const auto& line : lines_of(job.out())) {
        const auto at = line.find(in);
        if (at == std::string::npos) continue;
        const auto begin = line.find(">:") + 2;
        pids[rank] = std::atoi(line.substr(begin, at - begin).c_str());
      }
    }
    return pids;
  }
  void expect_a_good_end(Process& job) {
    directory_file("go");
    const ExitStatus end = job.wait();
    EXPECT_EQ(end.code, 0) << end.out << end.err;
    expect_nobody_left("the end of the work");
  }
  void expect_said(Process& job, const std::string& text) {
    EXPECT_TRUE(job.wait_for_error(text)) << '"' << text << "\" is not in:\n" << job.err();
  }

  std::filesystem::path go_;
  std::filesystem::path hosts_;
  std::string script_;
};

TEST_F(ElasticDriverTest, AKilledWorkerIsReplacedAndTheOthersGoOn) {
  Process& job = start_job({"-np", "3", "--min-np", "2"}, follows());
  const auto workers = wait_for_world(job, 1, 3);
  ASSERT_EQ(kill_one(workers.at(1), SIGKILL), 0);
  wait_for_world(job, 2, 2);
  // The replacement takes the place of the one that it replaces.
  const auto after = wait_for_world(job, 3, 3);
  EXPECT_EQ(after.at(0), workers.at(0));
  EXPECT_NE(after.at(1), workers.at(1));
  EXPECT_EQ(after.at(2), workers.at(2));
  expect_said(job,
              "generation 2: 2 workers on 1 host (localhost#1 was killed by SIGKILL (signal 9))");
  expect_said(job, "generation 3: 3 workers on 1 host (localhost#1 joined)");
  expect_a_good_end(job);
}

TEST_F(ElasticDriverTest, WithTheLeastAsManyAsThereWereTheWorldWaitsForTheReplacement) {
  Process& job = start_job({"-np", "2", "--min-np", "2"}, follows());
  const auto workers = wait_for_world(job, 1, 2);
  ASSERT_EQ(kill_one(workers.at(0), SIGKILL), 0);
  expect_said(job, "1 worker is left, and the world needs at least 2 (--min-np): waiting");
  const auto after = wait_for_world(job, 2, 2);
  EXPECT_EQ(after.at(0), workers.at(1));
  expect_a_good_end(job);
}

TEST_F(ElasticDriverTest, AScriptAloneIsEnoughAndItsHostsComeAndGo) {
  hosts_are("localhost:1\n");
  Process& job = start_job(with_script(), follows());
  wait_for_world(job, 1, 1);
  hosts_are("localhost:2\n127.0.0.1:1\n");
  // Both joiners may come together, or one after the other.
  ASSERT_TRUE(job.wait_for_output("/3.")) << job.out() << job.err();
  EXPECT_NE(job.out().find("[localhost#1]<stdout>:"), std::string::npos)
      << "a worker without a rank has the name of its slot: " << job.out();
  hosts_are("localhost:2\n");
  ASSERT_TRUE(job.wait_for_output(" out.")) << job.out() << job.err();
  expect_said(job, "left: host 127.0.0.1 is no longer named");
  expect_a_good_end(job);
}

TEST_F(ElasticDriverTest, AHostThatIsBackIsUsedAgain) {
  hosts_are("localhost:1\n127.0.0.1:1\n");
  Process& job = start_job(with_script({"--start-timeout", "60"}), follows());
  wait_for_world(job, 1, 2);
  hosts_are("localhost:1\n");
  wait_for_world(job, 2, 1);
  hosts_are("localhost:1\n127.0.0.1:1\n");
  wait_for_world(job, 3, 2);
  expect_a_good_end(job);
}

TEST_F(ElasticDriverTest, AWorkerThatIsToldToGoLeavesAndItsSlotIsFilledAgain) {
  Process& job = start_job({"-np", "2", "--min-np", "1"}, follows());
  const auto workers = wait_for_world(job, 1, 2);
  ASSERT_EQ(kill_one(workers.at(1), SIGTERM), 0);
  ASSERT_TRUE(job.wait_for_output(" out.")) << job.out() << job.err();
  expect_said(job, "localhost#1 left: localhost#1 was told to go");
  EXPECT_EQ(job.err().find("warning"), std::string::npos) << job.err();
  expect_a_good_end(job);
}

TEST_F(ElasticDriverTest, SigtermToAnAgentTakesItsHostOutOfTheWorldWithoutALoss) {
  hosts_are("localhost:1\n127.0.0.1:1\n");
  Process& job = start_job(with_script({"-np", "2", "--min-np", "1"}), follows());
  const auto workers = wait_for_world(job, 1, 2);
  const std::string status = read_file(cat("/proc/", workers.at(1), "/status"));
  const auto agents = children_named(job.pid(), "hvd-agent");
  ASSERT_EQ(agents.size(), 2U);
  // Its worker's reaper is the child of one of them.
  for (const pid_t agent : agents) {
    for (const pid_t reaper : children_named(agent, "hvd-reaper")) {
      if (status.find(cat("PPid:\t", reaper, "\n")) != std::string::npos) kill_one(agent, SIGTERM);
    }
  }
  expect_said(job, "127.0.0.1#0 left: host 127.0.0.1 is taken away");
  EXPECT_EQ(job.err().find("was killed"), std::string::npos) << job.err();
  expect_a_good_end(job);
}

TEST_F(ElasticDriverTest, AWorkerThatComesToNoCommitIsNotWaitedForLongerThanTheGrace) {
  hosts_are("localhost:2\n");
  Process& job = start_job(with_script({"--leave-grace", "0.3"}), follows({"--no-commits"}));
  wait_for_world(job, 1, 2);
  hosts_are("localhost:1\n");
  ASSERT_TRUE(job.wait_for_output("told: host localhost has fewer slots now")) << job.err();
  expect_said(job, "localhost#1 came to no commit within 0.3 s");
  wait_for_world(job, 3, 1);
  expect_a_good_end(job);
}

TEST_F(ElasticDriverTest, TooFewSlotsAreWaitedForAndThenNamed) {
  hosts_are("localhost:1\n");
  const ExitStatus end =
      start_job(with_script({"--min-np", "2", "--elastic-timeout", "0.5"}), follows()).wait();
  EXPECT_EQ(end.code, 1);
  for (const char* const part : {"there was not enough room for 0.5 s (--elastic-timeout)",
                                 "at least 2 workers needed", "1 slot is ready on 1 of 1 host"}) {
    EXPECT_NE(end.err.find(part), std::string::npos) << part << " is not in:\n" << end.err;
  }
}

TEST_F(ElasticDriverTest, TheFirstRunOfTheScriptMustSucceed) {
  for (const auto& [program, said] : std::vector<std::pair<std::string, std::string>>{
           {"echo broken >&2; exit 3", "exited with code 3"},
           {"sleep 3600", "did not end within 0.3 s"},
           {"echo a:b:c", "a:b:c"}}) {
    const auto script = directory_file("bad.sh", cat("#!/bin/sh\n", program, "\n"));
    std::filesystem::permissions(script, std::filesystem::perms{0755});
    const ExitStatus end =
        run_job({"--host-discovery-script", script, "--discovery-timeout", "0.3", "true"});
    EXPECT_EQ(end.code, 1) << end.err;
    EXPECT_NE(end.err.find(said), std::string::npos) << said << " is not in:\n" << end.err;
    EXPECT_NE(end.err.find("bad.sh"), std::string::npos) << end.err;
  }
}

TEST_F(ElasticDriverTest, AScriptThatFailsLaterChangesNothing) {
  hosts_are("localhost:2\n");
  Process& job = start_job(with_script(), follows());
  wait_for_world(job, 1, 2);
  std::filesystem::remove(hosts_);
  expect_said(job, "exited with code 1");
  hosts_are("localhost:2\nwhat is this\n");
  expect_said(job, "printed an invalid list of hosts");
  hosts_are("localhost:3\n");
  ASSERT_TRUE(job.wait_for_output("/3.")) << job.err();
  EXPECT_EQ(job.out().find(" out."), std::string::npos) << job.out();
  expect_a_good_end(job);
}

TEST_F(ElasticDriverTest, BeyondTheResetLimitTheJobEndsWithTheFirstCause) {
  Process& job = start_job({"-np", "2", "--min-np", "1", "--reset-limit", "0"}, follows());
  const auto workers = wait_for_world(job, 1, 2);
  ASSERT_EQ(kill_one(workers.at(1), SIGKILL), 0);
  const ExitStatus end = job.wait();
  EXPECT_EQ(end.code, 137);
  for (const char* const part : {"rank 1", "was killed by SIGKILL (signal 9)",
                                 "number of resets during elastic job exceeded limit: 0"}) {
    EXPECT_NE(end.err.find(part), std::string::npos) << part << " is not in:\n" << end.err;
  }
}

TEST_F(ElasticDriverTest, WithHorovodsPolicyTheWholeHostGoesAndIsNotUsedAgain) {
  Process& job = start_job(
      {"-H", "localhost:2,127.0.0.1:2", "--min-np", "1", "--failure-policy", "host"}, follows());
  const auto workers = wait_for_world(job, 1, 4);
  ASSERT_EQ(kill_one(workers.at(3), SIGKILL), 0);
  expect_said(job, "127.0.0.1#1 was killed by SIGKILL (signal 9); its host is set aside");
  // Its other worker leaves at the next commit.
  expect_said(job, "127.0.0.1#0 left: host 127.0.0.1 rests (--failure-policy host)");
  const auto after = wait_for_world(job, 3, 2);
  EXPECT_EQ(after.at(1), workers.at(1));
  expect_a_good_end(job);
  EXPECT_EQ(job.out().find("[127.0.0.1#"), std::string::npos) << job.out();
}

TEST_F(ElasticDriverTest, AProgramThatFailsEverywhereAtOnceIsNotStartedForEver) {
  const ExitStatus end = run_job({"-np", "3", "--min-np", "1", "sh", "-c", "echo why >&2; exit 3"});
  EXPECT_EQ(end.code, 3);
  // Which of the two is seen first is chance.
  const bool never_joined = end.err.find("no worker got as far as joining") != std::string::npos;
  const bool at_once = end.err.find("failed this way at once") != std::string::npos;
  EXPECT_TRUE(never_joined || at_once) << end.err;
  EXPECT_NE(end.err.find("    why\n"), std::string::npos) << end.err;
}

TEST_F(ElasticDriverTest, APlainProgramEndsWellWhenAllOfItHas) {
  const ExitStatus end = run_job({"-np", "2", "--min-np", "1", "sh", "-c",
                                  "echo $HVD_RANK of $HVD_SIZE, elastic: $HOROVOD_ELASTIC"});
  EXPECT_EQ(end.code, 0) << end.err;
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(lines_of_rank(end.out, rank), Words{cat(rank, " of 2, elastic: 1")});
  }
}

TEST_F(ElasticDriverTest, AReplacementKnowsItsSlotAndNoRankYet) {
  Process& job =
      start({"-np", "2", "--min-np", "1", "sh", "-c",
             cat("echo rank $HVD_RANK local $HVD_LOCAL_RANK of $HVD_LOCAL_SIZE; ", "exec ",
                 binary("e2e_follows"), " --never-ready --until ", go_.string())});
  const auto workers = wait_for_world(job, 1, 2);
  ASSERT_EQ(kill_one(workers.at(1), SIGKILL), 0);
  ASSERT_TRUE(job.wait_for_output("[localhost#1]<stdout>:rank -1 local 1 of 2")) << job.out();
  expect_a_good_end(job);
}

TEST_F(ElasticDriverTest, FilesAreByWorkerSinceRanksChange) {
  const std::string logs = directory() / "logs";
  Process& job = start_job({"-np", "2", "--min-np", "1", "--output-filename", logs}, follows());
  const auto workers = wait_for_world(job, 1, 2);
  ASSERT_EQ(kill_one(workers.at(0), SIGKILL), 0);
  wait_for_world(job, 3, 2);
  expect_a_good_end(job);
  const std::string text = read_file(logs + "/localhost#0/stdout");
  EXPECT_NE(text.find(" in 1 0/2."), std::string::npos) << text;
  EXPECT_NE(text.find(" joins."), std::string::npos) << text;
}

TEST_F(ElasticDriverTest, CtrlCEndsTheJobWith130WhileTheWorldChanges) {
  hosts_are("localhost:2\n");
  Process& job = start_job(with_script(), follows({"--no-commits"}));
  wait_for_world(job, 1, 2);
  hosts_are("localhost:3\n");
  ASSERT_TRUE(job.wait_for_output(" joins.")) << job.err();
  job.signal(SIGINT);
  EXPECT_EQ(job.wait().code, 130);
  expect_nobody_left("Ctrl-C");
}

TEST_F(ElasticDriverTest, KillingHvdrunLeavesNoWorkerNoAgentAndNoScript) {
  hosts_are("localhost:2\n127.0.0.1:1\n");
  Process& job = start_job(with_script(), follows());
  wait_for_world(job, 1, 3);
  // A run of the script that hangs dies with the others. A new file in the place of the old one:
  // a shell reads what it runs piece by piece.
  const auto hangs = directory() / "hangs";
  const std::string script =
      directory_file("hangs.sh", cat("#!/bin/sh\ntouch ", hangs.string(), "\nsleep 3600\n"));
  std::filesystem::permissions(script, std::filesystem::perms{0755});
  std::filesystem::rename(script, script_);
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(hangs); })) << job.err();
  crash(job);
  expect_nobody_left("kill -9 of hvdrun");
}

TEST_F(ElasticDriverTest, AKilledAgentCostsItsHostAndSparesTheScript) {
  hosts_are("localhost:1\n127.0.0.1:1\n");
  Process& job = start_job(with_script({"--min-np", "1"}), follows());
  wait_for_world(job, 1, 2);
  const auto agents = children_named(job.pid(), "hvd-agent");
  ASSERT_EQ(agents.size(), 2U);
  ASSERT_EQ(kill_one(agents[1], SIGKILL), 0);
  expect_said(job, "generation 2: 1 worker on 1 host");
  expect_said(job, "was lost with host");
  // The host is tried again, and what discovery says is heard as before.
  ASSERT_TRUE(job.wait_for_output(" in 3 1/2.")) << job.out() << job.err();
  hosts_are("localhost:1\n");
  ASSERT_TRUE(job.wait_for_output(" in 4 0/1.")) << job.out() << job.err();
  expect_a_good_end(job);
}

// ---- workers that train ----

class ElasticTrainingTest : public ElasticDriverTest {
 protected:
  // They train until five steps after this generation has begun.
  Process& start_training(Words flags, int until_generation) {
    flags.insert(flags.begin(), "--verbose");
    flags.insert(flags.end(), {binary("hvd_elastic_program"), "train"});
    return start(flags, {.environment = {{"UNTIL", cat(until_generation)}}});
  }
  pid_t pid_of(Process& job, int rank) {
    const std::string runs = cat("rank ", rank, " on localhost#", rank, " runs as pid ");
    EXPECT_TRUE(job.wait_for_error(runs)) << job.err();
    return std::atoi(job.err().substr(job.err().find(runs) + runs.size()).c_str());
  }
  void wait_for_step(Process& job, int step) {
    ASSERT_TRUE(job.wait_for_output(cat("commit ", step, "\n"))) << job.out() << job.err();
  }
  void expect_trained(Process& job, int generation, int workers) {
    const ExitStatus end = job.wait();
    EXPECT_EQ(end.code, 0) << end.err;
    for (int rank = 0; rank < workers; ++rank) {
      const std::string in = cat("generation ", generation, ", rank ", rank, " of ", workers, ",");
      EXPECT_NE(end.out.find(in), std::string::npos) << in << " is not in:\n" << end.out << end.err;
    }
    expect_nobody_left("the end of the work");
  }
};

TEST_F(ElasticTrainingTest, OneOfFourIsKilledAndReplaced) {
  Process& job = start_training({"-np", "4", "--min-np", "2"}, 3);
  wait_for_step(job, 5);
  ASSERT_EQ(kill_one(pid_of(job, 2), SIGKILL), 0);
  expect_trained(job, 3, 4);
  EXPECT_NE(job.out().find("generation 2, rank 2 of 3,"), std::string::npos) << job.out();
}

TEST_F(ElasticTrainingTest, TheLeaderIsKilledAndTheWorldWaitsForTheReplacement) {
  Process& job = start_training({"-np", "3", "--min-np", "3"}, 2);
  wait_for_step(job, 5);
  ASSERT_EQ(kill_one(pid_of(job, 0), SIGKILL), 0);
  expect_trained(job, 2, 3);
}

TEST_F(ElasticTrainingTest, ASlotMoreIsAWorkerMoreAndOneLessIsOneLessAndNobodyFails) {
  hosts_are("localhost:2\n");
  Process& job = start_training(with_script(), 3);
  wait_for_step(job, 5);
  hosts_are("localhost:3\n");
  ASSERT_TRUE(job.wait_for_output("generation 2, rank 2 of 3,")) << job.out() << job.err();
  hosts_are("localhost:1\n");
  expect_trained(job, 3, 1);
  EXPECT_EQ(job.err().find("warning"), std::string::npos) << job.err();
}

TEST_F(ElasticTrainingTest, ASpareStepsInAtOnce) {
  Process& job = start_training({"-H", "localhost:3", "--max-np", "2", "--spares", "1"}, 2);
  wait_for_step(job, 5);
  ASSERT_TRUE(job.wait_for_error("is ready to join")) << job.err();
  ASSERT_EQ(kill_one(pid_of(job, 1), SIGKILL), 0);
  expect_trained(job, 2, 2);
  EXPECT_TRUE(job.err().find("generation 2: 2 workers on 1 host (localhost#1 was killed by "
                             "SIGKILL (signal 9); localhost#2 joined)") != std::string::npos)
      << job.err();
}

TEST_F(ElasticTrainingTest, CtrlCEndsThemAll) {
  Process& job = start_training({"-np", "3", "--min-np", "1"}, 1'000'000);
  wait_for_step(job, 5);
  job.signal(SIGINT);
  const ExitStatus end = job.wait();
  EXPECT_EQ(end.code, 130);
  EXPECT_EQ(end.err.find("warning"), std::string::npos) << end.err;
  expect_nobody_left("Ctrl-C");
}

}  // namespace
}  // namespace hvd::test
