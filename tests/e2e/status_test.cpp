// `hvdrun jobs`, `status`, `dump`, `stop`, `drain` and `scale`, from another terminal than that of
// the job.
#include <csignal>
#include <filesystem>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/socket.h"
#include "base/text.h"
#include "tests/e2e/elastic_job.h"

namespace hvd::test {
namespace {

using Json = nlohmann::json;

class StatusTest : public AskedJobTest {
 protected:
  std::vector<std::filesystem::path> socket_files() const {
    std::vector<std::filesystem::path> files;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(sockets(), ignored)) {
      files.push_back(entry.path());
    }
    return files;
  }
  // Of the only job.
  Json status() {
    const ExitStatus asked = run_job({"status", "--json"});
    EXPECT_EQ(asked.code, 0) << asked.err;
    return Json::parse(asked.out, nullptr, false);
  }
  // The job does as it is asked, and says so.
  void expect_granted(const Words& request, const std::string& text) {
    const ExitStatus asked = run_job(request);
    EXPECT_EQ(asked.code, 0) << asked.err;
    EXPECT_NE(asked.out.find(text), std::string::npos) << asked.out;
  }
  void expect_refused(const Words& request, const std::string& why) {
    const ExitStatus asked = run_job(request);
    EXPECT_EQ(asked.code, 1) << asked.out;
    EXPECT_EQ(asked.out, "");
    EXPECT_NE(asked.err.find(why), std::string::npos) << asked.err;
  }
  // The hosts that have a worker, or an agent.
  std::vector<std::string> hosts() {
    std::vector<std::string> names;
    const Json now = status();
    for (const Json& host : now.at("hosts")) names.push_back(host.at("host"));
    return names;
  }
  bool wait_for_job() {
    return eventually([&] { return run_job({"jobs"}).out.find("running") != std::string::npos; });
  }

