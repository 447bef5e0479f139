#include "base/status.h"

#include <cerrno>
#include <gtest/gtest.h>
#include <memory>
#include <set>

namespace hvd {
namespace {

TEST(Status, IsOkUnlessSomethingFailed) {
  EXPECT_TRUE(Status().ok());
  EXPECT_EQ(Status().to_string(), "ok");
  const Status failed(Code::not_found, "no such host");
  EXPECT_FALSE(failed.ok());
  EXPECT_EQ(failed.to_string(), "not found: no such host");
}

TEST(Status, NamesWhatFailedAndWhy) {
  const Status status = Status::from_errno("open /x", ENOENT);
  EXPECT_EQ(status.code(), Code::not_found);
  EXPECT_EQ(status.message(), "open /x: No such file or directory");
  EXPECT_EQ(Status::from_errno("x", EACCES).code(), Code::permission_denied);
  EXPECT_EQ(Status::from_errno("x", ECONNREFUSED).code(), Code::unavailable);
  EXPECT_EQ(Status::from_errno("x", EMFILE).code(), Code::resource_exhausted);
  EXPECT_EQ(Status::from_errno("x", EADDRINUSE).code(), Code::already_exists);
  EXPECT_EQ(Status::from_errno("x", ETIMEDOUT).code(), Code::deadline_exceeded);
  EXPECT_EQ(Status::from_errno("x", EIO).code(), Code::internal);
}

TEST(Status, TakesContextOnlyWhenItFailed) {
  EXPECT_TRUE(Status().with_context("host a").ok());
  EXPECT_EQ(Status().with_context("host a").message(), "") << "nothing went wrong there";
  const Status status = Status(Code::unavailable, "gone").with_context("host a");
  EXPECT_EQ(status.code(), Code::unavailable);
  EXPECT_EQ(status.message(), "host a: gone");
}

TEST(Status, HasADifferentNameForEveryCode) {
  std::set<std::string_view> names;
  for (int code = 0; code <= static_cast<int>(Code::internal); ++code) {
    EXPECT_TRUE(names.insert(code_name(static_cast<Code>(code))).second) << code;
  }
  EXPECT_EQ(names.count("unknown"), 0U);
}

TEST(Result, HoldsAValueOrTheReason) {
  Result<std::unique_ptr<int>> good(std::make_unique<int>(3));
  ASSERT_TRUE(good.ok());
  EXPECT_TRUE(good.status().ok());
  const std::unique_ptr<int> taken = *std::move(good);
  EXPECT_EQ(*taken, 3);
  const Result<std::string> bad(Status(Code::data_loss, "cut"));
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().code(), Code::data_loss);
}

Status fails_early(bool fail, bool& went_on) {
  HVD_RETURN_IF_ERROR(fail ? Status(Code::aborted, "stop") : Status());
  went_on = true;
  return {};
}

TEST(Status, LeavesTheFunctionAtTheFirstError) {
  bool went_on = false;
  EXPECT_EQ(fails_early(true, went_on).code(), Code::aborted);
  EXPECT_FALSE(went_on);
  EXPECT_TRUE(fails_early(false, went_on).ok());
  EXPECT_TRUE(went_on);
}

}  // namespace
}  // namespace hvd
