// Worlds whose ranks are threads of the test, or processes, for runtime tests.
#pragma once

#include <functional>
#include <future>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "runtime/control/world.h"
#include "tests/runtime/ranks.h"

namespace hvd::test {

// Created before any fork: ranks that are processes must have the same token.
inline const Token test_token = Token::random();

// Two ranks on each of the hosts h0, h1, ...
inline runtime::WorldSpec spec_of(int rank, int size) {
  std::vector<runtime::Member> members;
  members.reserve(static_cast<std::size_t>(size));
  for (int r = 0; r < size; ++r) {
    members.push_back({cat("h", r / 2, "#", r % 2), cat("h", r / 2), "127.0.0.1"});
  }
  runtime::WorldSpec spec(rank, std::move(members), 1, test_token);
  spec.config.connect_timeout = kLong;
  spec.config.collective_timeout = kLong;
  return spec;
}

using Body = std::function<void(int rank, runtime::World& world)>;
using Change = std::function<void(runtime::WorldSpec& spec)>;

// Forms a world of `size` ranks and runs `body` on each; the worlds are destroyed afterwards.
inline void run_world(
    int size, const Body& body, const Change& change = [](runtime::WorldSpec&) {},
    RanksAs how = RanksAs::threads) {
  on_ranks(how, size, [&](int rank, runtime::Exchange& exchange) {
    auto spec = spec_of(rank, size);
    change(spec);
    auto world = runtime::World::create(spec, exchange);
    ASSERT_TRUE(world.ok()) << world.status().to_string();
    body(rank, **world);
  });
}

// The same, and all ranks call shutdown() at the end.
inline void run_world_to_end(
    int size, const Body& body, const Change& change = [](runtime::WorldSpec&) {},
    RanksAs how = RanksAs::threads) {
  run_world(
      size,
      [&](int rank, runtime::World& world) {
        body(rank, world);
        const auto left = world.shutdown(Clock::now() + kLong);
        EXPECT_TRUE(left.ok()) << "rank " << rank << ": " << left.status.to_string();
      },
      change, how);
}

// Enqueues; the future holds the outcome, also if the request is refused at once.
inline std::future<runtime::Failure> submit(runtime::World& world, runtime::Request request,
                                            const void* input, void* output) {
  auto promise = std::make_shared<std::promise<runtime::Failure>>();
  auto future = promise->get_future();
  runtime::Entry entry{
      std::move(request), input, output,
      [promise](const runtime::Outcome& outcome) { promise->set_value(outcome.failure); }};
  entry.done_wakes_only = true;
  const auto refused = world.enqueue(std::move(entry));
  if (!refused.ok()) promise->set_value(refused);
  return future;
}

inline runtime::Failure outcome_of(std::future<runtime::Failure> future) {
  if (future.wait_for(kLong) != std::future_status::ready) {
    return Status(Code::deadline_exceeded, "the test waited in vain");
  }
  return future.get();
}

// Waits in the same way as Handle::wait().
template <typename T>
void progress_until_ready(runtime::World& world, const std::future<T>& future) {
  world.progress_until(
      [&future] { return future.wait_for(Duration::zero()) == std::future_status::ready; });
}

// The same for whole entries; the future holds the whole outcome.
inline std::future<runtime::Outcome> submit(runtime::World& world, runtime::Entry entry) {
  auto promise = std::make_shared<std::promise<runtime::Outcome>>();
  auto future = promise->get_future();
  entry.done = [promise](const runtime::Outcome& outcome) { promise->set_value(outcome); };
  const auto refused = world.enqueue(std::move(entry));
  if (!refused.ok()) promise->set_value(refused);
  return future;
}

inline runtime::Outcome outcome_of(std::future<runtime::Outcome> future) {
  if (future.wait_for(kLong) != std::future_status::ready) {
    return Status(Code::deadline_exceeded, "the test waited in vain");
  }
  return future.get();
}

inline runtime::Request allreduce_request(std::string name, std::int64_t elements,
                                          DataType type = DataType::float32,
                                          ReduceOp op = ReduceOp::sum) {
  runtime::Request request;
  request.name = std::move(name);
  request.kind = runtime::Kind::allreduce;
  request.type = type;
  request.op = op;
  request.shape = {elements};
  return request;
}

inline std::future<runtime::Failure> allreduce(runtime::World& world, const std::string& name,
                                               std::vector<float>& data) {
  return submit(world, allreduce_request(name, static_cast<std::int64_t>(data.size())), data.data(),
                data.data());
}

inline bool mentions(const runtime::Failure& failure, std::string_view text) {
  return failure.status.message().find(text) != std::string::npos;
}

}  // namespace hvd::test
