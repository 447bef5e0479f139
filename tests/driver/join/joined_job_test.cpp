// A whole job whose agents join by themselves, with a real hvdrun at both ends.
#include <csignal>
#include <filesystem>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "base/text.h"
#include "tests/support/free_address.h"
#include "tests/support/process.h"

namespace hvd::test {
namespace {

constexpr const char* kMark = "HVD_JOINED_JOB_TEST";

class JoinedJob : public testing::Test {
 protected:
  std::unique_ptr<Process> start_job(std::vector<std::string> words) {
    words.insert(words.begin(), {binary("hvdrun"), "--join-bind", where_, "--token-file", token_,
                                 "--env", cat(kMark, "=", mark_)});
    return std::make_unique<Process>(words);
  }
  std::unique_ptr<Process> start_agent(const std::string& host, int slots) {
    return std::make_unique<Process>(std::vector<std::string>{
        binary("hvdrun"), "agent", "--join", "tls://" + where_, "--token-file", token_, "--host",
        host, "--slots", std::to_string(slots)});
  }

  TemporaryDirectory directory_;
  std::string token_ = directory_.path() / "token";
  std::string mark_ = directory_.path();
  const std::string where_ = free_address().to_string();
};

TEST_F(JoinedJob, RunsOnTheAgentsThatJoinAndAllEndWell) {
  // An agent may also start before hvdrun runs and its token file exists.
  const auto a = start_agent("a", 2);
  ASSERT_TRUE(a->wait_for_error("trying again")) << a->err();
  const auto job = start_job({"-np", "4", binary("allreduce_once")});
  const auto b = start_agent("b", 2);
  const auto status = job->wait();
  EXPECT_EQ(status.code, 0) << status.err;
  EXPECT_EQ(a->wait().code, 0) << a->err();
  EXPECT_EQ(b->wait().code, 0) << b->err();
}

TEST_F(JoinedJob, LabelsDecideWhoMayJoinAndWorkersKnowThem) {
  const auto with_labels = [&](const std::string& host, std::vector<std::string> labels) {
    std::vector<std::string> words{binary("hvdrun"), "agent", "--join", "tls://" + where_,
                                   "--token-file",   token_,  "--host", host,
                                   "--slots",        "1"};
    for (auto& label : labels) words.insert(words.end(), {"--label", std::move(label)});
    return std::make_unique<Process>(words);
  };
  const auto job =
      start_job({"-np", "1", "--verbose", "--require-label", "zone=eu", "--require-label", "gpu",
                 "sh", "-c", "echo labels: $HVD_HOST_LABELS"});
  const auto refused = with_labels("a", {"zone=us"})->wait();
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.err.find("does not let this machine in as a: the job requires the labels "
                             "zone=eu, gpu, which the host does not have"),
            std::string::npos)
      << refused.err;

