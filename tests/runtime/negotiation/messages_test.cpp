#include "runtime/negotiation/messages.h"

#include <cmath>
#include <gtest/gtest.h>
#include <memory>
#include <random>

#include "base/frame.h"
#include "runtime/negotiation/negotiator.h"
#include "tests/runtime/negotiation/negotiation_tools.h"

namespace hvd::runtime {
namespace {

std::string payload_of(const std::string& frame) { return frame.substr(kFrameHeaderSize); }

std::vector<Request> some_requests() {
  Request a;
  a.name = "gradients/weights";
  a.type = DataType::bfloat16;
  a.op = ReduceOp::average;
  a.prescale = 0.125;
  a.postscale = -3;
  a.shape = {3, 0, 1LL << 40};
  a.tree = 1ULL << 63;
  Request b;
  b.name = "b";
  b.kind = Kind::broadcast;
  b.root = 7;
  b.on_host = false;
  b.compression = Compression::bfloat16;
  b.process_set = 5;
  b.group = "g";
  b.group_size = 2;
  b.ranks = {1, 2};
  return {a, b};
}

RequestList some_request_list() {
  RequestList message;
  message.cached = {{test::ranks({0, 1, 5}), IntervalSet::range(7, 107)}};
  for (const auto& request : some_requests()) {
    message.full.push_back({test::ranks({2, 3}), request, {1, 1LL << 33}});
  }
  message.joined = test::ranks({4});
  message.joins_soon = true;
  message.in_shutdown = true;
  message.closing = test::ranks({5, 6, 7});
  message.left = test::ranks({6, 7});
  message.last_requests = {{3, "x", std::chrono::milliseconds(61'000)}};
  return message;
}

ResponseList some_response_list() {
  WireResponse fused;
  fused.process_set = 2;
  fused.tensors = {{5, nullptr}, {6, nullptr}, {9, nullptr}};
  fused.tensors.push_back({std::nullopt, std::make_shared<const ResponseTensor>(ResponseTensor{
                                             some_requests()[0], {1, 0, 1LL << 33}})});
  fused.tensors.push_back({10, nullptr});
  fused.joined = {1, 3};
  fused.settled = IntervalSet::of(4);
  fused.hierarchical = true;
  fused.link_speed = {std::chrono::microseconds(1'234), 5'678};
  fused.caching = false;
  WireResponse refused;
  refused.kind = Kind::join;
  refused.tensors.push_back({std::nullopt, std::make_shared<const ResponseTensor>(
                                               ResponseTensor{some_requests()[1], {}})});
  refused.last_joined = 3;
  refused.new_set = 7;
  refused.error = Status(Code::invalid_argument, "they differ");
  ResponseList message;
  message.responses = {fused, refused};
  message.keeps_ids = true;
  message.forward_immediately = true;
  return message;
}

constexpr int kRanks = 8;
constexpr std::size_t kCached = 1024;  // tensors in the reader's cache

TEST(Messages, EncodedMessagesAreDecoded) {
  EXPECT_EQ(
      decode_request_list(payload_of(encode_request_list(some_request_list())), kRanks).value(),
      some_request_list());
  EXPECT_EQ(decode_request_list(payload_of(encode_request_list({})), kRanks).value(),
            RequestList());
  const auto sent = some_response_list();
  const auto read =
      decode_response_list(payload_of(encode_response_list(sent)), kRanks, kCached).value();
  ASSERT_EQ(read.responses.size(), sent.responses.size());
  for (std::size_t i = 0; i < sent.responses.size(); ++i) {
    const auto& a = sent.responses[i];
    const auto& b = read.responses[i];
    ASSERT_EQ(b.tensors.size(), a.tensors.size());
    for (std::size_t t = 0; t < a.tensors.size(); ++t) {
      EXPECT_EQ(b.tensors[t].id, a.tensors[t].id);
      ASSERT_EQ(b.tensors[t].whole == nullptr, a.tensors[t].whole == nullptr);
      if (a.tensors[t].whole != nullptr) {
        EXPECT_EQ(*b.tensors[t].whole, *a.tensors[t].whole);
      }
    }
    EXPECT_EQ(b.kind, a.kind);
    EXPECT_EQ(b.process_set, a.process_set);
    EXPECT_EQ(b.joined, a.joined);
    EXPECT_EQ(b.last_joined, a.last_joined);
    EXPECT_EQ(b.new_set, a.new_set);
    EXPECT_EQ(b.error, a.error);
    EXPECT_EQ(b.settled, a.settled);
    EXPECT_EQ(b.hierarchical, a.hierarchical);
    EXPECT_EQ(b.link_speed, a.link_speed);
    EXPECT_EQ(b.caching, a.caching);
  }
  EXPECT_TRUE(read.keeps_ids);
  EXPECT_TRUE(read.forward_immediately);
  EXPECT_FALSE(read.goodbye);
  const std::chrono::microseconds round_trip(350);
  EXPECT_EQ(decode_formed(payload_of(encode_formed(round_trip))).value(), round_trip);
  const Failure failure(Status(Code::unavailable, "gone"), 3, "b");
  const auto decoded = decode_failure(payload_of(encode_failure(Message::abort, failure)));
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->status, failure.status);
  EXPECT_EQ(decoded->rank, 3);
  EXPECT_EQ(decoded->host, "b");
}

TEST(Messages, AHundredCachedTensorsAreAFewBytesBothWays) {
  RequestList up;
  up.cached = {{RankSet::range(0, 10'000), IntervalSet::range(500, 600)}};
  EXPECT_LT(encode_request_list(up).size(), 100U);
  ResponseList down;
  down.responses.emplace_back();
  for (CacheId id = 500; id < 600; ++id) down.responses[0].tensors.push_back({id, nullptr});
  EXPECT_LT(encode_response_list(down).size(), 100U);
}

TEST(Messages, RanksThatTheWorldDoesNotHaveAreRefused) {
  EXPECT_TRUE(decode_request_list(payload_of(encode_request_list(some_request_list())), 8).ok());
  EXPECT_FALSE(decode_request_list(payload_of(encode_request_list(some_request_list())), 7).ok());
  EXPECT_FALSE(
      decode_response_list(payload_of(encode_response_list(some_response_list())), 3, kCached)
          .ok());
}

TEST(Messages, ALieAboutManyTensorsIsRefusedBeforeItCostsMemory) {
  const auto payload = payload_of(encode_response_list(some_response_list()));
  auto lie = payload;
  // The count of the first run of ids: after the number of responses, kind, set and runs.
  lie.replace(4 + 1 + 4 + 4, 4, "\xFF\xFF\xFF\xFF");
  EXPECT_FALSE(decode_response_list(lie, kRanks, kCached).ok());
}

// Ids are encoded as runs: a few bytes could name any number of them.
TEST(Messages, NoMoreIdsAreReadThanThereAreCachedTensors) {
  ResponseList down;
  down.responses.emplace_back();
  for (CacheId id = 0; id < 100'000; ++id) down.responses[0].tensors.push_back({id, nullptr});
  const auto payload = payload_of(encode_response_list(down));
  EXPECT_LT(payload.size(), 64U);
  EXPECT_FALSE(decode_response_list(payload, kRanks, kCached).ok());
  EXPECT_FALSE(decode_response_list(payload, kRanks, 99'999).ok());
  EXPECT_TRUE(decode_response_list(payload, kRanks, 100'000).ok());

  // A tensor sent in full may be named by its id in the next response.
  ResponseList first = some_response_list();
  first.responses.resize(1);
  EXPECT_TRUE(decode_response_list(payload_of(encode_response_list(first)), kRanks, 4).ok());
  EXPECT_FALSE(decode_response_list(payload_of(encode_response_list(first)), kRanks, 3).ok());
  first.responses.emplace_back();
  for (CacheId id = 1; id <= 5; ++id) first.responses[1].tensors.push_back({id, nullptr});
  EXPECT_TRUE(decode_response_list(payload_of(encode_response_list(first)), kRanks, 4).ok());
  first.responses[1].tensors.push_back({6, nullptr});
  EXPECT_FALSE(decode_response_list(payload_of(encode_response_list(first)), kRanks, 4).ok());
}

TEST(Messages, EveryCutIsAnError) {
  const auto up = payload_of(encode_request_list(some_request_list()));
  for (std::size_t length = 0; length < up.size(); ++length) {
    EXPECT_FALSE(decode_request_list(up.substr(0, length), kRanks).ok()) << length;
  }
  const auto down = payload_of(encode_response_list(some_response_list()));
  for (std::size_t length = 0; length < down.size(); ++length) {
    EXPECT_FALSE(decode_response_list(down.substr(0, length), kRanks, kCached).ok()) << length;
  }
}

TEST(Messages, RubbishIsRefusedOrReadButNeverHarms) {
  std::mt19937 random(1);
  std::uniform_int_distribution<int> byte(0, 255);
  const std::vector<std::string> seeds{payload_of(encode_request_list(some_request_list())),
                                       payload_of(encode_response_list(some_response_list()))};
  const auto tree = std::make_shared<const ControlTree>(test::hosts(kRanks, 2));
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = seeds[static_cast<std::size_t>(round % 2)];
    for (int change = 0; change < 3; ++change) {
      bytes[random() % bytes.size()] = static_cast<char>(byte(random));
    }
    if (auto up = decode_request_list(bytes, kRanks); up.ok()) {
      Negotiator root(tree, 0, {});
      (void)root.from_child(tree->children(0).front(), std::move(*up), {});
      (void)root.work({}, 0);
    }
    if (auto down = decode_response_list(bytes, kRanks, kCached); down.ok()) {
      Negotiator member(tree, 1, {});
      (void)member.from_parent(std::move(*down), {});
      (void)member.work({}, 0);
    }
    (void)decode_failure(bytes);
  }
}

TEST(Messages, RequestsThatCanNeverBeAreNamed) {
  Request request = some_requests()[1];
  request.process_set = kGlobalSet;
  EXPECT_FALSE(check_request(request, 4).ok());  // root 7 of 4
  EXPECT_TRUE(check_request(request, 8).ok());
  request.shape = {1LL << 40, 1LL << 40};
  EXPECT_NE(check_request(request, 8).message().find("\"b\""), std::string::npos);
  request.shape = {-1};
  EXPECT_FALSE(check_request(request, 8).ok());
  request.shape = {};
  request.type = static_cast<DataType>(99);
  EXPECT_FALSE(check_request(request, 8).ok());
  request.type = DataType::int8;
  EXPECT_TRUE(check_request(request, 8).ok());
  request.prescale = std::nan("");
  EXPECT_FALSE(check_request(request, 8).ok());
  for (const auto kind : {Kind::allgather, Kind::alltoall, Kind::reducescatter}) {
    EXPECT_FALSE(check_request(test::of_kind(kind, "scalar", {}), 8).ok());
  }
  EXPECT_TRUE(check_request(test::add_set("s", {0, 7}), 8).ok());
  for (const auto& ranks : std::vector<std::vector<int>>{{}, {1, 0}, {1, 1}, {8}, {-1}}) {
    EXPECT_FALSE(check_request(test::add_set("s", ranks), 8).ok());
  }
  EXPECT_TRUE(check_request(test::by_members(test::add_set("s", {0, 7})), 8).ok());
  EXPECT_FALSE(check_request(test::by_members(test::tensor("t")), 8).ok());
  auto removal = test::by_members(test::remove_set("r", 1));
  EXPECT_FALSE(check_request(removal, 8).ok()) << "members of no set";
  removal.ranks = {2, 3};
  EXPECT_TRUE(check_request(removal, 8).ok());
  EXPECT_TRUE(check_request(test::send_recv("s", 7, 0), 8).ok());
  for (const auto& [sender, receiver] :
       std::vector<std::pair<int, int>>{{0, 8}, {8, 0}, {-1, 0}, {0, -1}, {3, 3}}) {
    EXPECT_FALSE(check_request(test::send_recv("s", sender, receiver), 8).ok());
  }
  EXPECT_FALSE(check_request(test::of_kind(Kind::send_recv, "s"), 8).ok());
  EXPECT_FALSE(check_request(test::in_set(test::send_recv("s", 0, 1), 1), 8).ok());
  EXPECT_FALSE(check_request(test::in_group(test::send_recv("s", 0, 1), "g", 1), 8).ok());
  EXPECT_FALSE(check_request(test::of_kind(Kind::remove_process_set, "r"), 8).ok());
  EXPECT_FALSE(check_request(test::in_set(test::of_kind(Kind::join, "j"), 1), 8).ok());
  EXPECT_FALSE(check_request(test::in_group(test::tensor("g"), "g", 0), 8).ok());
  EXPECT_FALSE(check_request(test::in_group(test::of_kind(Kind::barrier, "b"), "g", 1), 8).ok());
}

}  // namespace
}  // namespace hvd::runtime
