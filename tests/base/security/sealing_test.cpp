#include "base/security/sealing.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <openssl/evp.h>
#include <string>
#include <vector>

namespace hvd {
namespace {

using Bytes = std::vector<std::byte>;
using Tag = RecordCipher::Tag;

Bytes bytes_of(std::string_view text) {
  Bytes bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

struct Record {
  Bytes bytes;
  Tag tag;
};

Record sealed(RecordCipher& cipher, std::string_view text) {
  const Bytes clear = bytes_of(text);
  Record record{clear, {}};
  record.tag = cipher.seal(clear, record.bytes.data());
  return record;
}

class Sealing : public testing::TestWithParam<Protection> {
 protected:
  RecordCipher cipher() const { return {key_, GetParam()}; }
  const Token key_ = Token::random();
};
INSTANTIATE_TEST_SUITE_P(Protection, Sealing,
                         testing::Values(Protection::integrity, Protection::encrypted),
                         [](const auto& row) { return std::string(name_of(row.param)); });

TEST_P(Sealing, RecordsOpenInTheOrderInWhichTheyWereSealed) {
  auto sender = cipher();
  auto receiver = cipher();
  for (const std::string text : {"", "a", "a", "forty-two bytes of a record, more or less"}) {
    auto record = sealed(sender, text);
    ASSERT_TRUE(receiver.open(record.bytes, record.tag)) << text;
    EXPECT_EQ(record.bytes, bytes_of(text));
  }
}

TEST_P(Sealing, EqualTextsHaveOtherTagsEachTime) {
  auto sender = cipher();
  const auto first = sealed(sender, "gradient");
  const auto second = sealed(sender, "gradient");
  EXPECT_NE(first.tag, second.tag);
  EXPECT_EQ(first.bytes == second.bytes, GetParam() == Protection::integrity);
  EXPECT_EQ(first.bytes == bytes_of("gradient"), GetParam() == Protection::integrity);
}

TEST_P(Sealing, AChangedBitIsFoundWhereverItIs) {
  for (std::size_t bit = 0; bit < 8 * (8 + RecordCipher::kTagBytes); ++bit) {
    auto sender = cipher();
    auto receiver = cipher();
    auto record = sealed(sender, "gradient");
    const auto mask = std::byte{1} << (bit % 8);
    if (bit / 8 < record.bytes.size()) {
      record.bytes[bit / 8] ^= mask;
    } else {
      record.tag.at(bit / 8 - record.bytes.size()) ^= mask;
    }
    EXPECT_FALSE(receiver.open(record.bytes, record.tag)) << bit;
  }
}

TEST_P(Sealing, ARecordIsNoOtherOne) {
  auto sender = cipher();
  const auto first = sealed(sender, "one");
  const auto second = sealed(sender, "two");
  auto skipping = cipher();
  Record later = second;
  EXPECT_FALSE(skipping.open(later.bytes, later.tag)) << "the first one is missing";

  auto repeating = cipher();
  Record again = first;
  ASSERT_TRUE(repeating.open(again.bytes, again.tag));
  again = first;
  EXPECT_FALSE(repeating.open(again.bytes, again.tag)) << "it has come before";

  auto cut = cipher();
  Record shorter = first;
  shorter.bytes.pop_back();
  EXPECT_FALSE(cut.open(shorter.bytes, shorter.tag));
}

TEST_P(Sealing, AnotherKeyOrAnotherProtectionOpensNothing) {
  auto sender = cipher();
  const auto record = sealed(sender, "gradient");
  Record one = record;
  RecordCipher stranger(Token::random(), GetParam());
  EXPECT_FALSE(stranger.open(one.bytes, one.tag));

  Record other = record;
  const auto another =
      GetParam() == Protection::integrity ? Protection::encrypted : Protection::integrity;
  RecordCipher different(key_, another);
  EXPECT_FALSE(different.open(other.bytes, other.tag));
}

TEST_P(Sealing, GoesOnOverAChangeOfKeys) {
  auto sender = cipher();
  auto receiver = cipher();
  const auto clear = bytes_of("x");
  Bytes copy(1);
  for (std::uint64_t i = 0; i < RecordCipher::kRecordsPerKey + 3; ++i) {
    copy = clear;
    const Tag tag = sender.seal(clear, copy.data());
    ASSERT_TRUE(receiver.open(copy, tag)) << i;
  }
  EXPECT_EQ(copy, clear);
}

// The key and the base of the nonces that come from this key, as sealing.h says, and the next key.
struct Derived {
  Digest material;
  Token next;
};

Derived derived_from(const Token& key, Protection protection = Protection::encrypted) {
  const Mac derive(key);
  return {derive({"hvd record key", name_of(protection)}),
          *Token::from_bytes(as_view(derive({"hvd next record key"})))};
}

// All of the record at once. With integrity alone it is the data that AES-GCM authenticates beside
// an empty text.
bool opens(const Derived& keys, std::uint64_t number, const Record& record, std::string* text) {
  std::array<unsigned char, 12> nonce{};
  std::copy_n(keys.material.begin() + 16, nonce.size(), nonce.begin());
  for (std::size_t i = 0; i < 8; ++i) {
    nonce.at(11 - i) ^= static_cast<unsigned char>(number >> (8 * i));
  }
  const std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)> cipher(
      EVP_CIPHER_CTX_new(), &EVP_CIPHER_CTX_free);
  Tag tag = record.tag;
  int length = 0;
  auto* const out = text == nullptr ? nullptr : reinterpret_cast<unsigned char*>(text->data());
  const auto* const in = reinterpret_cast<const unsigned char*>(record.bytes.data());
  std::array<unsigned char, 16> end{};
  return EVP_DecryptInit_ex(cipher.get(), EVP_aes_128_gcm(), nullptr, keys.material.data(),
                            nonce.data()) == 1 &&
         EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_AEAD_SET_TAG, 16, tag.data()) == 1 &&
         EVP_DecryptUpdate(cipher.get(), out, &length, in, static_cast<int>(record.bytes.size())) ==
             1 &&
         EVP_DecryptFinal_ex(cipher.get(), end.data(), &length) == 1;
}

std::string decrypted(const Derived& keys, std::uint64_t number, const Record& record) {
  std::string text(record.bytes.size(), '\0');
  return opens(keys, number, record, &text) ? text : "it does not open";
}

TEST(RecordFormat, IsAesGcmUnderKeysThatChange) {
  const Token key = Token::random();
  RecordCipher cipher(key, Protection::encrypted);
  const Derived first = derived_from(key);
  EXPECT_EQ(decrypted(first, 0, sealed(cipher, "record 0")), "record 0");
  EXPECT_EQ(decrypted(first, 1, sealed(cipher, "record 1")), "record 1");
  for (auto i = std::uint64_t{2}; i < RecordCipher::kRecordsPerKey; ++i) sealed(cipher, "x");

  const Record next = sealed(cipher, "of the next key");
  EXPECT_EQ(decrypted(first, RecordCipher::kRecordsPerKey, next), "it does not open");
  const Derived second = derived_from(first.next);
  EXPECT_EQ(decrypted(second, RecordCipher::kRecordsPerKey, next), "of the next key");
}

// The cipher is given the bytes of a long record in pieces.
TEST(RecordFormat, OfIntegrityAloneIsGmacOfTheWholeRecord) {
  const Token key = Token::random();
  RecordCipher sender(key, Protection::integrity);
  RecordCipher receiver(key, Protection::integrity);
  const Derived keys = derived_from(key, Protection::integrity);
  std::uint64_t number = 0;
  for (const std::size_t size : {0, 1, 1535, 1536, 1537, 3072, 3073, 65535, 65536}) {
    std::string text(size, '\0');
    for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i % 251);
    Record record = sealed(sender, text);
    EXPECT_TRUE(opens(keys, number++, record, nullptr)) << size;
    EXPECT_TRUE(receiver.open(record.bytes, record.tag)) << size;
  }
}

TEST_P(Sealing, AChangeInAnyPieceOfALongRecordIsFound) {
  const std::string text(10'000, 'x');
  for (std::size_t at = 0; at < text.size(); at += 111) {
    auto sender = cipher();
    auto receiver = cipher();
    Record record = sealed(sender, text);
    record.bytes[at] ^= std::byte{1};
    EXPECT_FALSE(receiver.open(record.bytes, record.tag)) << at;
  }
}

TEST(Protection, HasNames) {
  for (const auto protection : {Protection::none, Protection::integrity, Protection::encrypted}) {
    EXPECT_EQ(protection_named(name_of(protection)), protection);
  }
  EXPECT_FALSE(protection_named("tls"));
}

}  // namespace
}  // namespace hvd