  // A connection on which these bytes were sent.
  UniqueFd sent(const std::string& bytes) {
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = socket_files().at(0);
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    (void)::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    return fd;
  }
  // The answer to these bytes on a connection of their own.
  std::string raw(const std::string& bytes) {
    const UniqueFd fd = sent(bytes);
    ::shutdown(fd.get(), SHUT_WR);
    std::string answer;
    std::array<char, 4096> buffer{};
    for (;;) {
      const ssize_t got = ::recv(fd.get(), buffer.data(), buffer.size(), 0);
      if (got <= 0) return answer;
      answer.append(buffer.data(), static_cast<std::size_t>(got));
    }
  }
};

TEST_F(StatusTest, ShowsTheWorldAndWhyItChanged) {
  Process& job = start_training({"-np", "3", "--min-np", "2"});
  ASSERT_TRUE(step_logs().wait_for_step(5)) << job.err();

  ASSERT_TRUE(eventually([&] { return status().at("work").at("totals").contains("allreduce"); }));
  const Json before = status();
  EXPECT_EQ(before.at("schema"), 1);
  EXPECT_EQ(before.at("state"), "running");
  EXPECT_EQ(before.at("elastic"), true);
  const Json& members = before.at("world").at("members");
  ASSERT_EQ(members.size(), 3U);
  for (int rank = 0; rank < 3; ++rank) {
    const Json& member = members.at(static_cast<std::size_t>(rank));
    EXPECT_EQ(member.at("rank"), rank);
    EXPECT_EQ(member.at("state"), "initialised");
    EXPECT_EQ(kill_one(member.at("pid").get<pid_t>(), 0), 0);
  }

  ASSERT_EQ(kill_one(members.at(1).at("pid").get<pid_t>(), SIGKILL), 0);
  ASSERT_TRUE(step_logs().wait_for_steps_more(5)) << job.err();
  Json after;
  ASSERT_TRUE(eventually([&] {
    after = status();
    return after.at("worlds").size() >= 2 && after.at("worlds").back().at("entry").is_object();
  }));
  const Json& entry = after.at("worlds").back().at("entry");
  double parts = 0;
  for (const char* const part : {"leave", "wait", "connect", "vote", "sync", "step"}) {
    parts += entry.at(part).get<double>();
  }
  EXPECT_NEAR(parts, entry.at("seconds").get<double>(), 1e-6) << entry.dump(2);
  EXPECT_GT(entry.at("connect"), 0) << entry.dump(2);
  EXPECT_GT(entry.at("step"), 0) << entry.dump(2);
  EXPECT_NE(after.at("worlds").at(1).at("why").get<std::string>().find("SIGKILL"),
            std::string::npos)
      << after.dump(2);

  const ExitStatus words = run_job({"status"});
  EXPECT_EQ(words.code, 0) << words.err;
  for (const char* const text :
       {"job ", "running, for ", "RANK  WORKER", "localhost#0", "HOST", "WORLD",
        "SIGKILL (signal 9)", " took the longest, ", "to connect, "}) {
    EXPECT_NE(words.out.find(text), std::string::npos) << text << "\n" << words.out;
  }
  finish(job);
  EXPECT_TRUE(socket_files().empty());
  EXPECT_EQ(run_job({"jobs"}).out, "no job of this user runs on this machine\n");
  const ExitStatus none = run_job({"status"});
  EXPECT_EQ(none.code, 1);
  EXPECT_NE(none.err.find("no job of this user runs"), std::string::npos) << none.err;
}

TEST_F(StatusTest, DumpsWhatEachWorkerDoes) {
  Process& job = start_training({"-np", "2", "--min-np", "2"}, {"--step", "200000"});
  ASSERT_TRUE(step_logs().wait_for_step(2)) << job.err();
  const ExitStatus dump = run_job({"dump"});
  EXPECT_EQ(dump.code, 0) << dump.err;
  for (const char* const text :
       {"what the 2 workers do:", "rank  worker", "in flight", "localhost#0", "localhost#1"}) {
    EXPECT_NE(dump.out.find(text), std::string::npos) << text << "\n" << dump.out;
  }
  EXPECT_EQ(job.err().find("what the 2 workers do"), std::string::npos)
      << "only the client that asked gets the answer";
  finish(job);
}

TEST_F(StatusTest, StopsTheJobThatIsNamed) {
  Process& one = start({"-np", "1", "sleep", "1000"});
  Process& other = start({"-np", "2", "sleep", "1000"});
  ASSERT_TRUE(eventually([&] { return socket_files().size() == 2; }));
  ASSERT_TRUE(eventually([&] {
    const Json jobs = Json::parse(run_job({"jobs", "--json"}).out, nullptr, false);
    return jobs.size() == 2 && jobs.at(0).at("state") == "running" &&
           jobs.at(1).at("state") == "running";
  }));

  const ExitStatus unclear = run_job({"stop"});
  EXPECT_EQ(unclear.code, 1);
  EXPECT_NE(unclear.err.find("2 jobs run: "), std::string::npos) << unclear.err;
  const ExitStatus unknown = run_job({"stop", "no-such-job"});
  EXPECT_EQ(unknown.code, 1);
  EXPECT_NE(unknown.err.find("no job \"no-such-job\""), std::string::npos) << unknown.err;

  const Json jobs = Json::parse(run_job({"jobs", "--json"}).out);
  const bool first_is_one = jobs.at(0).at("world").at("members").size() == 1;
  const std::string id = jobs.at(first_is_one ? 0 : 1).at("job");
  const ExitStatus stopped = run_job({"stop", id});
  EXPECT_EQ(stopped.code, 0) << stopped.err;
  EXPECT_EQ(stopped.out, cat("job ", id, " is being stopped\n"));
  EXPECT_EQ(one.wait().code, 143);

  const ExitStatus last = run_job({"stop"});
  EXPECT_EQ(last.code, 0) << last.err;
  EXPECT_EQ(other.wait().code, 143);
}

TEST_F(StatusTest, ADrainedHostTakesNoPartUntilThatIsUndone) {
  Process& job = start_training({"-H", "localhost:2,127.0.0.1:1", "--min-np", "1"});
  const auto all = step_logs().wait_for_world(3);
  ASSERT_NE(all, 0) << job.err();
  EXPECT_EQ(status().at("drained"), Json::array());

  expect_granted({"drain", "127.0.0.1"},
                 ": host 127.0.0.1 is drained: 1 worker there leaves at the next commit\n");
  const auto fewer = step_logs().wait_for_world(2, all);
  ASSERT_NE(fewer, 0) << job.err();
  ASSERT_TRUE(eventually([&] { return hosts() == Words{"localhost"}; })) << job.err();
  EXPECT_EQ(status().at("drained"), Json::array({"127.0.0.1"}));
  EXPECT_NE(run_job({"status"}).out.find("\ndrained: 127.0.0.1\n"), std::string::npos);
  expect_granted({"drain", "127.0.0.1"}, "is drained already");

  // Nobody takes its place there.
  kill_rank(0);
  const auto replaced = step_logs().wait_for_world(2, fewer);
  ASSERT_NE(replaced, 0) << job.err();
  EXPECT_EQ(hosts(), Words{"localhost"});

  expect_granted({"drain", "--undo", "127.0.0.1"}, ": host 127.0.0.1 is used again\n");
  ASSERT_NE(step_logs().wait_for_world(3, replaced), 0) << job.err();
  EXPECT_EQ(status().at("drained"), Json::array());
  const ExitStatus end = finish(job);
  EXPECT_NE(end.err.find("127.0.0.1#0 left: host 127.0.0.1 is drained"), std::string::npos)
      << end.err;
  EXPECT_NE(end.err.rfind(" worlds, 1 worker lost, "), std::string::npos) << end.err;
}

TEST_F(StatusTest, AJobIsScaledDownAndUp) {
  Process& job = start_training({"-np", "3", "--min-np", "1"});
  const auto all = step_logs().wait_for_world(3);
  ASSERT_NE(all, 0) << job.err();
  EXPECT_TRUE(status().at("scaled_to").is_null());

  expect_granted({"scale", "1"}, ": the job is scaled to 1 worker; its world has 3 now\n");
  const auto one = step_logs().wait_for_world(1, all);
  ASSERT_NE(one, 0) << job.err();
  EXPECT_EQ(status().at("scaled_to"), 1);
  EXPECT_NE(run_job({"status"}).out.find("\nscaled to: at most 1 worker"), std::string::npos);

  expect_granted({"scale", "3"}, ": the job is scaled to 3 workers; its world has 1 now\n");
  ASSERT_NE(step_logs().wait_for_world(3, one), 0) << job.err();
  finish(job);
}

TEST_F(StatusTest, ARequestThatIsRefusedChangesNothing) {
  Process& job =
      start_training({"-H", "localhost:1,127.0.0.1:1", "--min-np", "2", "--max-np", "3"});
  ASSERT_NE(step_logs().wait_for_world(2), 0) << job.err();
  expect_refused({"drain", "nowhere"}, "it has no host \"nowhere\", but 127.0.0.1 and localhost");
  expect_refused({"drain", "localhost"},
                 "without host localhost it would have 1 slot ready, and it needs at least 2 "
                 "(--min-np)");
  expect_refused({"drain", "--undo", "localhost"}, "host \"localhost\" is not drained");
  for (const char* const size : {"1", "4"}) {
    expect_refused({"scale", size}, "from 2 (--min-np) to 3 workers (--max-np, or -np without it)");
  }
  for (const Words& wrong : std::vector<Words>{{"drain"},
                                               {"scale"},
                                               {"scale", "0"},
                                               {"scale", "x"},
                                               {"scale", "2", ""},
                                               {"stop", ""},
                                               {"status", ""}}) {
    EXPECT_EQ(run_job(wrong).code, 2);
  }
  EXPECT_EQ(raw("GET /drain HTTP/1.1\r\n\r\n").substr(9, 3), "405");
  EXPECT_EQ(raw("POST /scale HTTP/1.1\r\nContent-Length: 2\r\n\r\nx\n").substr(9, 3), "409");
  EXPECT_EQ(raw("GET /token HTTP/1.1\r\n\r\n").substr(9, 3), "405");

  ASSERT_TRUE(step_logs().wait_for_steps_more(3)) << job.err();
  EXPECT_EQ(status().at("worlds").size(), 1U);
  finish(job);
}

TEST_F(StatusTest, AStaticJobIsNeitherDrainedNorScaled) {
  Process& job = start({"-np", "1", "sleep", "1000"});
  ASSERT_TRUE(wait_for_job());
  expect_refused({"drain", "localhost"}, "since it is not elastic");
  expect_refused({"scale", "1"}, "since it is not elastic");
  EXPECT_EQ(status().at("state"), "running");
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait().code, 143);
}

