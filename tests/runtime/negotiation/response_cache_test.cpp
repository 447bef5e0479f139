#include "runtime/negotiation/response_cache.h"

#include <gtest/gtest.h>

#include "tests/runtime/negotiation/negotiation_tools.h"

namespace hvd::runtime {
namespace {

using test::of_kind;
using test::tensor;

class Cache : public ::testing::Test {
 protected:
  static std::vector<CacheId> ids(const std::vector<EvictedTensor>& departed) {
    std::vector<CacheId> all;
    for (const auto& [id, tensor] : departed) all.push_back(id);
    return all;
  }
  std::vector<CacheId> agree(ResponseCache& cache, Request request,
                             std::vector<std::int64_t> first_extents = {}) {
    std::vector<EvictedTensor> evicted;
    ResponseTensor agreed{std::move(request), std::move(first_extents)};
    cache.agreed(std::make_shared<const ResponseTensor>(std::move(agreed)), evicted);
    return ids(evicted);
  }
};

TEST_F(Cache, KnowsAgreedRequestsAndNothingThatDiffersInAnything) {
  ResponseCache cache(10);
  Request known = tensor("a");
  EXPECT_FALSE(cache.find(known, 0));
  agree(cache, known);
  EXPECT_EQ(cache.find(known, 0), CacheId{0});
  for (const auto& change : std::vector<void (*)(Request&)>{
           [](Request& r) { r.name = "b"; }, [](Request& r) { r.kind = Kind::broadcast; },
           [](Request& r) { r.type = DataType::int8; }, [](Request& r) { r.op = ReduceOp::max; },
           [](Request& r) { r.root = 1; }, [](Request& r) { r.prescale = 2; },
           [](Request& r) { r.postscale = 2; },
           [](Request& r) {
             r.shape = {2, 2};
           },
           [](Request& r) { r.on_host = false; },
           [](Request& r) { r.compression = Compression::float16; },
           [](Request& r) { r.process_set = 1; },
           [](Request& r) {
             r.group = "g";
             r.group_size = 1;
           }}) {
    Request other = known;
    change(other);
    EXPECT_FALSE(cache.find(other, 0));
  }
}

TEST_F(Cache, EveryKindOfTensorIsKeptButNotBarriersJoinsAndProcessSets) {
  ResponseCache cache(10);
  for (const auto kind : {Kind::allreduce, Kind::broadcast, Kind::reducescatter}) {
    agree(cache, of_kind(kind, std::string(kind_name(kind))));
    EXPECT_TRUE(cache.find(of_kind(kind, std::string(kind_name(kind))), 0)) << kind_name(kind);
  }
  for (const auto kind :
       {Kind::barrier, Kind::join, Kind::add_process_set, Kind::remove_process_set}) {
    agree(cache, of_kind(kind, "x"));
    EXPECT_FALSE(cache.find(of_kind(kind, "x"), 0)) << kind_name(kind);
  }
}

TEST_F(Cache, ARaggedTensorIsKnownToARankWhoseOwnExtentIsAsBefore) {
  for (const auto kind : {Kind::allgather, Kind::alltoall}) {
    ResponseCache cache(10);
    agree(cache, of_kind(kind, "a", {0, 7}), {3, 0, 5});
    EXPECT_TRUE(cache.find(of_kind(kind, "a", {3, 7}), 0));
    EXPECT_FALSE(cache.find(of_kind(kind, "a", {3, 7}), 1));
    EXPECT_TRUE(cache.find(of_kind(kind, "a", {0, 7}), 1));
    EXPECT_TRUE(cache.find(of_kind(kind, "a", {5, 7}), 2));
    EXPECT_FALSE(cache.find(of_kind(kind, "a", {5, 8}), 2));
    EXPECT_FALSE(cache.find(of_kind(kind, "a", {5, 7}), 3));
  }
}

TEST_F(Cache, TheLeastRecentlyUsedTensorIsEvictedFirst) {
  ResponseCache cache(3);
  for (const auto* name : {"a", "b", "c"}) EXPECT_TRUE(agree(cache, tensor(name)).empty());
  cache.used(*cache.find(tensor("a"), 0));
  EXPECT_EQ(agree(cache, tensor("d")), std::vector<CacheId>{1});  // b
  EXPECT_FALSE(cache.find(tensor("b"), 0));
  EXPECT_TRUE(cache.find(tensor("a"), 0));
  EXPECT_EQ(cache.size(), 3U);
}

TEST_F(Cache, AnIdIsNeverUsedAgain) {
  ResponseCache cache(2);
  agree(cache, tensor("a"));
  EXPECT_EQ(agree(cache, tensor("a", 5)), std::vector<CacheId>{0});  // cached again
  EXPECT_EQ(cache.find(tensor("a", 5), 0), CacheId{1});
  EXPECT_EQ(cache.get(CacheId{0}), nullptr);
  cache.used(0);  // harmless
  EXPECT_EQ(cache.size(), 1U);
}

TEST_F(Cache, AProcessSetTakesItsTensorsAlong) {
  ResponseCache cache(10);
  agree(cache, tensor("a"));
  agree(cache, test::in_set(tensor("a"), 1));
  agree(cache, test::in_set(tensor("b"), 1));
  std::vector<EvictedTensor> evicted;
  cache.set_removed(1, evicted);
  EXPECT_EQ(ids(evicted), (std::vector<CacheId>{1, 2}));
  EXPECT_TRUE(cache.find(tensor("a"), 0));
}

TEST_F(Cache, OfNoCapacityKeepsNothing) {
  ResponseCache cache(0);
  agree(cache, tensor("a"));
  EXPECT_FALSE(cache.find(tensor("a"), 0));
}

}  // namespace
}  // namespace hvd::runtime
