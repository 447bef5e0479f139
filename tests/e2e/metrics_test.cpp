// `hvdrun metrics` and `--metrics-bind`: real jobs, whose metrics promtool checks and a real
// Prometheus scrapes.
#include <array>
#include <csignal>
#include <filesystem>
#include <memory>
#include <optional>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/machine/machine.h"
#include "base/socket.h"
#include "base/text.h"
#include "tests/driver/metrics/metric_text.h"
#include "tests/e2e/elastic_job.h"
#include "tests/support/free_address.h"

namespace hvd::test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

bool is_installed(const std::string& program) {
  return run({"sh", "-c", cat("command -v ", program)}).code == 0;
}

// The answer of an HTTP/1.1 server to these lines, until it closes; empty: no server answers.
std::string answer_to(const SocketAddress& server, const std::string& request) {
  const TimePoint deadline = Clock::now() + kGenerous;
  const auto fd = connect_tcp(server, deadline);
  if (!fd.ok() || !send_all(fd->get(), request, deadline).ok()) return {};
  std::string answer;
  std::array<char, 4096> buffer{};
  while (wait_for(fd->get(), POLLIN, deadline).ok()) {
    const ssize_t got = ::recv(fd->get(), buffer.data(), buffer.size(), 0);
    if (got <= 0) break;
    answer.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return answer;
}

std::string get(const SocketAddress& server, const std::string& target,
                const std::string& token = {}) {
  return answer_to(server,
                   cat("GET ", target, " HTTP/1.1\r\nHost: hvd\r\nConnection: close\r\n",
                       token.empty() ? "" : cat("Authorization: Bearer ", token, "\r\n"), "\r\n"));
}

class MetricsTest : public AskedJobTest {
 protected:
  std::string token_file() const { return directory() / "metrics-token"; }
  std::string token() const { return std::string(trim(read_file(token_file()))); }
  // Flags of a job whose metrics can be had at a port that hvdrun chooses.
  Words metrics_flags() const {
    return {"--metrics-bind", "127.0.0.1:0", "--metrics-token-file", token_file()};
  }
  // Where it says that they are.
  static SocketAddress address_in(Process& job) {
    const std::string text = "the job's metrics are at http://127.0.0.1:";
    EXPECT_TRUE(job.wait_for_error("/metrics")) << job.err();
    const auto at = job.err().find(text);
    EXPECT_NE(at, std::string::npos) << job.err();
    const std::string rest = job.err().substr(at + text.size());
    return {"127.0.0.1", parse_number<std::uint16_t>(rest.substr(0, rest.find('/'))).value_or(0)};
  }
  // Of the only job.
  std::map<std::string, double> metrics() {
    const ExitStatus asked = run_job({"metrics"});
    EXPECT_EQ(asked.code, 0) << asked.err;
    return metric_values(asked.out);
  }

  // A Prometheus that scrapes this job twice a second.
  Process& start_prometheus(const SocketAddress& own, const SocketAddress& job) {
    const std::string config = directory_file(
        "prometheus.yml",
        cat("global: {scrape_interval: 500ms, scrape_timeout: 500ms}\nscrape_configs:\n"
            "  - job_name: hvd\n    authorization: {credentials_file: ",
            token_file(), "}\n    static_configs: [{targets: ['", job.to_string(), "']}]\n"));
    prometheus_ = std::make_unique<Process>(
        Words{"prometheus", cat("--config.file=", config),
              cat("--storage.tsdb.path=", (directory() / "prometheus").string()),
              cat("--web.listen-address=", own.to_string()), "--log.level=warn"});
    return *prometheus_;
  }
  // The value of a query to it; nothing as long as there is none.
  static std::optional<double> query(const SocketAddress& prometheus, const std::string& what) {
    std::string target = "/api/v1/query?query=";
    for (const unsigned char c : what) target += cat("%", to_hex(c));
    const std::string answer = get(prometheus, target);
    const auto body = answer.find("\r\n\r\n");
    if (body == std::string::npos) return std::nullopt;
    const Json json = Json::parse(answer.substr(body + 4), nullptr, false);
    if (!json.is_object() || json.value("status", "") != "success") return std::nullopt;
    const Json& result = json.at("data").at("result");
    if (result.size() != 1) return std::nullopt;
    return std::stod(result.at(0).at("value").at(1).get<std::string>());
  }

 private:
  static std::string to_hex(unsigned char c) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    return {kDigits[c / 16], kDigits[c % 16]};
  }

  std::unique_ptr<Process> prometheus_;
};

