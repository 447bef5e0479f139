// Access to the status page, without sockets.
#include "driver/status/page_access.h"

#include <gtest/gtest.h>
#include <set>
#include <vector>

#include "base/text.h"

namespace hvd::driver {
namespace {

constexpr const char* kJob = "17f4f6a5c9b35ae1";
constexpr std::uint16_t kPort = 4000;

class PageAccessTest : public testing::Test {
 protected:
  static HttpRequest get(std::string target) {
    HttpRequest request;
    request.method = "GET";
    request.target = std::move(target);
    request.host = "127.0.0.1:4000";
    return request;
  }
  HttpRequest with_token(std::string target) const {
    HttpRequest request = get(std::move(target));
    request.authorization = cat("Bearer ", token_);
    return request;
  }
  unsigned judge(const HttpRequest& request) { return access_.judge(request, now_).status; }
  std::string open() {
    const auto verdict = access_.judge(get(cat("/?key=", access_.make_key(now_))), now_);
    EXPECT_EQ(verdict.status, 303U) << verdict.text;
    return verdict.token;
  }

  TimePoint now_ = TimePoint(std::chrono::hours(100));
  PageAccess access_{kJob, {"127.0.0.1", kPort}};
  std::string token_ = open();
};

TEST_F(PageAccessTest, AKeyOpensThePageOnce) {
  const std::string key = access_.make_key(now_);
  EXPECT_EQ(key.size(), 64U);
  EXPECT_EQ(judge(get("/?key=" + key)), 303U);
  const auto again = access_.judge(get("/?key=" + key), now_);
  EXPECT_EQ(again.status, 401U);
  EXPECT_EQ(again.token, "");
  EXPECT_NE(again.text.find(cat("hvdrun page ", kJob)), std::string::npos) << again.text;
  EXPECT_EQ(again.text.find(key), std::string::npos);
  // A browser that has access already needs a new one, too.
  EXPECT_EQ(judge(with_token("/?key=" + key)), 401U);
}

TEST_F(PageAccessTest, EachBrowserGetsATokenOfItsOwn) {
  EXPECT_EQ(token_.size(), 64U);
  EXPECT_NE(open(), token_);
}

TEST_F(PageAccessTest, TheTokenOpensEverythingAndAgain) {
  for (const char* const path : {"/status", "/events", "/events?after=3", "/x", "/x?page.js"}) {
    EXPECT_EQ(judge(with_token(path)), 200U) << path;
    EXPECT_EQ(judge(get(path)), 401U) << path;
  }
}

// They are the same for all jobs.
TEST_F(PageAccessTest, ThePagesOwnFilesNeedNoToken) {
  for (const char* const path : {"/", "/page.js", "/page.css?x"}) {
    EXPECT_EQ(judge(get(path)), 200U) << path;
    EXPECT_EQ(judge(with_token(path)), 200U) << path;
  }
}

TEST_F(PageAccessTest, AnotherTokenOpensNothing) {
  PageAccess other("a6cca56365eafafb", {"127.0.0.1", kPort});
  const std::string foreign = other.judge(get(cat("/?key=", other.make_key(now_))), now_).token;
  std::string one_off = token_;
  one_off.back() = one_off.back() == '0' ? '1' : '0';
  for (const std::string& wrong :
       {cat("Bearer ", foreign), cat("Bearer ", one_off), cat("Bearer ", std::string(64, '0')),
        std::string("Bearer "), std::string("Bearer"), token_, cat("Basic ", token_),
        cat("Bearer ", token_.substr(1)), cat("Bearer ", token_, "0"), cat("Bearer", token_)}) {
    HttpRequest request = get("/status");
    request.authorization = wrong;
    EXPECT_EQ(judge(request), 401U) << wrong;
  }
  // Nor does the token of this job open another one.
  EXPECT_EQ(other.judge(with_token("/status"), now_).status, 401U);
}

TEST_F(PageAccessTest, AWrongOrOldKeyOpensNothing) {
  const std::string key = access_.make_key(now_);
  for (const std::string& wrong : {std::string(), std::string(64, '0'), key.substr(1), key + "0",
                                   std::string("rubbish"), key + "&x=1"}) {
    EXPECT_EQ(judge(get("/?key=" + wrong)), 401U) << wrong;
  }
  now_ += PageAccess::kKeyTime;
  EXPECT_EQ(judge(get("/?key=" + key)), 401U);
  EXPECT_EQ(judge(with_token("/status")), 200U) << "a browser that is in stays in";

  const std::string oldest = access_.make_key(now_);
  for (std::size_t i = 1; i < PageAccess::kMaxKeys; ++i) access_.make_key(now_);
  const std::string newest = access_.make_key(now_);
  EXPECT_EQ(judge(get("/?key=" + oldest)), 401U);
  EXPECT_EQ(judge(get("/?key=" + newest)), 303U);
}

TEST_F(PageAccessTest, ThereIsALimitToTheBrowsers) {
  std::string last;
  for (std::size_t i = 1; i < PageAccess::kMaxBrowsers; ++i) last = open();
  EXPECT_EQ(judge(with_token("/status")), 200U);
  open();
  EXPECT_EQ(judge(with_token("/status")), 401U);
  token_ = last;
  EXPECT_EQ(judge(with_token("/status")), 200U);
}

TEST_F(PageAccessTest, OnlyGetIsAnswered) {
  for (const char* const method : {"POST", "HEAD", "PUT", "DELETE", "OPTIONS", "get"}) {
    HttpRequest request = with_token("/status");
    request.method = method;
    EXPECT_EQ(judge(request), 405U) << method;
    request.authorization.clear();
    EXPECT_EQ(judge(request), 401U) << method;
  }
  // Another method does not use up a key.
  const std::string key = access_.make_key(now_);
  HttpRequest head = get("/?key=" + key);
  head.method = "HEAD";
  EXPECT_EQ(judge(head), 405U);
  EXPECT_EQ(judge(get("/?key=" + key)), 303U);
}

// The name of a stranger's server may lead here (DNS rebinding).
TEST_F(PageAccessTest, TheHostIsAnAddressWithThisPort) {
  for (const char* const host :
       {"127.0.0.1:4000", "127.83.22.9:4000", "[::1]:4000", "10.0.0.1:4000"}) {
    HttpRequest request = with_token("/status");
    request.host = host;
    EXPECT_EQ(judge(request), 200U) << host;
  }
  const std::string key = access_.make_key(now_);
  for (const char* const host : {"",
                                 "evil.example:4000",
                                 "evil.example",
                                 "127.0.0.1",
                                 "localhost",
                                 "localhost:4000",
                                 "LOCALHOST:4000",
                                 "localhost.:4000",
                                 "127.0.0.1:4001",
                                 "127.0.0.1.evil.example:4000",
                                 "localhost.evil.example:4000",
                                 "127.0.0.1:",
                                 ":4000",
                                 "::1:4000",
                                 "[::1]",
                                 "[evil.example]:4000",
                                 "[127.0.0.1]:4000",
                                 "user@127.0.0.1:4000",
                                 ",127.0.0.1:4000",
                                 "127.0.0.1:4000,evil.example"}) {
    HttpRequest request = with_token("/status");
    request.host = host;
    EXPECT_EQ(judge(request), 403U) << host;
    HttpRequest first = get("/?key=" + key);
    first.host = host;
    EXPECT_EQ(judge(first), 403U) << host;
  }
  EXPECT_EQ(judge(get("/?key=" + key)), 303U) << "what is refused uses up no key";

  PageAccess at_80(kJob, {"127.0.0.1", 80});
  HttpRequest request = get(cat("/?key=", at_80.make_key(now_)));
  request.host = "127.0.0.1";
  EXPECT_EQ(at_80.judge(request, now_).status, 303U);
}

TEST_F(PageAccessTest, OtherSitesAreRefused) {
  for (const char* const site : {"cross-site", "same-site", "x", ",none"}) {
    HttpRequest request = with_token("/status");
    request.fetch_site = site;
    EXPECT_EQ(judge(request), 403U) << site;
  }
  for (const char* const site : {"same-origin", "none", ""}) {
    HttpRequest request = with_token("/status");
    request.fetch_site = site;
    EXPECT_EQ(judge(request), 200U) << site;
  }
  for (const char* const origin :
       {"http://evil.example", "null", "http://127.0.0.1:4001", "https://127.0.0.1:4000",
        "http://localhost:4000", "http://127.0.0.1:4000.evil.example", ",http://127.0.0.1:4000"}) {
    HttpRequest request = with_token("/status");
    request.origin = origin;
    EXPECT_EQ(judge(request), 403U) << origin;
  }
  HttpRequest own = with_token("/status");
  own.origin = "http://127.0.0.1:4000";
  EXPECT_EQ(judge(own), 200U);
}

}  // namespace
}  // namespace hvd::driver