TEST_F(StatusTest, ARequestThatWasGivenUpIsNotCarriedOut) {
  Process& job = start_training({"-np", "2", "--min-np", "1"});
  ASSERT_NE(step_logs().wait_for_world(2), 0) << job.err();
  const std::string scale = "POST /scale HTTP/1.1\r\nContent-Length: 1\r\n\r\n1";
  job.signal(SIGSTOP);
  sent(scale);  // and closed
  job.signal(SIGCONT);
  // This one is asked after it.
  EXPECT_TRUE(status().at("scaled_to").is_null());
  EXPECT_NE(raw(scale).find("200"), std::string::npos);
  EXPECT_EQ(status().at("scaled_to"), 1);
  finish(job);
}

TEST_F(StatusTest, RubbishAtTheSocketHarmsNothing) {
  Process& job = start({"-np", "1", "sleep", "1000"});
  ASSERT_TRUE(wait_for_job());
  EXPECT_NE(raw("GET /none HTTP/1.1\r\n\r\n").find("404"), std::string::npos);
  EXPECT_NE(raw("GET /stop HTTP/1.1\r\n\r\n").find("405"), std::string::npos);
  const std::string head = raw("HEAD /status HTTP/1.1\r\n\r\n");
  EXPECT_NE(head.find("405"), std::string::npos) << head;
  EXPECT_NE(head.find("\r\nAllow: GET\r\n"), std::string::npos) << head;
  EXPECT_TRUE(head.ends_with("\r\n\r\n")) << head;
  EXPECT_NE(raw("POST /status HTTP/1.1\r\nContent-Length: 0\r\n\r\n").find("405"),
            std::string::npos);
  raw("");
  raw(std::string(100'000, 'x'));
  raw("POST /stop HTTP/1.1\r\nContent-Length: 9999999\r\n\r\n");
  raw(cat("GET /status HTTP/1.1\r\nX: ", std::string(20'000, 'x'), "\r\n\r\n"));
  EXPECT_EQ(status().at("state"), "running");
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait().code, 143);
}

// Root looks at the directories of all users, but not if one is named.
TEST_F(StatusTest, OnlyTheDirectoryThatIsNamedIsLookedAt) {
  ::unsetenv("HVD_RUNTIME_DIR");
  Process& elsewhere = start({"-np", "1", "sleep", "1000"});
  ASSERT_TRUE(wait_for_job());
  ::setenv("HVD_RUNTIME_DIR", sockets().c_str(), 1);
  EXPECT_EQ(run_job({"jobs"}).out, "no job of this user runs on this machine\n");
  elsewhere.signal(SIGTERM);
  EXPECT_EQ(elsewhere.wait().code, 143);
}

TEST_F(StatusTest, TheSocketOfAKilledJobIsNoJobAndTheNextOneRemovesIt) {
  Process& killed = start({"-np", "1", "sleep", "1000"});
  ASSERT_TRUE(wait_for_job());
  const auto left = socket_files().at(0);
  crash(killed);
  EXPECT_EQ(run_job({"jobs"}).out, "no job of this user runs on this machine\n");

  EXPECT_EQ(run_job({"-np", "1", "true"}).code, 0);
  EXPECT_FALSE(std::filesystem::exists(left));
}

// As the end of a login removes it.
TEST_F(StatusTest, AJobIsFoundAgainAfterItsDirectoryWasRemoved) {
  Process& job = start({"-np", "1", "sleep", "1000"});
  ASSERT_TRUE(wait_for_job());
  for (int time = 0; time < 2; ++time) {
    std::filesystem::remove_all(sockets());
    ASSERT_TRUE(wait_for_job());
  }
  EXPECT_EQ(status().at("state"), "running");
  std::filesystem::remove(socket_files().at(0));
  ASSERT_TRUE(wait_for_job());
  expect_granted({"stop"}, "is being stopped");
  EXPECT_EQ(job.wait().code, 143);
  EXPECT_TRUE(socket_files().empty());
}

TEST_F(StatusTest, ADirectoryThatIsOpenToOthersIsNotUsed) {
  std::filesystem::create_directory(sockets());
  std::filesystem::permissions(sockets(), std::filesystem::perms{0755});
  const ExitStatus end = run_job({"--verbose", "-np", "1", "true"});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_NE(end.err.find("is not a directory of this user that is closed to others"),
            std::string::npos)
      << end.err;
  EXPECT_TRUE(socket_files().empty());
}

// Also if the file's permissions were no help.
TEST_F(StatusTest, AnotherUserGetsNothing) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  Process& job = start({"-np", "1", "sleep", "1000"});
  ASSERT_TRUE(wait_for_job());
  for (const auto& path : {directory(), sockets()}) {
    std::filesystem::permissions(path, std::filesystem::perms{0755});
  }
  ASSERT_EQ(::chmod(socket_files().at(0).c_str(), 0666), 0);
  std::string answer;
  std::thread([&] {
    ASSERT_EQ(::syscall(SYS_setresuid, -1, 65534, -1), 0);  // of this thread alone
    answer = raw("GET /status HTTP/1.1\r\n\r\n");
  }).join();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 403 ")) << answer;
  EXPECT_TRUE(answer.ends_with("\r\n\r\nthis job belongs to another user\n")) << answer;

  job.signal(SIGTERM);
  EXPECT_EQ(job.wait().code, 143);
}

}  // namespace
}  // namespace hvd::test
