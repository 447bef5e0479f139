// The layout of tensors that operations know before anything is sent.
#include "runtime/ops/layout.h"

#include <gtest/gtest.h>
#include <vector>

namespace hvd::test {
namespace {

using runtime::Entry;
using runtime::Outcome;
using runtime::Request;
using Extents = std::vector<std::int64_t>;

Request request_of(Extents shape, DataType type = DataType::float32) {
  Request request;
  request.name = "gradients";
  request.kind = runtime::Kind::alltoall;
  request.type = type;
  request.shape = std::move(shape);
  return request;
}

TEST(Layout, ActiveRanksKnowTheirPlaceInTheSetAndAmongEachOther) {
  runtime::Response response;
  response.joined = {4, 9};
  const runtime::Group group{1, {2, 4, 5, 7}, 2};
  const auto active = runtime::active_of(response, group);
  EXPECT_EQ(active.ranks, (std::vector<int>{2, 5, 7}));
  EXPECT_EQ(active.positions, (std::vector<int>{0, 2, 3}));
  EXPECT_EQ(active.rank, 1);
  EXPECT_TRUE(active.takes_part());
  response.joined = {5};
  EXPECT_FALSE(runtime::active_of(response, group).takes_part());
}

TEST(Layout, ARowIsEverythingButTheFirstExtent) {
  EXPECT_EQ(runtime::row_bytes(request_of({7, 2, 3}, DataType::float64)), 48U);
  EXPECT_EQ(runtime::row_bytes(request_of({7})), 4U);
  EXPECT_EQ(runtime::row_bytes(request_of({7, 0})), 0U);
  EXPECT_EQ(runtime::row_bytes(request_of({})), 4U);
  EXPECT_EQ(runtime::rows(request_of({7, 2})), 7);
  EXPECT_EQ(runtime::rows(request_of({0, 2})), 0);
  EXPECT_EQ(runtime::rows(request_of({})), 1);
  EXPECT_EQ(runtime::with_rows({7, 2}, 5), (Extents{5, 2}));
  EXPECT_EQ(runtime::with_rows({}, 1), (Extents{1}));
}

TEST(Layout, AnOutputIsWhereTheEntryHasItOrWhereItsRoomIsMade) {
  std::vector<float> given(6);
  Entry entry;
  entry.request = request_of({3, 2});
  entry.output = given.data();
  Outcome outcome;
  EXPECT_EQ(static_cast<void*>(runtime::prepare_output(entry, {3, 2}, outcome)), given.data());
  EXPECT_EQ(outcome.output, given.data());
  EXPECT_EQ(outcome.shape, (Extents{3, 2}));
  EXPECT_TRUE(outcome.ok());

  std::vector<float> made;
  entry.allocate = [&made](const Extents& shape) {
    EXPECT_EQ(shape, (Extents{4, 2}));
    made.resize(8);
    return static_cast<void*>(made.data());
  };
  outcome = {};
  const void* const place = runtime::prepare_output(entry, {4, 2}, outcome);
  EXPECT_EQ(place, made.data());
  EXPECT_EQ(outcome.output, made.data());
  EXPECT_EQ(outcome.shape, (Extents{4, 2}));
}

TEST(Layout, AnOutputWithoutElementsNeedsNoMemoryAndAnyOtherDoes) {
  Entry entry;
  entry.request = request_of({3, 2});
  Outcome outcome;
  EXPECT_EQ(runtime::prepare_output(entry, {0, 2}, outcome), nullptr);
  EXPECT_TRUE(outcome.ok());
  EXPECT_EQ(outcome.shape, (Extents{0, 2}));
  EXPECT_EQ(runtime::prepare_output(entry, {1, 2}, outcome), nullptr);
  EXPECT_EQ(outcome.failure.status.message(),
            "alltoall \"gradients\": there is no memory for the output, float32[1, 2]");
}

// The splits of one rank are those that all ranks compute.
TEST(Layout, SplitsGivenAreThoseThatAllSee) {
  Entry entry;
  entry.request = request_of({9});
  entry.splits = {4, 0, 3};
  const auto words = runtime::encode_splits(entry, 3);
  ASSERT_EQ(words.size(), runtime::split_words(3));
  EXPECT_TRUE(runtime::check_splits(entry.request, words, 5, 9, 3).ok())
      << "two rows are left over";
  EXPECT_TRUE(runtime::check_splits(entry.request, words, 5, 7, 3).ok());
  EXPECT_FALSE(runtime::check_splits(entry.request, words, 5, 6, 3).ok());
  for (int to = 0; to < 3; ++to) {
    EXPECT_EQ(runtime::split_for(words, to, 9, 3), entry.splits[static_cast<std::size_t>(to)]);
  }
}

TEST(Layout, RowsWithoutSplitsAreSharedEvenly) {
  Entry entry;
  entry.request = request_of({9});
  const auto words = runtime::encode_splits(entry, 3);
  EXPECT_TRUE(runtime::check_splits(entry.request, words, 5, 9, 3).ok());
  EXPECT_TRUE(runtime::check_splits(entry.request, words, 5, 0, 3).ok());
  EXPECT_FALSE(runtime::check_splits(entry.request, words, 5, 8, 3).ok());
  for (int to = 0; to < 3; ++to) EXPECT_EQ(runtime::split_for(words, to, 9, 3), 3);
}

TEST(Layout, SplitsThatAreAllZeroSendNothing) {
  Entry entry;
  entry.request = request_of({2});
  entry.splits = {0, 0};
  const auto words = runtime::encode_splits(entry, 2);
  EXPECT_TRUE(runtime::check_splits(entry.request, words, 0, 2, 2).ok());
  EXPECT_EQ(runtime::split_for(words, 0, 2, 2), 0);
  EXPECT_EQ(runtime::split_for(words, 1, 2, 2), 0);
}

}  // namespace
}  // namespace hvd::test
