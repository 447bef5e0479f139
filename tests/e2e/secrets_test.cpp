// What other users of a machine could learn from a job, or have it do. The job's token reaches its
// workers by descriptor alone, so that the list of processes does not show it.
#include <array>
#include <fstream>
#include <set>
#include <sys/stat.h>
#include <unistd.h>

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

// In a folder in which everybody may make files, another user has put links under the names of the
// files that a job of root's writes. They lead to a file that only root may write.
TEST(SharedFolder, NoFileOfAJobDestroysAnotherOne) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make a link of another user";
  constexpr uid_t kStranger = 65534;
  const TemporaryDirectory directory;
  const auto precious = directory.file("precious", "text").string();
  const auto shared = directory.path() / "shared";
  std::filesystem::create_directory(shared);
  ASSERT_EQ(::chmod(shared.c_str(), 01777), 0);
  const auto plant = [&](const std::string& name, const std::string& target) {
    const auto link = (shared / name).string();
    EXPECT_EQ(::symlink(target.c_str(), link.c_str()), 0);
    EXPECT_EQ(::lchown(link.c_str(), kStranger, kStranger), 0);
    return link;
  };
  std::filesystem::create_directories(directory.path() / "elsewhere/rank.0");

  const auto kRows = std::to_array<Words>({
      {"--events", plant("events", precious)},
      {"--output-filename", plant("output", directory.path() / "elsewhere")},
      {"--timeline-filename", plant("timeline", precious)},
      {"--autotune", "--autotune-log-file", plant("tuning", precious)},
  });
  for (const Words& row : kRows) {
    Words command{binary("hvdrun"), "-np", "2"};
    command.insert(command.end(), row.begin(), row.end());
    command.push_back(binary("allreduce_once"));
    const ExitStatus end = run(command);
    EXPECT_NE(end.code, 0) << row.front();
    EXPECT_NE(end.err.find("belongs to user 65534"), std::string::npos)
        << row.front() << ": " << end.err;
    EXPECT_EQ(read_file(precious), "text") << row.front();
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path() / "elsewhere/rank.0"));
}

}  // namespace
}  // namespace hvd::test
