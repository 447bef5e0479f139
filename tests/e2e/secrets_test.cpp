// The job's token reaches its workers by descriptor alone: the list of processes does not show it.
#include <fstream>
#include <set>

#include "base/security/crypto.h"
#include "base/text.h"
#include "tests/e2e/job_test.h"

namespace hvd::test {
namespace {

class SecretsTest : public JobTest {};

TEST_F(SecretsTest, NoCommandLineAndNoEnvironmentHoldsTheToken) {
  const std::filesystem::path tokens[] = {directory() / "token0", directory() / "token1"};
  const std::string end_file = directory() / "go";
  Process& job = start({"--verbose", "--log-level", "debug", "-np", "2", "sh", "-c",
                        "exec " + binary("e2e_stays") + " --child --token " +
                            (directory() / "token").string() + "$HVD_RANK --until " + end_file});
  wait_for_workers(job, "up", 2);
  ASSERT_EQ(read_file(tokens[0]), read_file(tokens[1])) << "a job has one token";
  const auto bytes = hvd::from_hex(read_file(tokens[0]));
  ASSERT_TRUE(bytes.ok());
  ASSERT_EQ(bytes->size(), Token::kSize);

  std::string upper = to_hex(*bytes);
  for (char& digit : upper) digit = static_cast<char>(std::toupper(digit));
  const std::string base64 = to_base64(*bytes);
  const std::string forms[] = {*bytes, to_hex(*bytes), upper, base64.substr(0, 42)};
  int scanned = 0;
  for (const auto& process : std::filesystem::directory_iterator("/proc")) {
    if (!parse_number<pid_t>(process.path().filename().string())) continue;
    for (const char* const name : {"cmdline", "environ"}) {
      const std::string content = read_file(process.path() / name);
      if (content.find(mark()) != std::string::npos) ++scanned;
      for (const auto& form : forms) {
        EXPECT_EQ(content.find(form), std::string::npos) << process.path() / name;
      }
    }
  }
  // hvdrun and its workers were among those that were looked at.
  EXPECT_GE(scanned, 3);

  directory_file("go");
  const ExitStatus end = job.wait();
  EXPECT_EQ(end.code, 0) << end.err;
  for (const auto& form : forms) {
    EXPECT_EQ(end.out.find(form), std::string::npos);
    EXPECT_EQ(end.err.find(form), std::string::npos);
  }
}

TEST_F(SecretsTest, EveryJobHasATokenOfItsOwn) {
  std::set<std::string> seen;
  for (int i = 0; i < 3; ++i) {
    const std::string file = directory() / cat("token", i);
    const std::string go = directory_file("go");
    const ExitStatus end =
        run_job({"-np", "1", binary("e2e_stays"), "--token", file, "--until", go});
    EXPECT_EQ(end.code, 0) << end.err;
    seen.insert(read_file(file));
  }
  EXPECT_EQ(seen.size(), 3U);
  EXPECT_EQ(seen.count(""), 0U);
}

}  // namespace
}  // namespace hvd::test
