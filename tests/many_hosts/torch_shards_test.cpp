// Training over shards with hvd.torch on four pretend hosts: workers are killed in the middle of
// steps, a host joins, others are removed, and each committed step has the digest that it has with
// one worker that nothing happens to.
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "base/text.h"
#include "tests/many_hosts/many_hosts_test.h"

namespace hvd::test {
namespace {

class TorchShardsTest : public ManyHostsTest {
 protected:
  void SetUp() override {
    if (run({"/usr/bin/python3", "-c", "import torch"}).code != 0) {
      GTEST_SKIP() << "there is no PyTorch for /usr/bin/python3";
    }
    ManyHostsTest::SetUp();
    make_bed({.hosts = 4});
    for (int number = 1; number <= bed().size(); ++number) {
      place_python_package(host(number));
      host(number).place(HVD_SOURCE_DIR "/tests/many_hosts/shards_program.py");
    }
    place_discovery_script();
  }

  Process& start_training(Words flags, const std::string& disturb) {
    flags.insert(flags.end(),
                 {"--env", "PYTHONPATH=/root/python", "--env", "LD_LIBRARY_PATH=/root/python",
                  "--env", "PYTHONDONTWRITEBYTECODE=1", "--env", "OMP_NUM_THREADS=1", "--env",
                  cat("DISTURB=", disturb), "--tag-output", "none", "/usr/bin/python3",
                  "/root/shards_program.py"});
    return start(flags);
  }
  void expect_waits(Process& job, int step, int workers) {
    const auto line = cat("step ", step, " waits for ", workers, " workers");
    ASSERT_TRUE(job.wait_for_output(line)) << line << " is not in:\n" << job.out() << job.err();
  }

  // By step.
  static std::map<std::string, std::set<std::string>> digests_in(const std::string& output) {
    std::map<std::string, std::set<std::string>> digests;
    for (const auto& line : split(output, '\n')) {
      const auto words = split(line, ' ');
      if (words.size() == 4 && words[2] == "digest") digests[words[1]].insert(words[3]);
    }
    return digests;
  }
};

TEST_F(TorchShardsTest, EachCommittedStepHasTheDigestOfAnUndisturbedJob) {
  const ExitStatus whole = start_training({"-H", "h4:1"}, "0").wait();
  ASSERT_EQ(whole.code, 0) << whole.out << whole.err;

  hosts_are("h1:2\nh2:2\nh3:1\n");
  Process& job = start_training({"--host-discovery-script", "./discover.sh", "--discovery-interval",
                                 "0.1", "--min-np", "1", "--restarts", "9"},
                                "1");
  expect_waits(job, 12, 7);
  hosts_are("h1:2\nh2:2\nh3:1\nh4:2\n");
  expect_waits(job, 25, 3);
  hosts_are("h3:1\nh4:2\n");
  const ExitStatus end = job.wait();
  ASSERT_EQ(end.code, 0) << end.out << end.err;

  for (const char* const killed : {"killed in step 5\n", "killed in step 18\n"}) {
    EXPECT_NE(end.out.find(killed), std::string::npos) << end.out;
  }
  const auto expected = digests_in(whole.out);
  EXPECT_EQ(expected.size(), 30U);
  EXPECT_EQ(digests_in(end.out), expected) << end.out;
  EXPECT_TRUE(nobody_left()) << names_of_strangers();
}

}  // namespace
}  // namespace hvd::test
