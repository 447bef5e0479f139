// What a machine may lack, or have too little of: a job goes on without it, or ends soon with an
// error that names the true cause.
#include <chrono>
#include <filesystem>
#include <string>
#include <unistd.h>

#include "base/text.h"
#include "tests/e2e/job_test.h"

namespace hvd::test {
namespace {

using namespace std::chrono_literals;

// A name service at an address where every packet is lost.
constexpr const char* kSilentNameService = R"(
ip link add name ours type veth peer name theirs && ip address add 10.99.0.1/24 dev ours &&
ip link set ours up && ip link set theirs up &&
ip neighbour add 10.99.0.2 lladdr 02:00:00:00:00:02 dev ours &&
echo nameserver 10.99.0.2 >resolv && mount --bind resolv /etc/resolv.conf)";

// A name service that gives the address of nobody.
constexpr const char* kLyingNameService = R"(
ip link add name ours type veth peer name theirs && ip address add 10.99.0.1/24 dev ours &&
ip link set ours up && ip link set theirs up &&
echo 10.99.0.7 a >hosts && mount --bind hosts /etc/hosts)";

struct Lack {
  const char* name;
  std::string make = {};  // commands of a shell in mount and network namespaces of their own
  Words before = {};      // a program that starts hvdrun with less
  Words hvdrun = {};      // its arguments; empty: a job of two workers, which reduce once
  bool goes_on = true;    // the job ends well
  std::string said = {};  // on standard error
  std::chrono::seconds limit = 60s;
};
void PrintTo(const Lack& lack, std::ostream* out) { *out << lack.name; }

constexpr const char* kLoopback = "ip link set lo up";

Words without(const std::string& calls) { return {binary("hvd_without_calls"), calls}; }
Words as_user_with(const std::string& limit) {
  return {"setpriv", "--reuid", "61007", "--regid", "61007", "--clear-groups", "prlimit", limit};
}

const std::vector<Lack>& all_lacks() {
  static const std::vector<Lack> all{
      {.name = "LittleSharedMemory", .make = "mount -t tmpfs -o size=64m none /dev/shm"},
      {.name = "NoSharedMemory", .make = "mount -t tmpfs -o ro none /dev/shm"},
      {.name = "TmpForReadingOnly", .make = "mount -t tmpfs -o ro none /tmp"},
      {.name = "LoopbackDown",
       .make = "ip link set lo down",
       .goes_on = false,
       .said = "the loopback interface is up"},
      {.name = "SilentNameService",
       .make = kSilentNameService,
       .before = {"timeout", "--signal=INT", "7"},
       .hvdrun = {"-np", "1", "-H", "a:1", "true"},
       .goes_on = false,
       .said = "waiting for the name service to answer for a"},
      {.name = "SilentNameServiceOfAnAgent",
       .make = cat(kSilentNameService, " && umask 077 && printf %064d 7 >token"),
       .hvdrun = {"agent", "--join", "tls://a:4000", "--token-file", "token", "--join-timeout",
                  "3"},
       .goes_on = false,
       .said = "resolve a: the name service did not answer in time"},
      {.name = "NightlySilentNameService",
       .make = kSilentNameService,
       .hvdrun = {"-np", "1", "-H", "a:1", "--ssh-connect-timeout", "1", "true"},
       .goes_on = false,
       .said =
           "host a cannot take part: resolve: look up a: the name service did not answer in time"},
      {.name = "LyingNameService",
       .make = kLyingNameService,
       .hvdrun = {"-np", "1", "-H", "a:1", "--ssh-connect-timeout", "1", "true"},
       .goes_on = false,
       .said = "10.99.0.7"},
      {.name = "OneProcess",
       .before = as_user_with("--nproc=1"),
       .goes_on = false,
       .said = "ulimit -u"},
      {.name = "TooFewProcesses",
       .before = as_user_with("--nproc=6"),
       .goes_on = false,
       .said = "Resource temporarily unavailable"},
      {.name = "FewDescriptors",
       .before = {"prlimit", "--nofile=16"},
       .goes_on = false,
       .said = "open files"},
      {.name = "NoRobustLocks", .before = without("set_robust_list=EPERM")},
      {.name = "NoSignalDescriptors",
       .before = without("signalfd4=EPERM"),
       .goes_on = false,
       .said = "take signals (signalfd): Operation not permitted"},
      {.name = "NoEventDescriptors",
       .before = without("eventfd2=EPERM"),
       .goes_on = false,
       .said = "make an eventfd: Operation not permitted"},
      {.name = "NoProcessSettings",
       .before = without("prctl=EPERM"),
       .goes_on = false,
       .said = "become the subreaper (prctl): Operation not permitted"},
      {.name = "ContainersFilter", .before = without("container")},
  };
  return all;
}

class Exhaustion : public JobTest, public testing::WithParamInterface<Lack> {
 protected:
  // Where the jobs of the other user have their sockets.
  void TearDown() override {
    JobTest::TearDown();
    std::filesystem::remove_all("/tmp/hvd-61007");
  }
};

TEST_P(Exhaustion, IsLivedWithOrNamed) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root makes namespaces with less in them";
  const Lack& lack = GetParam();
  Words words{"unshare", "--mount", "--net", "sh", "-c"};
  words.push_back(cat("{ ", kLoopback, "\n", lack.make, "\n} || exit 77\nexec \"$@\""));
  words.push_back("sh");
  words.insert(words.end(), lack.before.begin(), lack.before.end());
  words.push_back(binary("hvdrun"));
  const Words job = lack.hvdrun.empty() ? Words{"-np",
                                                "2",
                                                "--events",
                                                "none",
                                                "--working-directory",
                                                "/",
                                                binary("allreduce_once")}
                                        : lack.hvdrun;
  words.insert(words.end(), job.begin(), job.end());

  const auto begun = std::chrono::steady_clock::now();
  const ExitStatus end =
      run(words, {.environment = {{"HVD_E2E_MARK", mark()}}, .working_directory = directory()});
  if (end.code == 77) GTEST_SKIP() << "this cannot be lacking here: " << end.err;
  EXPECT_EQ(end.signal, 0);
  EXPECT_EQ(end.code == 0, lack.goes_on) << end.code << ": " << end.err;
  EXPECT_NE(end.err.find(lack.said), std::string::npos) << end.err;
  EXPECT_EQ(end.err.find("did not leave within"), std::string::npos) << end.err;
  EXPECT_LT(std::chrono::steady_clock::now() - begun, lack.limit) << end.err;
}

// From far too little to enough: each is missed in another place of the programs.
class AddressSpace : public JobTest {};

TEST_F(AddressSpace, OfAnySizeIsEnoughOrTheErrorSaysWhy) {
  for (int megabytes = 56; megabytes <= 72; megabytes += 4) {
    const ExitStatus end = run({"prlimit", cat("--as=", megabytes << 20), binary("hvdrun"), "-np",
                                "2", "--events", "none", binary("allreduce_once")},
                               {.environment = {{"HVD_E2E_MARK", mark()}}});
    EXPECT_EQ(end.signal, 0) << megabytes << ": " << end.err;
    if (end.code == 0) continue;
    EXPECT_NE(end.err, "") << megabytes;
    EXPECT_EQ(end.err.find("it wrote nothing to stderr"), std::string::npos)
        << megabytes << ": " << end.err;
  }
}

INSTANTIATE_TEST_SUITE_P(Of, Exhaustion, testing::ValuesIn(all_lacks()),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace hvd::test
