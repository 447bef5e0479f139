// Silent connections to the rendezvous of a running job, more of them than hvdrun may open files.
// The job is not disturbed.
#include <algorithm>
#include <csignal>

#include "base/text.h"
#include "tests/e2e/elastic_job.h"
#include "tests/support/silent_crowd.h"

namespace hvd::test {
namespace {

class FloodedJobTest : public ElasticJobTest {
 protected:
  std::unique_ptr<Process> start_with_few_files(const Words& flags) {
    Words words{"sh", "-c", "ulimit -n 256 && exec \"$0\" \"$@\"", binary("hvdrun")};
    words.insert(words.end(), flags.begin(), flags.end());
    const Words program{binary("elastic_steps"),
                        "--log",
                        (directory() / "step_logs").string(),
                        "--orders",
                        (directory() / "orders").string(),
                        "--until",
                        (directory() / "enough").string(),
                        "--verify"};
    words.insert(words.end(), program.begin(), program.end());
    return std::make_unique<Process>(words,
                                     ProcessOptions{.environment = {{"HVD_E2E_MARK", mark()}}});
  }
  // Where this worker finds the rendezvous.
  static SocketAddress rendezvous_of(pid_t worker) {
    SocketAddress where;
    for (const auto& entry : split(read_file(cat("/proc/", worker, "/environ")), '\0')) {
      const auto value = entry.substr(std::min(entry.find('='), entry.size() - 1) + 1);
      if (entry.starts_with("HVD_RENDEZVOUS_ADDR=")) where.host = value;
      if (entry.starts_with("HVD_RENDEZVOUS_PORT=")) {
        where.port = parse_number<std::uint16_t>(value).value_or(0);
      }
    }
    EXPECT_NE(where.port, 0);
    return where;
  }
};

TEST_F(FloodedJobTest, AKilledWorkerIsReplacedAmidSilentConnections) {
  const auto job = start_with_few_files({"-np", "4", "--min-np", "2"});
  auto world = step_logs().wait_for_world(4, 0);
  ASSERT_NE(world, 0) << step_logs().summary() << job->err();
  const SilentCrowd crowd(rendezvous_of(pid_of_rank(0)), 1'500);
  ASSERT_TRUE(crowd.wait_for(1'500));
  for (const int rank : {2, 0}) {
    kill_rank(rank);
    const auto begun = Clock::now();
    world = step_logs().wait_for_world(4, world);
    ASSERT_NE(world, 0) << step_logs().summary() << job->err();
    EXPECT_LT(Clock::now() - begun, std::chrono::seconds(20));
    EXPECT_TRUE(step_logs().wait_for_steps_more(5)) << step_logs().summary();
  }
  const auto end = finish(*job);
  const auto lines = lines_of(end.err);
  EXPECT_LE(std::count_if(lines.begin(), lines.end(),
                          [](const std::string& line) {
                            return line.find("rendezvous: ") != std::string::npos;
                          }),
            4)
      << end.err;
}

// The rendezvous, the page, the metrics, agents that join, and the ranks' control and data
// connections.
TEST_F(FloodedJobTest, NightlyTenThousandConnectionsToEachListenerDisturbNobody) {
  Process& job = start_training({"-np", "2", "--min-np", "2", "--status-page", "--metrics-bind",
                                 "127.0.0.1:0", "-H", "localhost:2", "--join-bind", "127.0.0.1:0",
                                 "--token-file", (directory() / "token").string()});
  ASSERT_NE(step_logs().wait_for_world(2, 0), 0) << step_logs().summary() << job.err();
  const auto ports = listening_ports(processes());
  EXPECT_GE(ports.size(), 6U);
  for (const auto port : ports) {
    const SilentCrowd crowd({"127.0.0.1", port}, 10'000);
    ASSERT_TRUE(crowd.wait_for(10'000)) << port;
    EXPECT_TRUE(step_logs().wait_for_steps_more(20)) << step_logs().summary() << job.err();
  }
  finish(job);
}

}  // namespace
}  // namespace hvd::test