  const auto admitted = with_labels("b", {"zone=eu", "gpu=H100"});
  const auto status = job->wait();
  EXPECT_EQ(status.code, 0) << status.err;
  EXPECT_NE(status.out.find("labels: zone=eu,gpu=H100\n"), std::string::npos) << status.out;
  EXPECT_NE(status.err.find("refused to let a"), std::string::npos) << status.err;
  EXPECT_NE(status.err.find("host b has joined with 1 slot (zone=eu, gpu=H100)"), std::string::npos)
      << status.err;
  EXPECT_EQ(admitted->wait().code, 0) << admitted->err();
}

// The whole time: also when all agents have come, and later ones are told so.
TEST_F(JoinedJob, ItsPortAnswersHealthProbesUntilTheEnd) {
  const auto probe = [&] {
    const auto colon = where_.rfind(':');
    return run({"bash", "-c",
                cat("exec 3<>/dev/tcp/", where_.substr(0, colon), "/", where_.substr(colon + 1),
                    " && printf 'GET /healthz HTTP/1.1\\r\\n\\r\\n' >&3 && cat <&3")})
        .out;
  };
  const auto end = directory_.path() / "end";
  const auto job =
      start_job({"-np", "1", "sh", "-c",
                 cat("echo up; while [ ! -e ", end.string(), " ]; do sleep 0.05; done")});
  ASSERT_TRUE(job->wait_for_error("waiting at")) << job->err();
  EXPECT_NE(probe().find("200 OK"), std::string::npos);

  const auto a = start_agent("a", 1);
  ASSERT_TRUE(job->wait_for_output("up")) << job->err();
  EXPECT_NE(probe().find("200 OK"), std::string::npos);
  const auto late = start_agent("b", 1);
  ASSERT_TRUE(late->wait_for_error("the job has begun with other hosts; trying again"))
      << late->err();

  directory_.file("end", "");
  const auto status = job->wait();
  EXPECT_EQ(status.code, 0) << status.err;
  EXPECT_EQ(status.err.find("refused a connection"), std::string::npos) << status.err;
  EXPECT_EQ(a->wait().code, 0) << a->err();
}

TEST_F(JoinedJob, NamedHostsKeepTheirOrderWhicheverJoinsFirst) {
  const auto job =
      start_job({"-H", "a:1,b:1", "sh", "-c", "echo \"$HVD_RANK is on $HVD_HOSTNAME\""});
  ASSERT_TRUE(job->wait_for_error("waiting at")) << job->err();
  const auto b = start_agent("b", 1);
  const auto stranger = start_agent("c", 1);
  EXPECT_EQ(stranger->wait().code, 1);
  EXPECT_NE(stranger->err().find("this job has no host c"), std::string::npos) << stranger->err();
  const auto a = start_agent("a", 1);
  const auto status = job->wait();
  EXPECT_EQ(status.code, 0) << status.err;
  EXPECT_NE(status.out.find("0 is on a\n"), std::string::npos) << status.out;
  EXPECT_NE(status.out.find("1 is on b\n"), std::string::npos) << status.out;
  EXPECT_EQ(a->wait().code, 0) << a->err();
  EXPECT_EQ(b->wait().code, 0) << b->err();
}

TEST_F(JoinedJob, AHostWithoutANumberHasTheSlotsThatItsAgentCameWith) {
  const auto job = start_job({"-H", "a,b:1", "sh", "-c", "echo \"$HVD_RANK is on $HVD_HOSTNAME\""});
  const auto a = start_agent("a", 3);
  const auto b = start_agent("b", 2);
  const auto status = job->wait();
  EXPECT_EQ(status.code, 0) << status.err;
  EXPECT_NE(status.out.find("2 is on a\n"), std::string::npos) << status.out;
  EXPECT_NE(status.out.find("3 is on b\n"), std::string::npos) << status.out;
  EXPECT_EQ(status.out.find("4 is on"), std::string::npos) << status.out;
  EXPECT_EQ(a->wait().code, 0) << a->err();
  EXPECT_EQ(b->wait().code, 0) << b->err();
}

TEST_F(JoinedJob, TheTokenMayComeThroughAnInheritedDescriptor) {
  const auto agent = start_agent("a", 1);  // of a file, which the job makes
  EXPECT_EQ(start_job({"-np", "1", "true"})->wait().code, 0);
  EXPECT_EQ(agent->wait().code, 0) << agent->err();

  const auto through_a_pipe = [&](const std::string& command) {
    return std::make_unique<Process>(std::vector<std::string>{
        "sh", "-c", cat("cat ", token_, " | ", binary("hvdrun"), " ", command)});
  };
  // The agent tries more than once.
  const auto other = through_a_pipe(
      cat("agent --join tls://", where_, " --token-file /dev/stdin --host b --slots 1"));
  ASSERT_TRUE(other->wait_for_error("trying again")) << other->err();
  const auto job =
      through_a_pipe(cat("--join-bind ", where_, " --token-file /dev/fd/0 -np 1 true"));
  EXPECT_EQ(job->wait().code, 0) << job->err();
  EXPECT_EQ(other->wait().code, 0) << other->err();

  for (const char* const content : {"", "secret"}) {
    const auto end = run({"sh", "-c",
                          cat("printf '%s' '", content, "' | ", binary("hvdrun"),
                              " agent --join tls://", where_, " --token-file /dev/stdin")});
    EXPECT_EQ(end.code, 1);
    EXPECT_NE(end.err.find("token file /dev/stdin: a token is 64 hexadecimal digits"),
              std::string::npos)
        << end.err;
    EXPECT_EQ(end.err.find("secret"), std::string::npos) << end.err;
  }
}

TEST_F(JoinedJob, ATokenThatSomebodyElseHasPlantedIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make a file of another user";
  const std::string digits(64, 'a');
  const auto planted = directory_.file("token", digits + "\n").string();
  ASSERT_EQ(::chmod(planted.c_str(), 0600), 0);
  ASSERT_EQ(::chown(planted.c_str(), 65534, 65534), 0);
  const auto own = directory_.file("own", digits + "\n").string();
  ASSERT_EQ(::chmod(own.c_str(), 0600), 0);
  const auto link = (directory_.path() / "link").string();
  ASSERT_EQ(::symlink(own.c_str(), link.c_str()), 0);
  ASSERT_EQ(::lchown(link.c_str(), 65534, 65534), 0);
  for (const auto& [token, why] :
       {std::pair(planted, "belongs to user 65534, neither to this user"),
        std::pair(link, "the link \"link\", which belongs to user 65534")}) {
    token_ = token;
    const auto status = start_job({"-np", "1", "--start-timeout", "1", "true"})->wait();
    EXPECT_EQ(status.code, 1);
    EXPECT_NE(status.err.find(why), std::string::npos) << status.err;
    const auto agent = start_agent("a", 1)->wait();
    EXPECT_EQ(agent.code, 1);
    EXPECT_NE(agent.err.find(why), std::string::npos) << agent.err;
    const auto alone =
        run({binary("hvdrun"), "rendezvous", "--bind", "127.0.0.1:0", "--token-file", token});
    EXPECT_EQ(alone.code, 1);
    EXPECT_NE(alone.err.find(why), std::string::npos) << alone.err;
  }
}

TEST_F(JoinedJob, ASecretIsTheHostsOwnUnlessItIsAskedFor) {
  for (const bool asked : {false, true}) {
    std::vector<std::string> words{"-np", "1", "sh", "-c",
                                   "echo \"<$HF_TOKEN$AWS_SECRET_ACCESS_KEY>\""};
    if (asked) words.insert(words.begin(), {"--env", "HF_TOKEN"});
    words.insert(words.begin(), {binary("hvdrun"), "--join-bind", where_, "--token-file", token_});
    const auto job = std::make_unique<Process>(
        words, ProcessOptions{
                   .environment = {{"HF_TOKEN", "ours"}, {"AWS_SECRET_ACCESS_KEY", "also ours"}}});
    const auto agent = std::make_unique<Process>(
        std::vector<std::string>{binary("hvdrun"), "agent", "--join", "tls://" + where_,
                                 "--token-file", token_, "--host", "a", "--slots", "1"},
        ProcessOptions{.environment = {{"HF_TOKEN", "the host's"}}});
    const auto status = job->wait();
    EXPECT_EQ(status.code, 0) << status.err;
    EXPECT_NE(status.out.find(asked ? "<ours>" : "<the host's>"), std::string::npos) << status.out;
    EXPECT_NE(status.err.find(cat("hvdrun: not sent to other hosts, since they look like secrets: "
                                  "AWS_SECRET_ACCESS_KEY",
                                  asked ? " (--env NAME" : " HF_TOKEN (--env NAME")),
              std::string::npos)
        << status.err;
    EXPECT_EQ(agent->wait().code, 0) << agent->err();
  }
}

TEST_F(JoinedJob, AKilledRelayIsALostHostAndNothingStays) {
  const auto job = start_job({"-H", "a:1,b:1", "sh", "-c", "echo up; exec sleep 1000"});
  const auto a = start_agent("a", 1);
  const auto b = start_agent("b", 1);
  ASSERT_TRUE(job->wait_for_output("[0]<stdout>:up")) << job->err();
  ASSERT_TRUE(job->wait_for_output("[1]<stdout>:up")) << job->err();
  b->signal(SIGKILL);
  const auto status = job->wait();
  EXPECT_EQ(status.code, 1) << status.err;
  EXPECT_NE(status.err.find("host b"), std::string::npos) << status.err;
  a->wait();
  EXPECT_TRUE(wait_until_gone(kMark, mark_));
}

// Bytes for a frozen host wait in the tunnel for a moment. They must not excuse its silence.
TEST_F(JoinedJob, AFrozenRelayIsALostHostAndNothingStays) {
  const auto job = start_job(
      {"-H", "a:1,b:1", "--heartbeat-timeout", "1", "sh", "-c", "echo up; exec sleep 1000"});
  const auto a = start_agent("a", 1);
  const auto b = start_agent("b", 1);
  ASSERT_TRUE(job->wait_for_output("[0]<stdout>:up")) << job->err();
  ASSERT_TRUE(job->wait_for_output("[1]<stdout>:up")) << job->err();
  b->signal(SIGSTOP);
  const auto status = job->wait();
  EXPECT_EQ(status.code, 1) << status.err;
  EXPECT_NE(status.err.find("host b"), std::string::npos) << status.err;
  EXPECT_NE(status.err.find("no sign of life for 1 s"), std::string::npos) << status.err;
  b->signal(SIGCONT);
  EXPECT_NE(b->wait().code, 0);
  a->wait();
  EXPECT_TRUE(wait_until_gone(kMark, mark_));
}

TEST_F(JoinedJob, AgentsEndWithTheCodeOfTheJob) {
  const auto job = start_job({"-np", "2", "sh", "-c", "[ $HVD_RANK = 0 ] && exit 7; sleep 1000"});
  const auto a = start_agent("a", 1);
  const auto b = start_agent("b", 1);
  EXPECT_EQ(job->wait().code, 7) << job->err();
  EXPECT_EQ(a->wait().code, 7) << a->err();
  EXPECT_EQ(b->wait().code, 7) << b->err();
  EXPECT_TRUE(wait_until_gone(kMark, mark_));
}

TEST_F(JoinedJob, AKilledHvdrunEndsAllAgents) {
  const auto job = start_job({"-H", "a:1", "sh", "-c", "echo up; exec sleep 1000"});
  const auto a = start_agent("a", 1);
  ASSERT_TRUE(job->wait_for_output("up")) << job->err();
  job->signal(SIGKILL);
  EXPECT_NE(a->wait().code, 0);
  EXPECT_NE(a->err().find("was lost"), std::string::npos) << a->err();
  EXPECT_TRUE(wait_until_gone(kMark, mark_));
}

TEST_F(JoinedJob, AHostThatDoesNotJoinIsNamed) {
  const auto job = start_job({"-H", "a:1,b:1", "--start-timeout", "1", "true"});
  const auto a = start_agent("a", 1);
  const auto status = job->wait();
  EXPECT_EQ(status.code, 1);
  EXPECT_NE(status.err.find("b did not come to " + where_), std::string::npos) << status.err;
  // It does not try again: this hvdrun has told it.
  EXPECT_EQ(a->wait().code, 1);
  EXPECT_NE(a->err().find("ended before this machine had its turn"), std::string::npos) << a->err();
}

// ---- an agent waits for its turn ----

class WaitingAgent : public JoinedJob {
 protected:
  static constexpr const char* kJoined = "joined the job at";
  static constexpr const char* kSilent =
      "was lost before this machine had its turn: it gave no sign of life for 1 s; trying again";

