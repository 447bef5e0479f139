#include "rendezvous/auth.h"

#include <gtest/gtest.h>

namespace hvd::rendezvous {
namespace {

constexpr std::int64_t kNow = 1'700'000'000'000;
using Outcome = Verifier::Outcome;

class Auth : public testing::Test {
 protected:
  std::string sign(std::int64_t time = kNow, std::string_view target = "/s/k") {
    return signer_.sign({"PUT", target, "-"}, time).authorization;
  }
  Outcome verify(const std::string& authorization, std::int64_t now = kNow) {
    return verifier_.verify("PUT", "/s/k", authorization, now).outcome;
  }

  Token token_ = Token::random();
  Signer signer_{token_, 7};
  Verifier verifier_{token_, kNow - 10 * kTimeWindow};
};

TEST_F(Auth, AcceptsARequestOnce) {
  const auto authorization = sign();
  EXPECT_EQ(verify(authorization), Outcome::accepted);
  EXPECT_EQ(verify(authorization), Outcome::repeated);
  EXPECT_EQ(verify(sign()), Outcome::accepted);
}

TEST_F(Auth, LetsRequestsOvertakeEachOtherWithinTheWindow) {
  std::vector<std::string> requests;
  for (int i = 0; i < 70; ++i) requests.push_back(sign());
  EXPECT_EQ(verify(requests[69]), Outcome::accepted);
  EXPECT_EQ(verify(requests[10]), Outcome::accepted);
  EXPECT_EQ(verify(requests[6]), Outcome::accepted);  // 63 behind
  EXPECT_EQ(verify(requests[5]), Outcome::repeated);  // 64 behind: nobody can tell any more
  EXPECT_EQ(verify(requests[10]), Outcome::repeated);
}

TEST_F(Auth, RefusesAnotherTokenAndWhateverWasChanged) {
  Signer stranger(Token::random(), 7);
  EXPECT_EQ(verify(stranger.sign({"PUT", "/s/k", "-"}, kNow).authorization), Outcome::stranger);
  EXPECT_EQ(verify(sign(kNow, "/s/other")), Outcome::stranger);
  EXPECT_EQ(verifier_.verify("GET", "/s/k", sign(), kNow).outcome, Outcome::stranger);
  const auto good = sign();
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string changed = good;
    changed[i] = changed[i] == '1' ? '2' : '1';
    EXPECT_EQ(verify(changed), Outcome::stranger) << changed;
    EXPECT_EQ(verify(good.substr(0, i)), Outcome::stranger);
  }
  EXPECT_EQ(verify(good + "0"), Outcome::stranger);
  EXPECT_EQ(verify(good), Outcome::accepted);
}

TEST_F(Auth, TellsAWrongClockFromAStranger) {
  EXPECT_EQ(verify(sign(kNow + kTimeWindow + 1)), Outcome::wrong_time);
  EXPECT_EQ(verify(sign(kNow - kTimeWindow - 1)), Outcome::wrong_time);
  EXPECT_EQ(verify(sign(kNow + kTimeWindow)), Outcome::accepted);
  EXPECT_EQ(verify(sign(kNow - kTimeWindow)), Outcome::accepted);
}

TEST_F(Auth, RefusesRequestsFromBeforeTheServerStarted) {
  Verifier young(token_, kNow);
  EXPECT_EQ(young.verify("PUT", "/s/k", sign(kNow - 1), kNow).outcome, Outcome::wrong_time);
  EXPECT_EQ(young.verify("PUT", "/s/k", sign(kNow), kNow).outcome, Outcome::accepted);
}

TEST_F(Auth, ForgetsAClientOnlyWhenNoneOfItsRequestsCanComeAgain) {
  const auto authorization = sign();
  ASSERT_EQ(verify(authorization), Outcome::accepted);
  verifier_.forget_old(kNow + kTimeWindow);
  EXPECT_EQ(verifier_.client_count(), 1u);
  EXPECT_EQ(verify(authorization, kNow + kTimeWindow), Outcome::repeated);
  verifier_.forget_old(kNow + kTimeWindow + 1);
  EXPECT_EQ(verifier_.client_count(), 0u);
  EXPECT_EQ(verify(authorization, kNow + kTimeWindow + 1), Outcome::wrong_time);
}

TEST_F(Auth, ProvesEveryPartOfAnAnswer) {
  const RequestId id{7, 3};
  const SignedAnswer answer{200, 5, 0, sha256("value")};
  std::string proof;
  verifier_.prove(id, answer, proof);
  EXPECT_TRUE(signer_.verify(id, answer, proof));
  EXPECT_FALSE(signer_.verify({7, 4}, answer, proof));
  EXPECT_FALSE(signer_.verify({8, 3}, answer, proof));
  EXPECT_FALSE(signer_.verify(id, {404, 5, 0, sha256("value")}, proof));
  EXPECT_FALSE(signer_.verify(id, {200, 6, 0, sha256("value")}, proof));
  EXPECT_FALSE(signer_.verify(id, {200, 5, 1, sha256("value")}, proof));
  EXPECT_FALSE(signer_.verify(id, {200, 5, 0, sha256("other")}, proof));
  EXPECT_FALSE(signer_.verify(id, answer, ""));
  EXPECT_FALSE(Signer(Token::random(), 7).verify(id, answer, proof));
}

TEST(ReplayWindow, AcceptsEachCounterOnceInAnyOrderThatIsNotTooOld) {
  ReplayWindow window;
  EXPECT_FALSE(window.accept(0));
  EXPECT_TRUE(window.accept(5));
  EXPECT_TRUE(window.accept(1));
  EXPECT_FALSE(window.accept(1));
  EXPECT_TRUE(window.accept(1'000));
  EXPECT_FALSE(window.accept(5));
  EXPECT_TRUE(window.accept(937));
  EXPECT_FALSE(window.accept(936));
  EXPECT_TRUE(window.accept(~std::uint64_t{0}));
  EXPECT_FALSE(window.accept(1'000));
}

}  // namespace
}  // namespace hvd::rendezvous