TEST_F(MetricsTest, TellOfALossAndOfTheReplacement) {
  Process& job = start_training({"-np", "3", "--min-np", "2"});
  ASSERT_TRUE(step_logs().wait_for_step(5)) << job.err();
  const auto before = metrics();
  EXPECT_EQ(before.at("hvd_world_size"), 3);
  EXPECT_EQ(before.at("hvd_worlds_formed_total{cause=\"start\"}"), 1);
  EXPECT_EQ(before.at("hvd_workers{state=\"initialised\"}"), 3);
  EXPECT_EQ(before.at("hvd_workers_started_total"), 3);
  EXPECT_GT(before.at("hvd_job_state_seconds_total{state=\"running\"}"), 0);

  kill_rank(1);
  ASSERT_TRUE(eventually([&] { return metrics().at("hvd_world_replacement_seconds_count") == 1; }))
      << job.err();
  const auto after = metrics();
  EXPECT_EQ(after.at("hvd_worlds_formed_total{cause=\"worker_lost\"}"), 1);
  EXPECT_EQ(after.at("hvd_workers_ended_total{outcome=\"signal\"}"), 1);
  EXPECT_EQ(after.at("hvd_worker_restarts_total"), 1);
  EXPECT_EQ(after.at("hvd_workers_started_total"), 4);
  EXPECT_EQ(after.at("hvd_world_change_seconds_count{cause=\"worker_lost\"}"), 1);
  finish(job);
}

TEST_F(MetricsTest, CountWhatTheWorkersWrite) {
  Process& job = start({"-np", "2", "sh", "-c", "printf 12345; printf 123 >&2; exec sleep 1000"});
  ASSERT_TRUE(eventually([&] {
    return run_job({"metrics"}).out.find("hvd_worker_output_bytes_total{stream=\"stderr\"} 6") !=
           std::string::npos;
  })) << run_job({"metrics"}).out;
  ASSERT_TRUE(eventually(
      [&] { return metrics().at("hvd_worker_output_bytes_total{stream=\"stdout\"}") == 10; }));
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait().code, 143);
}

TEST_F(MetricsTest, ArePrintedAsPromtoolWantsThem) {
  if (!is_installed("promtool")) GTEST_SKIP() << "no promtool here: scripts/setup installs it";
  Process& job = start_training({"-np", "2", "--min-np", "1", "--max-np", "2"});
  ASSERT_TRUE(step_logs().wait_for_step(2)) << job.err();
  const ExitStatus asked = run_job({"metrics"});
  const std::string file = directory_file("metrics", asked.out);
  const ExitStatus checked = run({"sh", "-c", cat("promtool check metrics < ", file)});
  EXPECT_EQ(checked.code, 0) << checked.out << checked.err;
  finish(job);
}

TEST_F(MetricsTest, AreScrapedByPrometheusWhileAWorkerIsKilled) {
  if (!is_installed("prometheus")) GTEST_SKIP() << "no prometheus here: scripts/setup installs it";
  Words flags = metrics_flags();
  for (const auto* const flag : {"-np", "3", "--min-np", "2"}) flags.emplace_back(flag);
  Process& job = start_training(flags);
  const SocketAddress target = address_in(job);
  ASSERT_TRUE(step_logs().wait_for_step(2)) << job.err();
  const SocketAddress prometheus = free_address();
  const Process& server = start_prometheus(prometheus, target);
  // A scrape may fail on a busy machine, so each value is waited for.
  const auto comes_to = [&](const std::string& what, double value) {
    return eventually([&] { return query(prometheus, what) == value; });
  };
  ASSERT_TRUE(comes_to("hvd_world_size", 3)) << server.err() << job.err();
  EXPECT_TRUE(comes_to("up{job=\"hvd\"}", 1));
  EXPECT_TRUE(comes_to("hvd_worlds_formed_total{cause=\"worker_lost\"}", 0));

  kill_rank(0);
  EXPECT_TRUE(comes_to("hvd_worlds_formed_total{cause=\"worker_lost\"}", 1)) << job.err();
  EXPECT_TRUE(comes_to("hvd_world_replacement_seconds_count", 1)) << job.err();
  EXPECT_TRUE(comes_to("hvd_world_size", 3));
  EXPECT_TRUE(comes_to("hvd_workers_ended_total{outcome=\"signal\"}", 1));
  EXPECT_TRUE(comes_to("count(hvd_job_info{elastic=\"true\"})", 1));
  finish(job);
  EXPECT_TRUE(comes_to("up{job=\"hvd\"}", 0)) << server.err();
}

