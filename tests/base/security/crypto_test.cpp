#include "base/security/crypto.h"

#include <gtest/gtest.h>
#include <set>

#include "base/text.h"
#include "base/wire.h"

namespace hvd {
namespace {

std::string counting_bytes(int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(i);
  return bytes;
}

std::string hex(const Digest& digest) { return to_hex(as_view(digest)); }

// HMAC as its definition says, from the hash alone.
std::string hmac_by_hand(std::string key, const std::string& message) {
  key.resize(64, '\0');
  std::string inner = key;
  std::string outer = key;
  for (auto& c : inner) c = static_cast<char>(c ^ 0x36);
  for (auto& c : outer) c = static_cast<char>(c ^ 0x5c);
  return hex(sha256(outer + std::string(as_view(sha256(inner + message)))));
}

TEST(Crypto, HashesTheKnownTexts) {
  EXPECT_EQ(hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// The second test case of RFC 2202.
TEST(Crypto, HmacSha1IsThatOfTheStandard) {
  EXPECT_EQ(to_hex(hmac_sha1("Jefe", "what do ya want for nothing?")),
            "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79");
}

TEST(Crypto, SignsPartsWithTheirLengths) {
  const auto token = Token::from_bytes(counting_bytes(32));
  ASSERT_TRUE(token.ok());
  const Mac mac(*token);
  EXPECT_EQ(hex(mac({"ab", "c"})),
            "b0c00b9c008947559cd4524980c14546efc123c1f72f20f7333f624bee6bc469");
  const std::string framed = WireWriter().u64(2).take() + "ab" + WireWriter().u64(1).take() + "c";
  EXPECT_EQ(hex(mac({"ab", "c"})), hmac_by_hand(counting_bytes(32), framed));
  EXPECT_EQ(hex(mac({})), hmac_by_hand(counting_bytes(32), ""));
}

TEST(Crypto, TellsPartsApart) {
  const Mac mac(Token::random());
  const std::set<std::string> signatures = {hex(mac({"ab", "c"})), hex(mac({"a", "bc"})),
                                            hex(mac({"abc"})),     hex(mac({"abc", ""})),
                                            hex(mac({"", "abc"})), hex(mac({}))};
  EXPECT_EQ(signatures.size(), 6U);
  EXPECT_EQ(mac({"ab", "c"}), mac({"ab", "c"}));  // used again, the same
  EXPECT_NE(mac({"x"}), Mac(Token::random())({"x"}));
}

TEST(Crypto, TokensAreRandomAndOfOneSize) {
  EXPECT_NE(Token::random().bytes(), Token::random().bytes());
  EXPECT_EQ(Token::random().bytes().size(), Token::kSize);
  for (const int size : {0, 31, 33}) {
    EXPECT_FALSE(Token::from_bytes(counting_bytes(size)).ok()) << size;
  }
}

TEST(Crypto, TokensComeFromHexadecimalDigits) {
  const Token token = Token::random();
  const auto again = Token::from_hex(to_hex(token.bytes()));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->bytes(), token.bytes());
  const std::string digits = to_hex(token.bytes());
  for (const std::string& wrong : {std::string(), digits.substr(1), digits.substr(2), digits + "00",
                                   "zz" + digits.substr(2)}) {
    const auto refused = Token::from_hex(wrong);
    EXPECT_FALSE(refused.ok());
    // An error never repeats the text that was given as a token.
    EXPECT_EQ(refused.status().message().find(digits.substr(4, 8)), std::string::npos);
  }
}

TEST(Crypto, Base64GivesTheKnownTexts) {
  EXPECT_EQ(to_base64(""), "");
  EXPECT_EQ(to_base64("f"), "Zg==");
  EXPECT_EQ(to_base64("fo"), "Zm8=");
  EXPECT_EQ(to_base64("foo"), "Zm9v");
  EXPECT_EQ(to_base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(to_base64("\xfb\xff"), "+/8=");
}

TEST(Crypto, ComparesInConstantTime) {
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  EXPECT_TRUE(equal_in_constant_time("", ""));
  EXPECT_FALSE(equal_in_constant_time("abc", "abd"));
  EXPECT_FALSE(equal_in_constant_time("abc", "ab"));
}

TEST(Crypto, RandomBytesAreAsManyAsAsked) {
  EXPECT_EQ(random_bytes(0), "");
  EXPECT_EQ(random_bytes(1000).size(), 1000U);
  EXPECT_NE(random_bytes(16), random_bytes(16));
}

}  // namespace
}  // namespace hvd
