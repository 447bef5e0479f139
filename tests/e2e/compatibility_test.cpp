// Programs written for Horovod or for torch find what they expect.
#include "base/machine/ports.h"
#include "base/text.h"
#include "tests/e2e/job_test.h"

namespace hvd::test {
namespace {

class CompatibilityTest : public JobTest {
 protected:
  // NAME=VALUE of one rank, from a job that runs env.
  static std::map<std::string, std::string> environment_of(const std::string& output, int rank) {
    std::map<std::string, std::string> environment;
    for (const auto& line : lines_of_rank(output, rank)) {
      const auto equals = line.find('=');
      if (equals != std::string::npos)
        environment[line.substr(0, equals)] = line.substr(equals + 1);
    }
    return environment;
  }
};

TEST_F(CompatibilityTest, EachWorkerIsToldItsPlaceInAllThreeDialects) {
  const ExitStatus end = run_job({"-np", "3", "-H", "localhost:2,127.0.0.1:1", "env"});
  ASSERT_EQ(end.code, 0) << end.err;
  const struct {
    const char* host;
    const char* local_rank;
    const char* local_size;
    const char* cross_rank;
    const char* cross_size;
  } expected[] = {{"localhost", "0", "2", "0", "2"},
                  {"localhost", "1", "2", "0", "1"},
                  {"127.0.0.1", "0", "1", "1", "2"}};
  std::string master;
  for (int rank = 0; rank < 3; ++rank) {
    auto environment = environment_of(end.out, rank);
    const std::string number = std::to_string(rank);
    for (const std::string prefix : {"HVD_", "HOROVOD_"}) {
      SCOPED_TRACE(cat(prefix, " of rank ", number));
      EXPECT_EQ(environment[prefix + "RANK"], number);
      EXPECT_EQ(environment[prefix + "SIZE"], "3");
      EXPECT_EQ(environment[prefix + "LOCAL_RANK"], expected[rank].local_rank);
      EXPECT_EQ(environment[prefix + "LOCAL_SIZE"], expected[rank].local_size);
      EXPECT_EQ(environment[prefix + "CROSS_RANK"], expected[rank].cross_rank);
      EXPECT_EQ(environment[prefix + "CROSS_SIZE"], expected[rank].cross_size);
      EXPECT_EQ(environment[prefix + "HOSTNAME"], expected[rank].host);
    }
    EXPECT_EQ(environment["HOROVOD_CONTROLLER"], "gloo");
    EXPECT_EQ(environment["HOROVOD_CPU_OPERATIONS"], "gloo");
    EXPECT_EQ(environment["HOROVOD_GLOO_RENDEZVOUS_ADDR"], "127.0.0.1");
    EXPECT_TRUE(parse_number<std::uint16_t>(environment["HOROVOD_GLOO_RENDEZVOUS_PORT"]));
    EXPECT_EQ(environment["RANK"], number);
    EXPECT_EQ(environment["WORLD_SIZE"], "3");
    EXPECT_EQ(environment["LOCAL_RANK"], expected[rank].local_rank);
    EXPECT_EQ(environment["LOCAL_WORLD_SIZE"], expected[rank].local_size);
    EXPECT_EQ(environment["MASTER_ADDR"], "127.0.0.1");
    if (rank == 0) master = environment["MASTER_PORT"];
    EXPECT_EQ(environment["MASTER_PORT"], master);
    const auto port = parse_number<std::uint16_t>(master);
    ASSERT_TRUE(port) << master;
    EXPECT_FALSE(ephemeral_ports().contains(*port)) << "any connection may be given port " << *port;
  }
}

TEST_F(CompatibilityTest, RankZeroOfATorchProgramCanListenOnTheMasterPort) {
  const ExitStatus end = run_job({"-np", "4", binary("e2e_torch_style")});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(lines_of_rank(end.out, 0), Words{"met 3"});
}

TEST_F(CompatibilityTest, HorovodsOwnClientsWorkWithTheFlag) {
  const ExitStatus end = run_job({"--legacy-clients", "-np", "5", "-H", "localhost:3,127.0.0.1:2",
                                  binary("e2e_legacy_store")});
  EXPECT_EQ(end.code, 0) << end.err;
  for (int rank = 0; rank < 5; ++rank) {
    EXPECT_EQ(lines_of_rank(end.out, rank), Words{cat("rank ", rank, ": all scopes")});
  }
  // It opens something, so it says so.
  EXPECT_NE(end.err.find("--legacy-clients"), std::string::npos) << end.err;
}

TEST_F(CompatibilityTest, WithoutTheFlagTheyAreTurnedAwayWith401) {
  const ExitStatus end = run_job({"-np", "2", binary("e2e_legacy_store")});
  EXPECT_EQ(end.code, 4) << end.err;
  EXPECT_NE(end.err.find("status 401"), std::string::npos) << end.err;
  // The reason is printed once, however many clients were refused.
  const std::string told = "refused an unsigned request of a program that was built with Horovod";
  const auto at = end.err.find(told);
  ASSERT_NE(at, std::string::npos) << end.err;
  EXPECT_NE(end.err.find("start the job with --legacy-clients", at), std::string::npos) << end.err;
  EXPECT_EQ(end.err.find(told, at + 1), std::string::npos) << end.err;
}

TEST_F(CompatibilityTest, InAnElasticJobTheyAreToldThatTheyAreNotServed) {
  const ExitStatus end =
      run_job({"-np", "2", "--min-np", "2", "--restarts", "0", "--elastic-timeout", "2", "-H",
               "localhost:2", binary("e2e_legacy_store")});
  EXPECT_NE(end.code, 0) << end.err;
  EXPECT_NE(end.err.find("elastic Horovod programs are not supported"), std::string::npos)
      << end.err;
}

TEST_F(CompatibilityTest, HvdsOwnProgramsWorkBesideLegacyClients) {
  const ExitStatus end =
      run_job({"--legacy-clients", "-np", "2", binary("e2e_works"), "--steps", "3"});
  EXPECT_EQ(end.code, 0) << end.err;
}

TEST_F(CompatibilityTest, AKnobReachesTheWorkersUnderBothNames) {
  const ExitStatus end = run_job({"-np", "1", "--fusion-threshold-mb", "3", "env"});
  ASSERT_EQ(end.code, 0) << end.err;
  auto environment = environment_of(end.out, 0);
  EXPECT_EQ(environment["HVD_FUSION_THRESHOLD"], "3145728");
  EXPECT_EQ(environment["HOROVOD_FUSION_THRESHOLD"], "3145728");
}

TEST_F(CompatibilityTest, WorkersInheritTheCallersEnvironmentLessWhatCannotBeMeantForThem) {
  const ProcessOptions options{.environment = {{"E2E_PLAIN", "a b\"c$d"},
                                               {"E2E_SECRET", "hidden"},
                                               {"OLDPWD", "/elsewhere"},
                                               {"BASH_FUNC_x%%", "() { :; }"}},
                               .working_directory = {}};
  const ExitStatus end = run_job({"-np", "1", "--env-exclude", "E2E_*", "--env-include",
                                  "E2E_PLAIN", "--env", "E2E_MORE=1", "env"},
                                 options);
  ASSERT_EQ(end.code, 0) << end.err;
  const auto environment = environment_of(end.out, 0);
  EXPECT_EQ(environment.at("E2E_PLAIN"), "a b\"c$d");
  EXPECT_EQ(environment.at("E2E_MORE"), "1");
  EXPECT_EQ(environment.count("E2E_SECRET"), 0U);
  EXPECT_EQ(environment.count("BASH_FUNC_x%%"), 0U);
  EXPECT_EQ(environment.count("OLDPWD"), 0U);
}

TEST_F(CompatibilityTest, WorkersRunInTheCallersDirectory) {
  const ExitStatus end =
      run_job({"-np", "2", "pwd", "-P"}, {.environment = {}, .working_directory = directory()});
  ASSERT_EQ(end.code, 0) << end.err;
  const std::string here = std::filesystem::canonical(directory());
  EXPECT_EQ(lines_of_rank(end.out, 0), Words{here});
  EXPECT_EQ(lines_of_rank(end.out, 1), Words{here});
}

TEST_F(CompatibilityTest, OversubscriptionIsSaidOnceAndCanBeRefused) {
  const ExitStatus spread = run_job({"-np", "6", "-H", "localhost:2,127.0.0.1:1", "env"});
  EXPECT_EQ(spread.code, 0) << spread.err;
  int warnings = 0;
  for (const auto& line : lines_of(spread.err)) {
    if (line.find("versubscri") != std::string::npos) ++warnings;
  }
  EXPECT_EQ(warnings, 1) << spread.err;
  EXPECT_EQ(environment_of(spread.out, 5)["HVD_HOSTNAME"], "127.0.0.1");
  EXPECT_EQ(environment_of(spread.out, 5)["HVD_LOCAL_SIZE"], "2");

  const ExitStatus refused =
      run_job({"--no-oversubscribe", "-np", "6", "-H", "localhost:2,127.0.0.1:1", "env"});
  EXPECT_NE(refused.code, 0);
  EXPECT_EQ(refused.out, "") << "nothing is started";
  EXPECT_NE(refused.err.find("Requested more processes (6) than there are available slots (3)"),
            std::string::npos)
      << refused.err;
}

TEST_F(CompatibilityTest, WithoutNpEverySlotIsTaken) {
  const ExitStatus end = run_job({"-H", "localhost:2,127.0.0.1:3", "sh", "-c", "echo $HVD_SIZE"});
  ASSERT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(lines_of(end.out).size(), 5U) << end.out;
  EXPECT_EQ(lines_of_rank(end.out, 4), Words{"5"});
}

}  // namespace
}  // namespace hvd::test
