// A bed leaves nothing behind, whatever happens, and does not meet another one.
#include <csignal>
#include <sstream>

#include "base/text.h"
#include "tests/testbed/bed_test.h"

namespace hvd::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMark = "HVD_BED_MARK";

class LifetimeTest : public BedTest {
 protected:
  // Beds are made in a process of its own, which everything in them inherits a variable from; their
  // directories lie in ours.
  std::unique_ptr<Process> start_bed(const std::string& script) {
    return std::make_unique<Process>(
        std::vector<std::string>{binary("hvd-hosts"), "run", "2", "--", "bash", "-c", script},
        ProcessOptions{.environment = {{kMark, mark()}, {"TMPDIR", directory_.path()}}});
  }
  std::string mark() const { return directory_.path().filename().string(); }
  std::vector<pid_t> processes() const { return processes_with_variable(kMark, mark()); }
  bool all_gone() const { return wait_until_gone(kMark, mark(), std::chrono::seconds(30)); }
  std::vector<fs::path> beds() const {
    return {fs::directory_iterator(directory_.path()), fs::directory_iterator()};
  }
  pid_t process_that_runs(const std::string& arguments) const {
    for (const pid_t pid : processes()) {
      std::string line = read_file(cat("/proc/", pid, "/cmdline"));
      for (char& character : line) {
        if (character == '\0') character = ' ';
      }
      if (line.find(arguments) != std::string::npos) return pid;
    }
    return -1;
  }

  TemporaryDirectory directory_;
};

std::string interfaces() { return run({"ip", "-o", "link"}).out; }

int mounts_of_beds() {
  int count = 0;
  for (const auto& line : split(read_file("/proc/self/mounts"), '\n')) {
    if (line.find("hvd-bed-") != std::string::npos) ++count;
  }
  return count;
}

TEST_F(LifetimeTest, TheCommandOfABedSeesItsHostsAndDecidesTheExitCode) {
  const auto bed = start_bed("echo $HVD_HOSTS; pwd; exit 7");
  const auto status = bed->wait();
  EXPECT_EQ(status.code, 7) << status.err;
  EXPECT_EQ(status.out, "h1 h2\n" + fs::current_path().string() + "\n");
  EXPECT_TRUE(all_gone());
  EXPECT_TRUE(beds().empty());
}

TEST_F(LifetimeTest, KillingTheMakerLeavesNothing) {
  const std::string before = interfaces();
  const auto bed = start_bed("ssh h1 'sleep 1000 & echo ready; wait'");
  ASSERT_TRUE(bed->wait_for_output("ready"));
  EXPECT_EQ(beds().size(), 1U);
  EXPECT_EQ(interfaces(), before);  // nothing shows while it is up, either
  EXPECT_EQ(mounts_of_beds(), 0);
  bed->signal(SIGKILL);
  EXPECT_EQ(bed->wait().signal, SIGKILL);
  EXPECT_TRUE(all_gone());
  EXPECT_EQ(interfaces(), before);
  EXPECT_TRUE(eventually([&] { return beds().empty(); }));
}

TEST_F(LifetimeTest, KillingTheServerLeavesADirectoryThatTheNextBedRemoves) {
  const auto bed = start_bed("echo ready; sleep 1000");
  ASSERT_TRUE(bed->wait_for_output("ready"));
  const pid_t server = process_that_runs("hvd-hosts serve");
  ASSERT_GT(server, 0);
  ::kill(server, SIGKILL);
  bed->wait();  // its command died with the bed
  EXPECT_TRUE(all_gone());
  ASSERT_EQ(beds().size(), 1U);
  EXPECT_EQ(start_bed("true")->wait().code, 0);
  EXPECT_TRUE(beds().empty());
}

TEST_F(LifetimeTest, TwoBedsAtATimeDoNotTouchEachOther) {
  HostBed one({.hosts = 1});
  HostBed other({.hosts = 2});
  ASSERT_EQ(one.host(1).shell("echo one > name").code, 0);
  ASSERT_EQ(other.host(1).shell("echo other > name").code, 0);
  EXPECT_EQ(one.head().run(ssh("h1", "cat name")).out, "one\n");
  EXPECT_EQ(other.head().run(ssh("h1", "cat name")).out, "other\n");
  EXPECT_NE(connect_from(one.head(), other.host(2).ipv4()), Answer::connected);
  one.cut_off(one.host(1));
  EXPECT_EQ(connect_from(other.head(), "h1"), Answer::connected);
  EXPECT_THROW(one.cut_off(other.host(1)), std::runtime_error);
}

TEST_F(LifetimeTest, WrongArgumentsAreErrors) {
  const auto error_of = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {binary("hvd-hosts"), "run"});
    const auto status = run(arguments);
    EXPECT_NE(status.code, 0);
    return status.err;
  };
  EXPECT_EQ(error_of({"many", "true"}), "hvd-hosts: --hosts: \"many\" is no number\n");
  EXPECT_EQ(error_of({"0", "true"}), "hvd-hosts: a bed has 1 to 250 hosts, not 0\n");
  EXPECT_EQ(error_of({"1", "--no-ipv4", "--no-ipv6", "true"}),
            "hvd-hosts: a bed needs IPv4 or IPv6: both are off\n");
  EXPECT_EQ(error_of({"1", "--nonsense", "true"}), "hvd-hosts: unknown word --nonsense\n");
  EXPECT_EQ(error_of({"1"}), "hvd-hosts: no command to run\n");
  EXPECT_EQ(error_of({"1", "--place"}), "hvd-hosts: --place needs a value\n");
}

}  // namespace
}  // namespace hvd::test
