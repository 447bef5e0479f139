// Somebody between two hosts changes what their workers send each other.
#include <optional>

#include "base/text.h"
#include "tests/many_hosts/many_hosts_test.h"
#include "tests/many_hosts/relay.h"

namespace hvd::test {
namespace {

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
  }
  void TearDown() override {
    relay_.reset();
    ManyHostsTest::TearDown();
  }
  // From now on, of what workers on h2 connect to on h1, where so many bytes of a connection have
  // passed: only data connections carry as many.
  void tamper(const std::string& action = "alter:1", const std::string& which = "first",
              const std::string& behind = "400000") {
    const Words rules{cat(host(1).ipv4(), "/40000-40999:", which, ":both:", behind, ":", action)};
    relay_.emplace(host(2), "40000:40999", rules);
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

  std::optional<Relay> relay_;
};

TEST_P(TamperingTest, AStaticJobEndsAndSaysWhatWasFound) {
  tamper();
  const ExitStatus end = train(protection());
  EXPECT_TRUE(relay_->acts("alter"));
  EXPECT_EQ(end.code, 1) << end.out << end.err;
  EXPECT_NE(end.err.find("it was altered on the way"), std::string::npos) << end.err;
  EXPECT_EQ(end.out.find("weights identical"), std::string::npos) << end.out;
}

// As a segment that somebody forges who sees the numbers of the others.
TEST_P(TamperingTest, NightlyBytesThatNoMemberHasSentEndAStaticJob) {
  tamper("insert:1000");
  const ExitStatus end = train(protection());
  EXPECT_TRUE(relay_->acts("insert"));
  EXPECT_EQ(end.code, 1) << end.out << end.err;
  EXPECT_NE(end.err.find("it was altered on the way"), std::string::npos) << end.err;
  EXPECT_EQ(end.out.find("weights identical"), std::string::npos) << end.out;
}

TEST_P(TamperingTest, AnElasticJobGoesOnFromItsLastCommitToTheSameBits) {
  Words flags = protection();
  flags.insert(flags.end(), {"--min-np", "2"});
  const ExitStatus calm = train(flags);
  ASSERT_EQ(calm.code, 0) << calm.err;
  tamper();
  const ExitStatus end = train(flags);
  EXPECT_TRUE(relay_->acts("alter"));
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_TRUE(result_of(calm).starts_with("weights identical")) << calm.out;
  EXPECT_EQ(result_of(end), result_of(calm));
  EXPECT_NE(end.err.find("it was altered on the way"), std::string::npos) << end.err;
}

// Its members live, and would form the same world for ever.
TEST_P(TamperingTest, AnElasticJobEndsIfEachOfItsWorldsIsAltered) {
  Words flags = protection();
  flags.insert(flags.end(), {"--min-np", "2"});
  tamper("alter:1", "all", "20000");
  const ExitStatus end = train(flags);
  EXPECT_NE(end.code, 0) << end.out;
  EXPECT_NE(end.err.find("it was altered on the way"), std::string::npos) << end.err;
  EXPECT_NE(end.err.find("and its members live"), std::string::npos) << end.err;
}

INSTANTIATE_TEST_SUITE_P(Protection, TamperingTest, testing::Values("default", "encrypted"),
                         [](const auto& row) { return std::string(row.param); });

class SilenceTest : public TamperingTest {};

// As with a firewall that has forgotten a connection: it stands, and both ends see their bytes
// acknowledged. The connection of the control tree is either of the first two.
TEST_P(SilenceTest, OfAControlConnectionEndsAWorldAndNotTheJob) {
  const Words flags{"--min-np", "2", "--collective-timeout", "2"};
  const ExitStatus calm = train(flags);
  ASSERT_EQ(calm.code, 0) << calm.err;
  bool was_noticed = false;
  for (int number = 0; !was_noticed && number < 40; ++number) {
    relay_.reset();
    tamper("silence:1", cat(number % 2), "1000");
    const ExitStatus end = train(flags);
    ASSERT_EQ(end.code, 0) << end.err;
    EXPECT_EQ(result_of(end), result_of(calm));
    was_noticed = end.err.find("its connection stands, but nothing has come") != std::string::npos;
  }
  EXPECT_TRUE(was_noticed);
}

INSTANTIATE_TEST_SUITE_P(Protection, SilenceTest, testing::Values("default"),
                         [](const auto& row) { return std::string(row.param); });

}  // namespace
}  // namespace hvd::test
