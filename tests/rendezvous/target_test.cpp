#include <gtest/gtest.h>

#include "rendezvous/requests.h"

namespace hvd::rendezvous {
namespace {

TEST(Target, DecodesEachPartOnce) {
  Target target;
  ASSERT_TRUE(parse_target("/rank_and_size/host:0", target).ok());
  EXPECT_EQ(target.scope, "rank_and_size");
  EXPECT_EQ(target.key, "host:0");
  ASSERT_TRUE(parse_target("/a%2Fb/c%252F+%00", target).ok());
  EXPECT_EQ(target.scope, "a/b");
  EXPECT_EQ(target.key, std::string("c%2F+\0", 6));
}

TEST(Target, TakesHexDigitsInBothCases) {
  Target target;
  ASSERT_TRUE(parse_target("/a%2f%ff%aA/%Ca", target).ok());
  EXPECT_EQ(target.scope, "a/\xff\xaa");
  EXPECT_EQ(target.key, "\xca");
}

TEST(Target, RoundTripsEveryValue) {
  std::string every;
  for (int c = 0; c < 256; ++c) every += static_cast<char>(c);
  Target target;
  ASSERT_TRUE(parse_target("/" + percent_encode(every) + "/" + percent_encode(every), target).ok());
  EXPECT_EQ(target.scope, every);
  EXPECT_EQ(target.key, every);
}

TEST(Target, LeavesCharactersThatNeedNoEncodingAsTheyAre) {
  EXPECT_EQ(percent_encode("azAZ09-._~:"), "azAZ09-._~:");
  EXPECT_EQ(percent_encode("/@[`{%"), "%2F%40%5B%60%7B%25");
}

TEST(Target, ReadsOptionsAndForgetsThoseOfTheLastRequest) {
  Target target;
  ASSERT_TRUE(parse_target("/s/k?wait=1.5&newer=7", target).ok());
  EXPECT_EQ(target.wait->count(), 1'500);
  EXPECT_EQ(target.newer_than, 7u);
  ASSERT_TRUE(parse_target("/s/k?expected=0", target).ok());
  EXPECT_FALSE(target.wait.has_value());
  EXPECT_EQ(target.newer_than, 0u);
  EXPECT_EQ(target.expected, 0u);
}

TEST(Target, RefusesMalformedTargets) {
  Target target;
  for (const auto* const text : {"",
                                 "s/k",
                                 "/",
                                 "//k",
                                 "/s/",
                                 "/s/k/",
                                 "/s/k/l",
                                 "/s/%",
                                 "/s/%4",
                                 "/s/%zz",
                                 "/%/k",
                                 "*",
                                 "http://host/s/k",
                                 "/s/k?wait",
                                 "/s/k?wait=",
                                 "/s/k?wait=-1",
                                 "/s/k?wait=nan",
                                 "/s/k?wait=inf",
                                 "/s/k?wait=1e30",
                                 "/s/k?newer=-1",
                                 "/s/k?newer=x",
                                 "/s/k?expected=",
                                 "/s/k?expected=18446744073709551616",
                                 "/s/k?wiat=1",
                                 "/s/k?read=1"}) {
    EXPECT_FALSE(parse_target(text, target).ok()) << text;
  }
}

TEST(Bulk, RoundTripsEveryValue) {
  const std::map<std::string, std::string> values{{"a", "1"}, {"b", std::string("\0\xff", 2)}};
  const auto decoded = decode_bulk_write(encode_bulk_write(values));
  ASSERT_TRUE(decoded.ok());
  ASSERT_EQ(decoded->size(), 2u);
  EXPECT_EQ((*decoded)[1].second->bytes, std::string("\0\xff", 2));

  const Entry entry{make_value("v"), 9};
  const auto read = decode_bulk_values(encode_bulk_values({&entry, nullptr}));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ((*read)[0]->value, "v");
  EXPECT_EQ((*read)[0]->version, 9u);
  EXPECT_FALSE((*read)[1].has_value());
}

TEST(Bulk, RefusesEveryTruncationAndEveryLieAboutACount) {
  const std::string whole = encode_bulk_write({{"key", "value"}, {"other", "value"}});
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(decode_bulk_write(whole.substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(decode_bulk_write(whole + "x").ok());
  std::string lie = whole;
  lie[3] = '\x7f';
  EXPECT_FALSE(decode_bulk_write(lie).ok());
  EXPECT_FALSE(decode_bulk_keys(lie).ok());
  EXPECT_FALSE(decode_bulk_values(lie).ok());
}

}  // namespace
}  // namespace hvd::rendezvous
