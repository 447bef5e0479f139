// Somebody on the way puts a pickle of theirs in the place of one that a host sends another. Nobody
// runs their code.
#include <filesystem>

#include "base/text.h"
#include "tests/many_hosts/many_hosts_test.h"
#include "tests/many_hosts/relay.h"

namespace hvd::test {
namespace {

class ReplacedPickleTest : public ManyHostsTest {
 protected:
  void SetUp() override {
    if (run({"/usr/bin/python3", "-c", "import numpy"}).code != 0) {
      GTEST_SKIP() << "there is no NumPy for /usr/bin/python3";
    }
    ManyHostsTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    make_bed({.hosts = 2, .ipv6 = false});
    for (int number = 1; number <= 2; ++number) {
      place_python_package(host(number));
      host(number).place(kProgram);
    }
  }
  ExitStatus run_attacked(const std::string& kind, const std::string& which, Words flags) {
    const ExitStatus replaced =
        host(2).run({"/usr/bin/python3", "takes_objects.py", "replace", kind});
    EXPECT_EQ(replaced.code, 0) << replaced.err;
    const std::string bytes = replaced.out.substr(0, replaced.out.find('\n'));
    Relay relay(host(2), "40000:40999",
                {cat(host(1).ipv4(), "/40000-40999:", which, ":down:0:replace:", bytes)});
    flags.insert(flags.begin(),
                 {"--port-range", "40000-40999", "-np", "2", "-H", "h1:1,h2:1", "--env",
                  "PYTHONPATH=/root/python", "--env", "LD_LIBRARY_PATH=/root/python"});
    flags.insert(flags.end(), {"/usr/bin/python3", "takes_objects.py", kind});
    ExitStatus end = run_job(flags);
    EXPECT_TRUE(relay.acts("replace")) << "nothing was replaced\n" << end.err;
    return end;
  }
  bool code_ran() { return std::filesystem::exists(host(2).files() / "root/attacked"); }

 private:
  static constexpr const char* kProgram =
      HVD_SOURCE_DIR "/tests/many_hosts/programs/takes_objects.py";
};

// So the tests below say something.
TEST_F(ReplacedPickleTest, NightlyRunsWhereNothingProtectsIt) {
  run_attacked("object", "first", {"--data-security", "none"});
  EXPECT_TRUE(code_ran());
}

TEST_F(ReplacedPickleTest, OfAnObjectEndsTheJobAndRunsNoCode) {
  const ExitStatus end = run_attacked("object", "first", {});
  EXPECT_EQ(end.code, 1) << end.out;
  EXPECT_NE(end.err.find("it was altered on the way"), std::string::npos) << end.err;
  EXPECT_EQ(end.out.find("all honest"), std::string::npos) << end.out;
  EXPECT_FALSE(code_ran());
}

TEST_F(ReplacedPickleTest, OfACommittedStateRunsNoCodeAndTheJobGoesOnFromItsLastCommit) {
  const ExitStatus end = run_attacked("state", "first", {"--min-np", "2"});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_NE(end.err.find("it was altered on the way"), std::string::npos) << end.err;
  EXPECT_NE(end.out.find("all honest after 30"), std::string::npos) << end.out;
  EXPECT_FALSE(code_ran());
}

TEST_F(ReplacedPickleTest, NightlyOfEachStateThatIsSentEndsTheJobAndRunsNoCode) {
  const ExitStatus end = run_attacked("state", "all", {"--min-np", "2"});
  EXPECT_NE(end.code, 0) << end.out;
  EXPECT_NE(end.err.find("it was altered on the way"), std::string::npos) << end.err;
  EXPECT_FALSE(code_ran());
}

}  // namespace
}  // namespace hvd::test
