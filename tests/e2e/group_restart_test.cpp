// Programs that know nothing of hvd, such as those on torch.distributed: a failure, or a change of
// hosts, ends all workers, and all are started again.
#include <csignal>
#include <filesystem>
#include <set>

#include "base/text.h"
#include "tests/e2e/job_test.h"

namespace hvd::test {
namespace {

// Each worker says where it stands, as `<restarts> <rank>/<size> <port>`.
constexpr const char* kSpeak =
    "echo \"$TORCHELASTIC_RESTART_COUNT $RANK/$WORLD_SIZE $MASTER_PORT $$.\"\n";

class GroupRestartTest : public JobTest {
 protected:
  static Words shell(const std::string& body) { return {"sh", "-c", cat(kSpeak, body)}; }
  static Words with(Words flags, const Words& command) {
    flags.insert(flags.end(), command.begin(), command.end());
    return flags;
  }
  // The report of a rank after all had been started again `restarts` times: {size, port, pid}.
  struct Place {
    std::string size;
    std::string port;
    pid_t pid = 0;
  };
  static std::vector<Place> places_of(const std::string& out, int restarts, int rank) {
    std::vector<Place> places;
    for (const auto& line : lines_of_rank(out, rank)) {
      const auto words = split(line, ' ');
      if (words.size() != 4 || words[0] != std::to_string(restarts)) continue;
      places.push_back({split(words[1], '/').back(), words[2], std::atoi(words[3].c_str())});
    }
    return places;
  }
  void hosts_are(const std::string& lines) {
    directory_file("hosts.new", lines);
    std::filesystem::rename(directory() / "hosts.new", directory() / "hosts");
  }
  Words with_script() {
    const std::string script = directory_file(
        "discover.sh", cat("#!/bin/sh\ncat ", (directory() / "hosts").string(), "\n"));
    std::filesystem::permissions(script, std::filesystem::perms{0755});
    return {"--host-discovery-script", script, "--discovery-interval", "0.05"};
  }
};

TEST_F(GroupRestartTest, AKilledWorkerMakesAllBeginAgainAtAnotherPort) {
  // Rank 1 ends itself when all have said where they stand.
  const std::string said = cat(directory().string(), "/$TORCHELASTIC_RESTART_COUNT.");
  const ExitStatus end =
      run_job(with({"-np", "3", "--max-restarts", "2"},
                   shell(cat("[ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0\n: > ", said,
                             "$RANK\n"
                             "if [ $TORCHELASTIC_MAX_RESTARTS = 2 ] && [ $RANK = 1 ]; then\n"
                             "  until [ -e ",
                             said, "0 ] && [ -e ", said,
                             "2 ]; do sleep 0.02; done\n"
                             "  kill -9 $$\nfi\nexec sleep 1000"))));
  EXPECT_EQ(end.code, 0) << end.err;
  std::set<std::string> ports;
  std::set<pid_t> pids;
  for (int restarts = 0; restarts <= 2; ++restarts) {
    for (int rank = 0; rank < 3; ++rank) {
      SCOPED_TRACE(cat("rank ", rank, " after ", restarts, " restarts"));
      const auto places = places_of(end.out, restarts, rank);
      ASSERT_EQ(places.size(), 1U) << end.out;
      EXPECT_EQ(places.front().size, "3");
      EXPECT_EQ(places.front().port, places_of(end.out, restarts, 0).front().port);
      ports.insert(places.front().port);
      pids.insert(places.front().pid);
    }
  }
  EXPECT_EQ(ports.size(), 3U) << end.out;
  EXPECT_EQ(pids.size(), 9U) << end.out;
  EXPECT_NE(end.err.find("all workers are started again, since none has called hvd::init()"),
            std::string::npos)
      << end.err;
  expect_nobody_left("the end of the work");
}

TEST_F(GroupRestartTest, TheLastFailureEndsTheJobWhenItMayNotBeginAgain) {
  const ExitStatus end =
      run_job(with({"-np", "2", "--max-restarts", "1"},
                   shell("[ $RANK = 1 ] && exit $((40 + TORCHELASTIC_RESTART_COUNT))\n"
                         "exec sleep 1000")));
  EXPECT_EQ(end.code, 41) << end.err;
  EXPECT_NE(end.err.find("exited with code 41; the workers had been started again 1 time "
                         "(--max-restarts)"),
            std::string::npos)
      << end.err;
  expect_nobody_left("the failure");
}

TEST_F(GroupRestartTest, WithoutRestartsTheFirstFailureEndsTheJob) {
  const ExitStatus end = run_job(with({"-np", "2", "--min-np", "1", "--max-restarts", "0"},
                                      shell("[ $RANK = 1 ] && exit 7\nexec sleep 1000")));
  EXPECT_EQ(end.code, 7) << end.err;
  EXPECT_EQ(places_of(end.out, 0, 1).size(), 1U) << end.out;
  expect_nobody_left("the failure");
}

TEST_F(GroupRestartTest, AWorkerThatIgnoresTheSignalIsKilled) {
  const ExitStatus end = run_job(with({"-np", "2", "--max-restarts", "1", "--grace", "0.2"},
                                      shell("[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0\n"
                                            "trap '' TERM\n"
                                            "[ $RANK = 1 ] && kill -9 $$\n"
                                            "while true; do sleep 1000; done")));
  EXPECT_EQ(end.code, 0) << end.err;
  expect_nobody_left("the end of the work");
}

TEST_F(GroupRestartTest, SlotsThatComeAndGoMakeAllBeginAgain) {
  hosts_are("localhost:1\n");
  Words flags = with_script();
  flags.insert(flags.end(), {"--grow-delay", "0.1"});
  const std::string go = (directory() / "go").string();
  Process& job = start(
      with(flags, shell(cat("trap 'exit 0' TERM\nwhile ! test -e ", go, "; do sleep 0.05; done"))));
  ASSERT_TRUE(job.wait_for_output("0 0/1 ")) << job.out() << job.err();
  hosts_are("localhost:3\n");
  ASSERT_TRUE(job.wait_for_output("0 2/3 ")) << job.out() << job.err();
  hosts_are("localhost:2\n");
  ASSERT_TRUE(job.wait_for_output("0 1/2 ")) << job.out() << job.err();
  directory_file("go");
  const ExitStatus end = job.wait();
  EXPECT_EQ(end.code, 0) << end.out << end.err;
  // No failure was counted, and nobody ran beside those of an older world.
  EXPECT_EQ(places_of(end.out, 1, 0).size(), 0U) << end.out;
  EXPECT_EQ(places_of(end.out, 0, 0).size(), 3U) << end.out;
  expect_nobody_left("the end of the work");
}

TEST_F(GroupRestartTest, ATorchProgramMeetsItsPeersAgainAtTheNewPort) {
  const ExitStatus end = run_job({"-np", "3", "--max-restarts", "1", "sh", "-c",
                                  cat("[ $TORCHELASTIC_RESTART_COUNT$RANK = 02 ] && exit 3\nexec ",
                                      binary("e2e_torch_style"))});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(lines_of_rank(end.out, 0), Words{"met 2"});
}

}  // namespace
}  // namespace hvd::test
