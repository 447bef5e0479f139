#include "rendezvous/store.h"

#include <gtest/gtest.h>

namespace hvd::rendezvous {
namespace {

ServerLimits small_limits() {
  ServerLimits limits;
  limits.max_key = 8;
  limits.max_scope = 8;
  limits.max_value = 100;
  limits.max_scopes = 2;
  limits.max_total = 6 * kKeyOverhead;
  return limits;
}

std::string text_of(const Store& store, std::string_view scope, std::string_view key) {
  const Entry* const entry = store.find(scope, key);
  return entry == nullptr ? "(absent)" : entry->value->bytes;
}

TEST(Store, ForgetsTheScopesOfWhichAConditionHoldsAndNoOthers) {
  Store store(ServerLimits{});
  for (const char* const scope : {"world", "world.1.1", "world.2.1", "global"}) {
    ASSERT_TRUE(store.put(scope, "k", make_value("v")).ok());
  }
  const std::size_t before = store.charged_bytes();
  ASSERT_TRUE(store.put("world.1.2", "k", make_value("v")).ok());
  store.erase_scopes_if([](std::string_view scope) { return scope.starts_with("world.1."); });
  EXPECT_EQ(store.scope_count(), 3U);
  EXPECT_EQ(store.key_count(), 3U);
  EXPECT_LT(store.charged_bytes(), before);
  EXPECT_EQ(text_of(store, "world.1.1", "k"), "(absent)");
  EXPECT_EQ(text_of(store, "world.2.1", "k"), "v");
}

TEST(Store, GivesEveryChangeANewVersionAndStartsWhereItIsTold) {
  Store store({}, 100);
  EXPECT_EQ(*store.put("s", "a", make_value("1")), 100u);
  EXPECT_EQ(*store.put("s", "b", make_value("2")), 101u);
  EXPECT_EQ(*store.put("s", "a", make_value("1")), 102u);
  EXPECT_EQ(store.find("s", "a")->version, 102u);
  EXPECT_EQ(store.find("s", "b")->version, 101u);
}

TEST(Store, DropsAScopeWithItsLastKey) {
  Store store({});
  ASSERT_TRUE(store.put("s", "a", make_value("1")).ok());
  ASSERT_TRUE(store.put("s", "b", make_value("2")).ok());
  store.erase("s", "a");
  EXPECT_EQ(text_of(store, "s", "a"), "(absent)");
  EXPECT_EQ(text_of(store, "s", "b"), "2");
  EXPECT_EQ(store.scope_count(), 1u);
  store.erase("s", "unknown");
  store.erase("unknown", "a");
  store.erase("s", "b");
  EXPECT_EQ(store.scope_count(), 0u);
  EXPECT_EQ(store.key_count(), 0u);
  EXPECT_EQ(store.charged_bytes(), 0u);
}

TEST(Store, KeepsAnExpectedScopeUntilEachOfItsKeysIsFinished) {
  Store store({});
  store.expect("global", 2);
  store.expect("local_a", 2);
  for (const auto* const scope : {"global", "local_a"}) {
    ASSERT_TRUE(store.put(scope, "0", make_value("zero")).ok());
    ASSERT_TRUE(store.put(scope, "1", make_value("one")).ok());
  }
  store.erase("local_a", "0");
  store.erase("global", "0");
  store.erase("global", "0");  // again, as after a lost answer
  EXPECT_EQ(text_of(store, "global", "0"), "zero");
  store.erase("global", "1");
  EXPECT_EQ(text_of(store, "global", "0"), "(absent)");
  // The other scope has forgotten nothing of what was finished in it.
  EXPECT_EQ(text_of(store, "local_a", "0"), "zero");
  store.erase("local_a", "1");
  EXPECT_EQ(store.scope_count(), 0u);
}

TEST(Store, CountsAKeyThatIsWrittenAgainAsUnfinished) {
  Store store({});
  store.expect("global", 2);
  ASSERT_TRUE(store.put("global", "0", make_value("old")).ok());
  store.erase("global", "0");
  ASSERT_TRUE(store.put("global", "0", make_value("new")).ok());
  ASSERT_TRUE(store.put("global", "1", make_value("new")).ok());
  store.erase("global", "1");
  EXPECT_EQ(text_of(store, "global", "0"), "new");
  store.erase("global", "0");
  EXPECT_EQ(store.key_count(), 0u);
}

TEST(Store, ComparesBeforeItSets) {
  Store store({}, 10);
  EXPECT_EQ(*store.compare_and_set("s", "k", make_value("first"), 0), 10u);
  EXPECT_EQ(store.compare_and_set("s", "k", make_value("second"), 0).status().code(),
            Code::already_exists);
  EXPECT_EQ(store.compare_and_set("s", "k", make_value("second"), 9).status().code(),
            Code::already_exists);
  EXPECT_EQ(*store.compare_and_set("s", "k", make_value("second"), 10), 11u);
  EXPECT_EQ(store.compare_and_set("s", "other", make_value("x"), 11).status().code(),
            Code::already_exists);
  EXPECT_EQ(text_of(store, "s", "k"), "second");
}

TEST(Store, WakesEachWaiterOnceWithWhatWasWritten) {
  Store store({});
  std::vector<std::string> woken;
  for (int i = 0; i < 3; ++i) {
    store.wait("s", "k", 0, [&](const Entry& entry) { woken.push_back(entry.value->bytes); });
  }
  ASSERT_TRUE(store.put("s", "other", make_value("x")).ok());
  EXPECT_TRUE(woken.empty());
  ASSERT_TRUE(store.put("s", "k", make_value("v")).ok());
  EXPECT_EQ(woken, (std::vector<std::string>{"v", "v", "v"}));
  EXPECT_EQ(store.waiter_count(), 0u);
  ASSERT_TRUE(store.put("s", "k", make_value("w")).ok());
  EXPECT_EQ(woken.size(), 3u);
}

TEST(Store, LeavesWaitersForANewerVersionWaiting) {
  Store store({}, 10);
  int woken = 0;
  store.wait("s", "k", 11, [&](const Entry&) { ++woken; });
  ASSERT_TRUE(store.put("s", "k", make_value("10")).ok());
  ASSERT_TRUE(store.put("s", "k", make_value("11")).ok());
  EXPECT_EQ(woken, 0);
  ASSERT_TRUE(store.put("s", "k", make_value("12")).ok());
  EXPECT_EQ(woken, 1);
}

TEST(Store, CancelsAWaitAndLetsAWokenWaiterChangeTheStore) {
  Store store({});
  int woken = 0;
  const auto id = store.wait("s", "k", 0, [&](const Entry&) { ++woken; });
  store.wait("s", "k", 0, [&](const Entry&) { store.erase("s", "k"); });
  EXPECT_EQ(store.waiter_count(), 2U);
  store.cancel_wait("s", "k", id);
  store.cancel_wait("s", "k", id);
  EXPECT_EQ(store.waiter_count(), 1U);
  ASSERT_TRUE(store.put("s", "k", make_value("v")).ok());
  EXPECT_EQ(woken, 0);
  EXPECT_EQ(store.key_count(), 0u);
}

TEST(Store, DoesNotMixUpScopeAndKeyOfWaiters) {
  Store store({});
  int woken = 0;
  store.wait("ab", "c", 0, [&](const Entry&) { ++woken; });
  ASSERT_TRUE(store.put("a", "bc", make_value("v")).ok());
  EXPECT_EQ(woken, 0);
}

TEST(Store, RefusesNamesValuesAndScopesBeyondTheLimits) {
  Store store(small_limits());
  EXPECT_EQ(store.put("", "k", make_value("")).status().code(), Code::invalid_argument);
  EXPECT_EQ(store.put("s", "", make_value("")).status().code(), Code::invalid_argument);
  const auto long_key = store.put("s", "123456789", make_value(""));
  EXPECT_EQ(long_key.status().code(), Code::invalid_argument);
  EXPECT_NE(long_key.status().message().find("the limit is 8"), std::string::npos);
  EXPECT_EQ(store.put("123456789", "k", make_value("")).status().code(), Code::invalid_argument);
  EXPECT_EQ(store.put("s", "k", make_value(std::string(101, 'x'))).status().code(),
            Code::resource_exhausted);
  EXPECT_EQ(store.scope_count(), 0u);

  ASSERT_TRUE(store.put("s1", "k", make_value("")).ok());
  ASSERT_TRUE(store.put("s2", "k", make_value("")).ok());
  EXPECT_EQ(store.put("s3", "k", make_value("")).status().code(), Code::resource_exhausted);
}

TEST(Store, TakesNamesAndValuesAsLongAsTheLimits) {
  Store store(small_limits());
  EXPECT_TRUE(store.put("12345678", "12345678", make_value(std::string(100, 'x'))).ok());
}

TEST(Store, ChargesWhatItHoldsAndGivesItBack) {
  auto limits = small_limits();
  limits.max_total = 2 * kKeyOverhead + 2 + 60;  // one scope, one key, 60 bytes
  Store store(limits);
  EXPECT_EQ(store.put("s", "k", make_value(std::string(61, 'x'))).status().code(),
            Code::resource_exhausted);
  ASSERT_TRUE(store.put("s", "k", make_value(std::string(60, 'x'))).ok());
  EXPECT_EQ(store.put("s", "l", make_value("")).status().code(), Code::resource_exhausted);
  ASSERT_TRUE(store.put("s", "k", make_value("small")).ok());
  ASSERT_TRUE(store.put("s", "k", make_value(std::string(60, 'y'))).ok());
  store.erase_scope("s");
  EXPECT_EQ(store.charged_bytes(), 0u);
}

TEST(Store, WritesManyOrNone) {
  auto limits = small_limits();
  Store store(limits);
  const auto big = make_value(std::string(101, 'x'));
  EXPECT_FALSE(store.put_many("s", {{"a", make_value("1")}, {"b", big}}).ok());
  EXPECT_FALSE(store.put_many("s", {{"a", make_value("1")}, {"", make_value("2")}}).ok());
  EXPECT_EQ(store.key_count(), 0u);
  ASSERT_TRUE(store.put_many("s", {{"a", make_value("1")}, {"b", make_value("2")}}).ok());
  EXPECT_EQ(text_of(store, "s", "b"), "2");
}

}  // namespace
}  // namespace hvd::rendezvous
