#include "runtime/messages.h"

#include <gtest/gtest.h>
#include <random>

#include "base/frame.h"

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

std::vector<Response> some_responses() {
  Response fused;
  fused.process_set = 2;
  for (const auto& request : some_requests()) fused.tensors.push_back({request, {1, 0, 1LL << 33}});
  fused.joined = {1, 3};
  Response refused;
  refused.kind = Kind::join;
  refused.tensors.push_back({some_requests()[1], {}});
  refused.last_joined = 3;
  refused.new_set = 7;
  refused.error = Status(Code::invalid_argument, "they differ");
  return {fused, refused};
}

TEST(Messages, WhatIsEncodedIsDecoded) {
  EXPECT_EQ(decode_requests(payload_of(encode_requests(some_requests()))).value(), some_requests());
  EXPECT_EQ(decode_responses(payload_of(encode_responses(some_responses()))).value(),
            some_responses());
  const Failure failure(Status(Code::unavailable, "gone"), 3, "b");
  const auto decoded = decode_failure(payload_of(encode_failure(Message::abort, failure)));
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->status, failure.status);
  EXPECT_EQ(decoded->rank, 3);
  EXPECT_EQ(decoded->host, "b");
}

TEST(Messages, EveryCutIsAnError) {
  const auto requests = payload_of(encode_requests(some_requests()));
  for (std::size_t length = 0; length < requests.size(); ++length) {
    EXPECT_FALSE(decode_requests(requests.substr(0, length)).ok()) << length;
  }
  const auto responses = payload_of(encode_responses(some_responses()));
  for (std::size_t length = 0; length < responses.size(); ++length) {
    EXPECT_FALSE(decode_responses(responses.substr(0, length)).ok()) << length;
  }
}

TEST(Messages, RubbishIsRefusedOrReadButNeverHarms) {
  std::mt19937 random(1);
  std::uniform_int_distribution<int> byte(0, 255);
  const std::vector<std::string> seeds{payload_of(encode_requests(some_requests())),
                                       payload_of(encode_responses(some_responses()))};
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = seeds[static_cast<std::size_t>(round % 2)];
    for (int change = 0; change < 3; ++change) {
      bytes[random() % bytes.size()] = static_cast<char>(byte(random));
    }
    if (auto requests = decode_requests(bytes); requests.ok()) {
      for (const auto& request : *requests) (void)check_request(request, 4);
    }
    (void)decode_responses(bytes);
    (void)decode_failure(bytes);
  }
}

TEST(Messages, RequestsThatCanNeverBeAreNamed) {
  Request request = some_requests()[1];
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
  request.op = ReduceOp::adasum;
  EXPECT_FALSE(check_request(request, 8).ok());
}

}  // namespace
}  // namespace hvd::runtime
