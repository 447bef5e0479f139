// `hvdrun --status-page` and `hvdrun page`: real jobs, and requests to their pages by hand.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "tests/e2e/page_job.h"
#include "tests/support/free_address.h"

namespace hvd::test {
namespace {

using Json = nlohmann::json;

class PageTest : public PageJobTest {
 protected:
  static Json status(const SocketAddress& server, const std::string& token) {
    const std::string answer = get(server, "/status", token);
    const auto body = answer.find("\r\n\r\n");
    if (body == std::string::npos) return {};
    return Json::parse(answer.substr(body + 4), nullptr, false);
  }
};

TEST_F(PageTest, TheLinkOpensThePageOnce) {
  Process& job = start_training({"-np", "2", "--min-np", "1", "--status-page"});
  const std::string link = link_of(job);
  const SocketAddress server = server_of(link);
  EXPECT_TRUE(server.host.starts_with("127.")) << link;
  ASSERT_TRUE(step_logs().wait_for_step(2)) << job.err();

  for (const char* const path : {"/status", "/events", "/none"}) {
    EXPECT_EQ(code_of(get(server, path)), "401") << path;
  }
  const std::string token = open(link);
  const std::string again = get(server, target_of(link));
  EXPECT_EQ(code_of(again), "401");
  EXPECT_NE(again.find("hvdrun page "), std::string::npos) << again;

  EXPECT_NE(get(server, "/").find("<!doctype html>"), std::string::npos);
  EXPECT_EQ(status(server, token).at("world").at("members").size(), 2U);
  EXPECT_EQ(code_of(get(server, "/none", token)), "404");
  EXPECT_EQ(code_of(receive(send(server, cat("POST /status HTTP/1.1\r\nHost: ", server.to_string(),
                                             "\r\n", token, "Content-Length: 0\r\n\r\n")))),
            "405");
  EXPECT_EQ(code_of(receive(send(server, cat("GET /status HTTP/1.1\r\nHost: evil.example:",
                                             server.port, "\r\n", token, "\r\n")))),
            "403");
  EXPECT_EQ(code_of(get(server, "/status", cat(token, "Origin: http://evil.example\r\n"))), "403");
  EXPECT_EQ(code_of(get(server, "/status", cat(token, "Sec-Fetch-Site: cross-site\r\n"))), "403");
  finish(job);
}

// To a browser an address and a port are a site. What a neighbour's server has left in the browser
// under a site that it knew beforehand, such as a service worker, would see the page's token.
TEST_F(PageTest, EachJobsPageIsASiteThatNobodyCouldPrepare) {
  std::set<std::string> hosts;
  for (int i = 0; i < 3; ++i) {
    Process& job = start({"-np", "1", "--status-page", "sleep", "1000"});
    const std::string link = link_of(job);
    const SocketAddress server = server_of(link);
    EXPECT_TRUE(server.host.starts_with("127.")) << link;
    EXPECT_FALSE(server.host.starts_with("127.0.")) << link;
    EXPECT_FALSE(server.host.ends_with(".0") || server.host.ends_with(".255")) << link;
    hosts.insert(server.host);

    // It is nowhere else, and `localhost` is no name of it.
    EXPECT_FALSE(connect_tcp({"127.0.0.1", server.port}, Clock::now() + kGenerous).ok());
    const std::string named =
        receive(send(server, cat("GET / HTTP/1.1\r\nHost: localhost:", server.port, "\r\n\r\n")));
    EXPECT_EQ(code_of(named), "403") << named;
    EXPECT_EQ(code_of(get(server, "/status", open(link))), "200");
    job.signal(SIGTERM);
    EXPECT_EQ(job.wait().code, 143);
  }
  EXPECT_EQ(hosts.size(), 3U);
}

// As in some containers: one address of the loopback network, and no other.
TEST_F(PageTest, WhereThereIsNoOtherLoopbackAddressTheUsualOneIsTaken) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make a network namespace here";
  const std::string hvdrun = binary("hvdrun");
  const ExitStatus end =
      run({"unshare", "-n", "sh", "-c",
           cat("ip link set lo up && ip address flush dev lo && ip address add 127.0.0.1/32 dev lo "
               "&& exec ",
               hvdrun, " -np 1 --status-page true")});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_TRUE(link_in(end.err).starts_with("http://127.0.0.1:")) << end.err;
}

TEST_F(PageTest, EventsTellOfALossAndOfTheEnd) {
  Process& job = start_training(
      {"-np", "3", "--min-np", "2", "--heartbeat-timeout", "0.5", "--status-page=127.0.0.1:0"});
  const std::string link = link_of(job);
  const SocketAddress server = server_of(link);
  const std::string token = open(link);
  ASSERT_TRUE(step_logs().wait_for_step(5)) << job.err();

  const UniqueFd events = send(server, request(server, "/events", token));
  std::string seen = receive(events, "retry: 1000\n\n");
  kill_rank(1);
  seen += receive(events, "was killed by SIGKILL (signal 9)\",\"world\"");
  EXPECT_NE(seen.find("\"event\":\"exited\""), std::string::npos) << seen;
  ASSERT_TRUE(eventually([&] { return status(server, token).at("worlds").size() >= 2; }));

  // A client that comes again gets what it lacks and nothing twice.
  const auto id = seen.rfind("\nid: ");
  ASSERT_NE(id, std::string::npos);
  const auto last = parse_number<int>(seen.substr(id + 5, seen.find('\n', id + 5) - id - 5));
  ASSERT_TRUE(last);
  const UniqueFd later =
      send(server, request(server, "/events", cat(token, "Last-Event-ID: ", *last - 1, "\r\n")));
  const std::string rest = receive(later, cat("\nid: ", *last, "\n"));
  EXPECT_EQ(rest.find(cat("\nid: ", *last - 1, "\n")), std::string::npos) << rest;

  ASSERT_TRUE(step_logs().wait_for_steps_more(50)) << job.err();
  finish(job);
  seen += receive(events);
  EXPECT_NE(seen.find("event: end\ndata: {\"exit_code\":0"), std::string::npos);
  // Events that only show that time passes, as heartbeats do, have no time and are left out.
  std::size_t lines = 0;
  for (const auto& line : lines_of(seen)) {
    if (!line.starts_with("data: {") || line.find("exit_code\":0,\"reason") != std::string::npos) {
      continue;
    }
    ++lines;
    EXPECT_NE(line.find("\"at\":"), std::string::npos) << line;
  }
  EXPECT_GT(lines, 5U);
}

TEST_F(PageTest, TheCommandPrintsAFreshLinkAndNoOtherPlaceHasAny) {
  Process& job = start_training({"-np", "2", "--min-np", "1", "--status-page", "127.0.0.1:0",
                                 "--events", directory() / "journal"});
  const std::string first = link_of(job);
  const SocketAddress server = server_of(first);
  ASSERT_TRUE(step_logs().wait_for_step(2)) << job.err();

  const ExitStatus asked = run_job({"page"});
  EXPECT_EQ(asked.code, 0) << asked.err;
  const std::string second = link_in(asked.out);
  EXPECT_NE(second, first);
  EXPECT_EQ(asked.out, second + "\n");
  const std::string token = open(second);
  const std::string other = open(first);
  EXPECT_EQ(code_of(get(server, "/status", token)), "200");
  EXPECT_EQ(code_of(get(server, "/status", other)), "200");

  std::vector<std::string> secrets;
  for (const auto& text : {target_of(first), target_of(second), token, other}) {
    secrets.push_back(text.substr(text.find_last_of("= ") + 1, 64));
  }
  const std::string listed = run({"sh", "-c", "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ"}).out;
  const std::string known = run_job({"status", "--json"}).out + run_job({"metrics"}).out;
  const ExitStatus end = finish(job);
  for (const auto& secret : secrets) {
    ASSERT_EQ(secret.size(), 64U);
    EXPECT_EQ(read_file(directory() / "journal").find(secret), std::string::npos);
    EXPECT_EQ(listed.find(secret), std::string::npos);
    EXPECT_EQ(known.find(secret), std::string::npos);
    EXPECT_EQ(end.out.find(secret), std::string::npos);
    // Once, in the link that is printed at the beginning.
    EXPECT_EQ(end.err.find(secret) != std::string::npos, secret == secrets.front());
    EXPECT_EQ(end.err.find(secret), end.err.rfind(secret));
  }
}

TEST_F(PageTest, AJobWithoutAPageSaysHowToHaveOne) {
  Process& job = start({"-np", "1", "sleep", "1000"});
  ASSERT_TRUE(eventually([&] { return run_job({"status"}).code == 0; }));
  const ExitStatus asked = run_job({"page"});
  EXPECT_EQ(asked.code, 1);
  EXPECT_NE(asked.err.find("it has no status page: --status-page starts one"), std::string::npos)
      << asked.err;
  EXPECT_EQ(job.err().find("http://"), std::string::npos);
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait().code, 143);
}

