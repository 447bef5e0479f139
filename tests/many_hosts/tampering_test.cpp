// Somebody between two hosts changes what their workers send each other.
#include <csignal>

#include "base/text.h"
#include "tests/many_hosts/many_hosts_test.h"

namespace hvd::test {
namespace {

constexpr const char* kRelay = HVD_SOURCE_DIR "/tests/many_hosts/programs/altering_relay.py";

class TamperingTest : public ManyHostsTest, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    ManyHostsTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    make_bed({.hosts = 2, .ipv6 = false});
    for (int number = 1; number <= 2; ++number) {
      host(number).place(binary("train"));
      host(number).place(kText);
    }
    host(2).place(kRelay, "/root/relay.py");
  }
  void TearDown() override {
    if (relay_) {
      relay_->signal(SIGKILL);
      relay_->wait();
    }
    ManyHostsTest::TearDown();
  }
  // From now on, of what workers on h2 connect to on h1. One bit is changed where so many bytes of
  // a connection have passed: only data connections carry as many.
  void alter_one_bit(const std::string& often = "once", const std::string& skip = "400000") {
    relay_ = host(2).start({"python3", "relay.py", "999", skip, often});
    ASSERT_TRUE(relay_->wait_for_output("listening")) << relay_->err();
    const auto redirected =
        host(2).shell(cat("iptables -t nat -A OUTPUT -p tcp -d ", host(1).ipv4(),
                          " --dport 40000:40999 -m mark ! --mark 7 -j REDIRECT --to-ports 999"));
    ASSERT_EQ(redirected.code, 0) << redirected.err;
  }
  static Words protection() {
    if (GetParam() == std::string("default")) return {};
    return {"--data-security", GetParam()};
  }
  ExitStatus train(Words flags) {
    Words words{"--port-range", "40000-40999", "-np", "2", "-H", "h1:1,h2:1"};
    words.insert(words.end(), flags.begin(), flags.end());
    words.insert(words.end(), {"./train", "--text", "LICENSE", "--steps", "60", "--log-every", "3",
                               "--batch", "64", "--hidden", "48"});
    return run_job(words);
  }
  // The last line has a digest of all weights.
  static std::string result_of(const ExitStatus& end) {
    const auto lines = lines_of_rank(end.out, 0);
    return lines.empty() ? "" : lines.back();
  }

  std::unique_ptr<Process> relay_;
};

TEST_P(TamperingTest, AStaticJobEndsAndSaysWhatWasFound) {
  alter_one_bit();
  const ExitStatus end = train(protection());
  EXPECT_TRUE(relay_->wait_for_output("altered"));
  EXPECT_EQ(end.code, 1) << end.out << end.err;
  EXPECT_NE(end.err.find("it was altered on the way"), std::string::npos) << end.err;
  EXPECT_EQ(end.out.find("weights identical"), std::string::npos) << end.out;
}

TEST_P(TamperingTest, AnElasticJobGoesOnFromItsLastCommitToTheSameBits) {
  Words flags = protection();
  flags.insert(flags.end(), {"--min-np", "2"});
  const ExitStatus calm = train(flags);
  ASSERT_EQ(calm.code, 0) << calm.err;
  alter_one_bit();
  const ExitStatus end = train(flags);
  EXPECT_TRUE(relay_->wait_for_output("altered"));
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_TRUE(result_of(calm).starts_with("weights identical")) << calm.out;
  EXPECT_EQ(result_of(end), result_of(calm));
  EXPECT_NE(end.err.find("it was altered on the way"), std::string::npos) << end.err;
}

// Its members live, and would form the same world for ever.
TEST_P(TamperingTest, AnElasticJobEndsIfEachOfItsWorldsIsAltered) {
  Words flags = protection();
  flags.insert(flags.end(), {"--min-np", "2"});
  alter_one_bit("always", "20000");
  const ExitStatus end = train(flags);
  EXPECT_NE(end.code, 0) << end.out;
  EXPECT_NE(end.err.find("it was altered on the way"), std::string::npos) << end.err;
  EXPECT_NE(end.err.find("and its members live"), std::string::npos) << end.err;
}

INSTANTIATE_TEST_SUITE_P(Protection, TamperingTest, testing::Values("default", "encrypted"),
                         [](const auto& row) { return std::string(row.param); });

}  // namespace
}  // namespace hvd::test