  // Needs two slots.
  std::unique_ptr<Process> start_waiting_job() {
    auto job = start_job({"-np", "2", "--heartbeat-timeout", "1", "--start-timeout", "300",
                          "--verbose", binary("allreduce_once")});
    EXPECT_TRUE(job->wait_for_error("waiting at")) << job->err();
    return job;
  }
  // With one of them.
  std::unique_ptr<Process> start_waiting_agent(Process& job, const std::string& host) {
    auto agent = start_agent(host, 1);
    EXPECT_TRUE(job.wait_for_error(cat("host ", host, " has joined"))) << job.err();
    EXPECT_TRUE(agent->wait_for_error(kJoined)) << agent->err();
    return agent;
  }
  static void expect_joins_again(Process& agent) {
    const auto lost = agent.err().rfind("trying again");
    ASSERT_NE(lost, std::string::npos) << agent.err();
    EXPECT_TRUE(agent.wait_for_error(kJoined, kGenerous, lost)) << agent.err();
  }
  void finish(Process& job, Process& agent) {
    const auto other = start_agent("b", 1);
    EXPECT_EQ(job.wait().code, 0) << job.err();
    EXPECT_EQ(agent.wait().code, 0) << agent.err();
    EXPECT_EQ(other->wait().code, 0) << other->err();
    EXPECT_TRUE(wait_until_gone(kMark, mark_));
  }
};

TEST_F(WaitingAgent, NoticesThatHvdrunIsFrozenAndJoinsItAgainWhenItGoesOn) {
  const auto job = start_waiting_job();
  const auto a = start_waiting_agent(*job, "a");
  job->signal(SIGSTOP);
  ASSERT_TRUE(a->wait_for_error(kSilent)) << a->err();
  job->signal(SIGCONT);
  ASSERT_TRUE(job->wait_for_error("the agent of host a, which had joined, is lost")) << job->err();
  expect_joins_again(*a);
  finish(*job, *a);
}

TEST_F(WaitingAgent, JoinsTheHvdrunThatTakesThePlaceOfAFrozenOne) {
  const auto first = start_waiting_job();
  const auto a = start_waiting_agent(*first, "a");
  first->signal(SIGSTOP);
  ASSERT_TRUE(a->wait_for_error(kSilent)) << a->err();
  first->signal(SIGKILL);
  first->wait();
  const auto second = start_waiting_job();
  expect_joins_again(*a);
  finish(*second, *a);
}

TEST_F(WaitingAgent, JoinsTheHvdrunThatTakesThePlaceOfAKilledOne) {
  const auto first = start_waiting_job();
  const auto a = start_waiting_agent(*first, "a");
  first->signal(SIGKILL);
  first->wait();
  ASSERT_TRUE(a->wait_for_error("was lost before this machine had its turn")) << a->err();
  const auto second = start_waiting_job();
  expect_joins_again(*a);
  finish(*second, *a);
}

TEST_F(WaitingAgent, IsForgottenWhenItIsFrozenAndTheJobBeginsWithoutIt) {
  const auto job = start_waiting_job();
  const auto a = start_waiting_agent(*job, "a");
  a->signal(SIGSTOP);
  ASSERT_TRUE(job->wait_for_error(
      "the agent of host a, which had joined, is lost: it gave no sign of life for 1 s"))
      << job->err();
  const auto instead = start_agent("c", 2);
  EXPECT_EQ(job->wait().code, 0) << job->err();
  EXPECT_EQ(instead->wait().code, 0) << instead->err();
  EXPECT_TRUE(wait_until_gone(kMark, mark_));
}

// The time in which it was stopped itself is no silence of hvdrun, which has given it up.
TEST_F(WaitingAgent, JoinsAgainWhenItGoesOnAfterAFreeze) {
  const auto job = start_waiting_job();
  const auto a = start_waiting_agent(*job, "a");
  a->signal(SIGSTOP);
  ASSERT_TRUE(job->wait_for_error("the agent of host a, which had joined, is lost")) << job->err();
  a->signal(SIGCONT);
  ASSERT_TRUE(a->wait_for_error("trying again")) << a->err();
  EXPECT_EQ(a->err().find("no sign of life"), std::string::npos) << a->err();
  expect_joins_again(*a);
  finish(*job, *a);
}

TEST_F(WaitingAgent, EndsAtATerminationAndHvdrunForgetsIt) {
  const auto job = start_waiting_job();
  const auto a = start_waiting_agent(*job, "a");
  a->signal(SIGUSR1);  // asks what workers do; there are none
  a->signal(SIGTERM);
  EXPECT_EQ(a->wait().code, 128 + SIGTERM) << a->err();
  ASSERT_TRUE(job->wait_for_error("the agent of host a, which had joined, is lost")) << job->err();
  const auto again = start_agent("a", 1);
  finish(*job, *again);
}

}  // namespace
}  // namespace hvd::test