// It takes what it can hold, and the job goes on at its pace.
TEST_F(PageTest, AReaderThatNeverReadsHoldsUpNothing) {
  Process& job = start_training({"-np", "2", "--min-np", "1", "--status-page"});
  const std::string link = link_of(job);
  const SocketAddress server = server_of(link);
  const std::string token = open(link);
  std::vector<UniqueFd> deaf;
  for (int i = 0; i < 30; ++i) deaf.push_back(send(server, request(server, "/events", token)));
  for (int i = 0; i < 30; ++i) deaf.push_back(send(server, request(server, "/status", token)));
  for (int i = 0; i < 30; ++i) deaf.push_back(send(server, "GET / HTTP/1.1\r\nHost: "));
  ASSERT_TRUE(step_logs().wait_for_step(2)) << job.err();
  kill_rank(0);
  ASSERT_TRUE(step_logs().wait_for_steps_more(5)) << job.err();
  EXPECT_EQ(code_of(get(server, "/status", token)), "200");
  finish(job);
}

TEST_F(PageTest, RubbishHarmsNothing) {
  Process& job = start({"-np", "1", "--status-page", "sleep", "1000"});
  const std::string link = link_of(job);
  const SocketAddress server = server_of(link);
  for (const std::string& bytes : {std::string("\r\n\r\n"), std::string(100'000, 'x'),
                                   cat("GET /?key=", std::string(20'000, '0'), " HTTP/1.1\r\n\r\n"),
                                   cat("GET /status HTTP/1.1\r\nHost: ", server.to_string(),
                                       "\r\nAuthorization: ", std::string(7'000, ';'), "\r\n\r\n"),
                                   std::string("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")}) {
    auto fd = connect_tcp(server, Clock::now() + kGenerous);
    ASSERT_TRUE(fd.ok());
    (void)::send(fd->get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    ::shutdown(fd->get(), SHUT_WR);
    const std::string answer = receive(*fd);
    EXPECT_NE(code_of(answer), "200") << answer;
  }
  EXPECT_EQ(code_of(get(server, "/status", open(link))), "200");
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait().code, 143);
}

TEST_F(PageTest, TakesAPortOfTheRangeAndGivesItBack) {
  const SocketAddress base = free_address();
  const std::string range = cat(base.port, "-", base.port + 8);
  Process& job = start({"--port-range", range, "--status-page", "-np", "1", "sleep", "1000"});
  const SocketAddress server = server_of(link_of(job));
  EXPECT_GE(server.port, base.port);
  EXPECT_LE(server.port, base.port + 8);
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait().code, 143);
  EXPECT_TRUE(listen_tcp(server).ok());
}

TEST_F(PageTest, AnAddressThatCannotBeHadEndsTheJobBeforeItBegins) {
  const auto taken = *listen_tcp({"127.0.0.1", 0});
  const std::string address = local_address(taken.get())->to_string();
  const ExitStatus end = run_job({"--status-page", address, "-np", "1", "echo", "started"});
  EXPECT_EQ(end.code, 1);
  EXPECT_EQ(end.out, "");
  EXPECT_NE(end.err.find("--status-page: "), std::string::npos) << end.err;
  EXPECT_NE(end.err.find("Address already in use"), std::string::npos) << end.err;
}

TEST_F(PageTest, ThereIsAWarningIfTheNetworkCarriesIt) {
  Process& job = start({"--status-page", "0.0.0.0:0", "-np", "1", "sleep", "1000"});
  const std::string link = link_of(job);
  EXPECT_TRUE(link.starts_with("http://127.0.0.1:")) << link;
  EXPECT_NE(job.err().find("speaks plain HTTP"), std::string::npos) << job.err();
  EXPECT_EQ(code_of(get(server_of(link), "/status", open(link))), "200");
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait().code, 143);
  EXPECT_EQ(run_job({"--status-page", "-np", "1", "true"}).err.find("plain HTTP"),
            std::string::npos);
}

TEST_F(PageTest, TheConfigFileNamesTheAddress) {
  const std::string config =
      directory_file("job.yaml", "status_page:\n  bind: '[::1]:0'\nlaunch:\n  num_proc: 1\n");
  Process& job = start({"--config-file", config, "sleep", "1000"});
  EXPECT_TRUE(link_of(job).starts_with("http://[::1]:")) << job.err();
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait().code, 143);
}

}  // namespace
}  // namespace hvd::test
