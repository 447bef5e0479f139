// hvdrun as the first process of a container: a PID namespace of its own.
#include <csignal>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/machine/proc.h"
#include "base/text.h"
#include "tests/support/process.h"

namespace hvd::test {
namespace {

class InitProcess : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can make a PID namespace";
    if (run({"unshare", "--pid", "--fork", "true"}).code != 0) {
      GTEST_SKIP() << "no PID namespace can be made here";
    }
  }

  static std::unique_ptr<Process> start(const std::vector<std::string>& arguments) {
    std::vector<std::string> words{"unshare", "--pid",        "--fork", "--kill-child",
                                   "--mount", "--mount-proc", "--",     binary("hvdrun")};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return std::make_unique<Process>(words);
  }

  static std::vector<pid_t> children_of(pid_t parent) {
    std::vector<pid_t> children;
    const std::string text = read_proc_file(cat("/proc/", parent, "/task/", parent, "/children"));
    for (const auto& word : split(text, ' ')) {
      if (const auto pid = parse_number<pid_t>(word)) children.push_back(*pid);
    }
    return children;
  }

  // Process 1 of the namespace, as this machine numbers it.
  static pid_t first_process(const Process& container) {
    std::vector<pid_t> children;
    eventually([&] { return !(children = children_of(container.pid())).empty(); });
    return children.at(0);
  }
};

// Process 1 gets no signal that it does not handle. An agent that waits for its job handles none.
TEST_F(InitProcess, AnAgentThatWaitsEndsAtATermination) {
  const TemporaryDirectory directory;
  const auto agent = start({"agent", "--join", "tls://127.0.0.1:1", "--token-file",
                            directory.path() / "token", "--join-timeout", "1000"});
  ASSERT_TRUE(agent->wait_for_error("trying again")) << agent->err();
  ::kill(first_process(*agent), SIGTERM);
  EXPECT_EQ(agent->wait().code, 128 + SIGTERM) << agent->err();
}

TEST_F(InitProcess, AJobEndsAtATerminationAsEverywhere) {
  const std::string program =
      "trap 'echo told; exit 0' TERM; echo up; while :; do sleep 0.05; done";
  const auto job = start({"-np", "1", "sh", "-c", program});
  ASSERT_TRUE(job->wait_for_output("up")) << job->err();
  ::kill(first_process(*job), SIGTERM);
  const auto status = job->wait();
  EXPECT_EQ(status.code, 128 + SIGTERM) << status.err;
  EXPECT_NE(status.out.find("told"), std::string::npos) << status.out;
}

TEST_F(InitProcess, TheExitCodeOfTheJobIsThatOfTheContainer) {
  EXPECT_EQ(start({"-np", "1", "true"})->wait().code, 0);
  EXPECT_EQ(start({"-np", "1", "sh", "-c", "exit 7"})->wait().code, 7);
  EXPECT_EQ(start({"--no-such-flag"})->wait().code, 2);
}

// As `kubectl exec` leaves them.
TEST_F(InitProcess, OrphansOfOtherProcessesAreReaped) {
  const auto job = start({"-np", "1", "sh", "-c", "echo up; exec sleep 1000"});
  ASSERT_TRUE(job->wait_for_output("up")) << job->err();
  const pid_t first = first_process(*job);
  const auto hvdrun = children_of(first);
  ASSERT_EQ(hvdrun.size(), 1U);

  // Its own parent is not in the namespace. A process that it leaves behind becomes a child of
  // process 1.
  const auto guest = run({"nsenter", "--target", std::to_string(first), "--pid", "--mount", "sh",
                          "-c", "for i in 1 2 3; do (sleep 1000 >/dev/null 2>&1 &); done"});
  ASSERT_EQ(guest.code, 0) << guest.err;
  std::vector<pid_t> orphans;
  ASSERT_TRUE(eventually([&] {
    orphans = children_of(first);
    std::erase(orphans, hvdrun.front());
    return orphans.size() == 3;
  }));
  for (const pid_t orphan : orphans) ::kill(orphan, SIGKILL);
  EXPECT_TRUE(eventually([&] { return children_of(first) == hvdrun; }));

  ::kill(first, SIGTERM);
  EXPECT_EQ(job->wait().code, 128 + SIGTERM) << job->err();
}

TEST_F(InitProcess, HvdrunKilledIsTheEndOfTheContainer) {
  const auto job = start({"-np", "1", "sh", "-c", "echo up; exec sleep 1000"});
  ASSERT_TRUE(job->wait_for_output("up")) << job->err();
  ::kill(children_of(first_process(*job)).at(0), SIGKILL);
  EXPECT_EQ(job->wait().code, 128 + SIGKILL) << job->err();
}

}  // namespace
}  // namespace hvd::test