TEST_F(MetricsTest, OverTheNetworkNeedTheToken) {
  Words flags = metrics_flags();
  for (const auto* const word : {"-np", "1", "sleep", "1000"}) flags.emplace_back(word);
  Process& job = start(flags);
  const SocketAddress server = address_in(job);
  struct stat about {};
  ASSERT_EQ(::stat(token_file().c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600U);

  for (const std::string& wrong : {std::string(), std::string(64, '0'), std::string("rubbish")}) {
    for (const auto* const path : {"/metrics", "/status", "/"}) {
      const std::string answer = get(server, path, wrong);
      EXPECT_TRUE(answer.starts_with("HTTP/1.1 401 ")) << answer;
      EXPECT_EQ(answer.find("hvd_"), std::string::npos) << answer;
    }
  }
  const std::string answer = get(server, "/metrics", token());
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 ")) << answer;
  EXPECT_NE(answer.find("text/plain; version=0.0.4"), std::string::npos) << answer;
  EXPECT_NE(answer.find("\nhvd_job_info{"), std::string::npos) << answer;
  EXPECT_TRUE(get(server, "/status", token()).starts_with("HTTP/1.1 404 "));
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait().code, 143);
}

TEST_F(MetricsTest, TakeAPortOfTheRange) {
  const SocketAddress base = free_address();
  const std::string range = cat(base.port, "-", base.port + 8);
  Words flags = metrics_flags();
  for (const auto& word : Words{"--port-range", range, "-np", "1", "sleep", "1000"}) {
    flags.push_back(word);
  }
  Process& job = start(flags);
  const SocketAddress server = address_in(job);
  EXPECT_GE(server.port, base.port);
  EXPECT_LE(server.port, base.port + 8);
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait().code, 143);
}

TEST_F(MetricsTest, AtAllAddressesAreNamedByTheMachine) {
  for (const char* const all : {"0.0.0.0:0", "[::]:0"}) {
    const ExitStatus end =
        run_job({"--metrics-bind", all, "--metrics-token-file", token_file(), "-np", "1", "true"});
    EXPECT_EQ(end.code, 0) << end.err;
    EXPECT_NE(end.err.find(cat("the job's metrics are at http://", machine_name(), ":")),
              std::string::npos)
        << end.err;
  }
}

// Also if the file's permissions were no help.
TEST_F(MetricsTest, AnotherUserGetsNothing) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  Process& job = start({"-np", "1", "sleep", "1000"});
  ASSERT_TRUE(eventually([&] { return run_job({"metrics"}).code == 0; }));
  const fs::path sockets = directory() / "sockets";
  const fs::path socket = fs::directory_iterator(sockets)->path();
  const Words ask{"setpriv",
                  "--reuid=65534",
                  "--clear-groups",
                  "/usr/bin/python3",
                  "-c",
                  "import socket, sys\n"
                  "server = socket.socket(socket.AF_UNIX)\n"
                  "server.connect(sys.argv[1])\n"
                  "server.sendall(b'GET /metrics HTTP/1.1\\r\\nHost: hvdrun\\r\\n\\r\\n')\n"
                  "print(server.makefile().read())",
                  socket.string()};
  const ExitStatus refused = run(ask);
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.err.find("PermissionError"), std::string::npos) << refused.err;

  for (const auto& path : {directory(), sockets}) fs::permissions(path, fs::perms{0755});
  ASSERT_EQ(::chmod(socket.c_str(), 0666), 0);
  const ExitStatus forbidden = run(ask);
  EXPECT_NE(forbidden.out.find("403 Forbidden"), std::string::npos) << forbidden.out;
  EXPECT_EQ(forbidden.out.find("hvd_"), std::string::npos) << forbidden.out;
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait().code, 143);
}

// All of it ends before a worker is started.
TEST_F(MetricsTest, WithoutAUsableTokenOrAddressEndTheJobBeforeItBegins) {
  const auto expect_refused = [&](const Words& flags, const std::string& error) {
    Words words = flags;
    for (const auto* const word : {"-np", "1", "echo", "started"}) words.emplace_back(word);
    const ExitStatus end = run_job(words);
    EXPECT_EQ(end.code, 1) << end.err;
    EXPECT_EQ(end.out, "");
    EXPECT_NE(end.err.find(error), std::string::npos) << end.err;
  };

  const auto taken = *listen_tcp({"127.0.0.1", 0});
  const std::string address = local_address(taken.get())->to_string();
  expect_refused({"--metrics-bind", address, "--metrics-token-file", token_file()},
                 "--metrics-bind: ");

  const std::string open = directory_file("open", std::string(64, 'a') + "\n");
  fs::permissions(open, fs::perms{0644});
  expect_refused({"--metrics-bind", "127.0.0.1:0", "--metrics-token-file", open}, open);
  const std::string rubbish = directory_file("rubbish", "rubbish\n");
  fs::permissions(rubbish, fs::perms{0600});
  expect_refused({"--metrics-bind", "127.0.0.1:0", "--metrics-token-file", rubbish}, rubbish);

  const std::string join = directory_file("join", std::string(64, 'b') + "\n");
  fs::permissions(join, fs::perms{0600});
  expect_refused({"--metrics-bind", "127.0.0.1:0", "--metrics-token-file", join, "--join-bind",
                  "127.0.0.1:0", "--token-file", join},
                 "the metrics need a token of their own");
}

}  // namespace
}  // namespace hvd::test
