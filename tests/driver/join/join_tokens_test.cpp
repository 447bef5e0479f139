#include "driver/join/join_tokens.h"

#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"

namespace hvd::driver::join {
namespace {

using std::chrono::seconds;

const TimePoint kStart{std::chrono::hours(1)};

class JoinTokensTest : public testing::Test {
 protected:
  std::string make(const JoinTokenTerms& terms) { return tokens_.make(terms, kStart)->id; }
  void use(const std::string& id) { EXPECT_TRUE(tokens_.use(id, "a", "").ok()); }
  void expect_refused(const std::string& id, const std::string& host, const std::string& why,
                      TimePoint now = kStart) {
    const Status status = tokens_.check(id, host, "", now);
    EXPECT_EQ(status.code(), Code::permission_denied) << status.to_string();
    EXPECT_EQ(status.message(), "join token " + id + " " + why);
  }

  Token job_key_ = Token::random();
  Status kept_;  // what comes of keeping them
  JoinTokens tokens_{job_key_, [this] { return kept_; }};
};

TEST_F(JoinTokensTest, HaveASecretOfTheirOwnInEachJob) {
  const auto one = tokens_.make({}, kStart);
  const auto two = tokens_.make({}, kStart);
  EXPECT_NE(one->id, two->id);
  EXPECT_NE(one->secret.bytes(), two->secret.bytes());
  EXPECT_EQ(tokens_.secret_of(one->id)->bytes(), one->secret.bytes());
  EXPECT_EQ(JoinTokens(Token::random()).secret_of(one->id), std::nullopt);

  JoinTokens of_another_run(Token::random());
  EXPECT_EQ(of_another_run.make({}, kStart)->id, one->id);
  EXPECT_NE(of_another_run.secret_of(one->id)->bytes(), one->secret.bytes());
}

TEST_F(JoinTokensTest, HoldUntilTheirTimeIsOver) {
  const auto id = make({.time = seconds(60)});
  EXPECT_TRUE(tokens_.check(id, "a", "", kStart + seconds(59)).ok());
  expect_refused(id, "a", "has expired", kStart + seconds(60));
  EXPECT_TRUE(tokens_.check(make({}), "a", "", kStart + std::chrono::hours(10'000)).ok());
}

TEST_F(JoinTokensTest, HoldForSoManyAgents) {
  const auto id = make({.uses = 2});
  use(id);
  EXPECT_TRUE(tokens_.check(id, "a", "", kStart).ok());
  use(id);
  expect_refused(id, "a", "is used up: it has let 2 agents join");

  const auto endless = make({});
  for (int i = 0; i < 100; ++i) use(endless);
  EXPECT_TRUE(tokens_.check(endless, "a", "", kStart).ok());
}

TEST_F(JoinTokensTest, HoldForOneHost) {
  const auto id = make({.host = "a"});
  EXPECT_TRUE(tokens_.check(id, "a", "", kStart).ok());
  expect_refused(id, "b", "is for host a, and this is host b");
}

TEST_F(JoinTokensTest, HoldNoMoreOnceRevoked) {
  const auto id = make({});
  ASSERT_TRUE(tokens_.revoke(id).ok());
  expect_refused(id, "a", "was revoked");
  EXPECT_TRUE(tokens_.secret_of(id)) << "its holder is told why";
}

TEST_F(JoinTokensTest, AreRotatedOnTheSameTerms) {
  const auto old = make({.host = "a", .time = seconds(60), .uses = 1});
  use(old);
  const auto fresh = tokens_.rotate(old, kStart + seconds(100));
  ASSERT_TRUE(fresh.ok()) << fresh.status().to_string();
  expect_refused(old, "a", "was revoked");
  EXPECT_TRUE(tokens_.check(fresh->id, "a", "", kStart + seconds(159)).ok());
  expect_refused(fresh->id, "b", "is for host a, and this is host b", kStart + seconds(159));
  expect_refused(fresh->id, "a", "has expired", kStart + seconds(160));
}

TEST_F(JoinTokensTest, ThatWereNeverMadeAreUnknown) {
  make({});
  for (const char* const id : {"", "0", "2", "01", "-1", "x", "1x"}) {
    EXPECT_FALSE(tokens_.secret_of(id)) << id;
    EXPECT_FALSE(tokens_.check(id, "a", "", kStart).ok()) << id;
    EXPECT_EQ(tokens_.rotate(id, kStart).status().code(), Code::not_found) << id;
  }
  EXPECT_EQ(tokens_.revoke("2").code(), Code::not_found);
}

TEST_F(JoinTokensTest, AreListedWithWhatBecameOfThem) {
  EXPECT_EQ(tokens_.to_text(kStart), "there are no join tokens");
  make({.host = "a", .time = seconds(90), .uses = 1});
  make({.uses = 3});
  make({});
  make({.time = seconds(5)});
  use("1");
  use("2");
  ASSERT_TRUE(tokens_.revoke("3").ok());
  EXPECT_EQ(tokens_.to_text(kStart + seconds(30)),
            "1  used up  1 of 1 use, host a, 1 min 0 s left\n"
            "2  valid  1 of 3 uses\n"
            "3  revoked  0 uses\n"
            "4  expired  0 uses, 0 s left");
}

TEST_F(JoinTokensTest, AreNotMadeWithoutEnd) {
  for (std::size_t i = 0; i < JoinTokens::kMost; ++i) ASSERT_TRUE(tokens_.make({}, kStart).ok());
  EXPECT_EQ(tokens_.make({}, kStart).status().code(), Code::resource_exhausted);
  ASSERT_TRUE(tokens_.revoke("7").ok());
  EXPECT_TRUE(tokens_.make({}, kStart).ok()) << "one that does not hold is forgotten";
  EXPECT_FALSE(tokens_.secret_of("7"));
  EXPECT_TRUE(tokens_.secret_of("8"));
  EXPECT_EQ(tokens_.make({}, kStart).status().code(), Code::resource_exhausted);
}

TEST_F(JoinTokensTest, AreNamedByTheirNumberInOneWay) {
  ASSERT_TRUE(tokens_.make({}, kStart).ok());
  EXPECT_TRUE(tokens_.holds("1", kStart));
  EXPECT_FALSE(tokens_.holds("01", kStart));
  EXPECT_EQ(tokens_.revoke("01").code(), Code::not_found);
  EXPECT_EQ(tokens_.rotate("01", kStart).status().code(), Code::not_found);
}

TEST_F(JoinTokensTest, AreTheSameForTheNextDriver) {
  make({.host = "a", .time = seconds(90), .uses = 1});
  make({.uses = 3});
  make({});
  make({.time = seconds(5)});
  use("1");
  use("2");
  ASSERT_TRUE(tokens_.revoke("3").ok());
  const JoinTokens::WallTime today(std::chrono::hours(500'000));
  const std::string json = tokens_.to_json(kStart + seconds(10), today);

  // On another machine, whose clock has begun with its start.
  const TimePoint there{seconds(7)};
  JoinTokens next(job_key_);
  ASSERT_TRUE(next.restore(json, there, today + seconds(20)).ok());
  EXPECT_EQ(next.to_text(there), tokens_.to_text(kStart + seconds(30)));
  EXPECT_EQ(next.secret_of("1")->bytes(), tokens_.secret_of("1")->bytes());
  EXPECT_EQ(next.check("1", "a", "", there).code(), Code::permission_denied);
  EXPECT_TRUE(next.check("2", "b", "", there).ok());
  EXPECT_EQ(next.make({}, there)->id, "5") << "no number comes twice";
  EXPECT_EQ(json.find(to_hex(tokens_.secret_of("1")->bytes())), std::string::npos);
}

TEST_F(JoinTokensTest, TextsThatHoldNoneAreRefused) {
  make({.time = seconds(5)});
  const std::string json = tokens_.to_json(kStart, JoinTokens::WallTime());
  const auto is_refused = [&](const std::string& what, const std::string& by) {
    std::string text = json;
    const auto at = text.find(what);
    EXPECT_NE(at, std::string::npos) << what;
    return JoinTokens(job_key_).restore(text.replace(at, what.size(), by), kStart, {}).code() ==
           Code::data_loss;
  };
  EXPECT_FALSE(is_refused("{", "{"));
  for (const char* const text : {"", "[]", "{}", R"({"schema":1,"last":1,"tokens":[1]})"}) {
    EXPECT_EQ(tokens_.restore(text, kStart, {}).code(), Code::data_loss) << text;
  }
  EXPECT_TRUE(is_refused(R"("schema":1)", R"("schema":2)"));
  EXPECT_TRUE(is_refused(R"("id":1)", R"("id":2)"));
  EXPECT_TRUE(is_refused(R"("id":1)", R"("id":0)"));
  EXPECT_TRUE(is_refused(R"("seconds":5)", R"("seconds":0)"));
  EXPECT_TRUE(is_refused(R"("used":0)", R"("used":-1)"));
  EXPECT_TRUE(is_refused(R"("revoked":false)", R"("revoked":0)"));
  EXPECT_TRUE(is_refused(R"("until":)", R"("till":)"));
  EXPECT_EQ(tokens_.to_text(kStart), "1  valid  0 uses, 5 s left") << "nothing has changed";
}

TEST_F(JoinTokensTest, AnAgentThatHasJoinedComesToTheNextDriverOnceWhateverBecameOfItsToken) {
  const auto id = make({.time = seconds(60), .uses = 1});
  use(id);
  const std::string pass = tokens_.pass_for(id, "a");
  EXPECT_EQ(tokens_.check(id, "a", pass, kStart).code(), Code::permission_denied)
      << "under the same driver it counts as another";
  ASSERT_TRUE(tokens_.revoke(id).ok());

  JoinTokens next(job_key_);
  const auto later = kStart + seconds(100);
  ASSERT_TRUE(next.restore(tokens_.to_json(kStart, {}), later, {}).ok());
  for (const auto& [host, proof] : std::vector<std::pair<std::string, std::string>>{
           {"a", ""}, {"b", pass}, {"a", pass.substr(1)}, {"a", tokens_.pass_for("2", "a")}}) {
    EXPECT_EQ(next.check(id, host, proof, later).code(), Code::permission_denied) << host;
  }
  ASSERT_TRUE(next.check(id, "a", pass, later).ok());
  ASSERT_TRUE(next.use(id, "a", pass).ok());
  EXPECT_EQ(next.to_text(later), "1  revoked  1 of 1 use, 1 min 0 s left");
  EXPECT_EQ(next.check(id, "a", pass, later).code(), Code::permission_denied);
}

TEST_F(JoinTokensTest, ThatCannotBeKeptLetNobodyIn) {
  const auto id = make({.uses = 1});
  kept_ = Status(Code::unavailable, "the disk is full");
  EXPECT_EQ(tokens_.make({}, kStart).status().code(), Code::unavailable);
  EXPECT_EQ(tokens_.use(id, "a", "").code(), Code::unavailable);
  EXPECT_TRUE(tokens_.check(id, "a", "", kStart).ok()) << "it may be tried again";
  EXPECT_EQ(tokens_.to_text(kStart), "1  valid  0 of 1 use");
  EXPECT_EQ(tokens_.revoke(id).code(), Code::unavailable);
  expect_refused(id, "a", "was revoked");
}

}  // namespace
}  // namespace hvd::driver::join
