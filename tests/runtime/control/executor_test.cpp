// The executor of one rank, whose operation is the test's.
#include "runtime/control/executor.h"

#include <future>
#include <gtest/gtest.h>
#include <memory>
#include <thread>

#include "base/machine/proc.h"
#include "tests/runtime/ranks.h"
#include "tests/support/process.h"

namespace hvd::runtime {
namespace {

using test::kLong;

// A barrier that ends when the test says.
class HeldBarrier final : public Operation {
 public:
  HeldBarrier(std::promise<void>& begun, std::shared_future<void> ends)
      : begun_(begun), ends_(std::move(ends)) {}
  std::string_view name() const override { return "held barrier"; }
  bool enabled(const Response& /*response*/, const Group& /*group*/) const override { return true; }
  Status execute(const Response& /*response*/, const Group& /*group*/, const Entries& /*entries*/,
                 std::span<Outcome> /*outcomes*/) override {
    begun_.set_value();
    ends_.wait();
    return {};
  }
  void abort() override {}

 private:
  std::promise<void>& begun_;
  std::shared_future<void> ends_;
};

TEST(Executor, EndsAfterTheBatchThatAThreadOfTheProgramExecutes) {
  const ProcessSets sets(1);
  WorkMeter meter;
  TensorQueue queue(0, sets, meter);
  Verdict verdict;
  Executor executor(queue, verdict, {[](const Status&) {}, [] {}, [] {}, nullptr});
  std::promise<void> begun;
  std::promise<void> ends;
  std::vector<std::unique_ptr<Operation>> operations;
  operations.push_back(std::make_unique<HeldBarrier>(begun, ends.get_future().share()));
  executor.start(std::move(operations), sets, 0);

  Entry entry;
  entry.request.kind = Kind::barrier;
  entry.request.name = "barrier";
  entry.done = [](const Outcome&) {};
  entry.done_wakes_only = true;
  const auto tensor = std::make_shared<ResponseTensor>();
  tensor->request = entry.request;
  bool first = false;
  ASSERT_TRUE(queue.push({&entry, 1}, first).ok());
  queue.drain();
  Response response;
  response.kind = Kind::barrier;
  response.tensors = {tensor};
  std::vector<Response> responses;
  responses.push_back(std::move(response));
  // The executor's thread would take the batch if it came to its loop later.
  std::promise<pid_t> loops;
  executor.post([&] { loops.set_value(::gettid()); });
  const pid_t looper = loops.get_future().get();
  ASSERT_TRUE(test::eventually([&] { return state_of(looper) == 'S'; }));
  executor.submit(std::move(responses), true);

  std::thread caller([&] { executor.run_inline(); });
  begun.get_future().wait();
  std::promise<pid_t> stopping;
  auto stopped = std::async(std::launch::async, [&] {
    stopping.set_value(::gettid());
    executor.stop();
  });
  // It waits for the executor's thread, which was woken for nothing and sleeps again.
  const pid_t stopper = stopping.get_future().get();
  EXPECT_TRUE(test::eventually([&] { return state_of(stopper) == 'S'; }));
  std::promise<void> looked;
  executor.post([&] { looked.set_value(); });
  looked.get_future().wait();
  ends.set_value();
  caller.join();

  const bool ended = stopped.wait_for(kLong) == std::future_status::ready;
  EXPECT_TRUE(ended);
  if (!ended) executor.post([] {});  // its thread looks again
}

}  // namespace
}  // namespace hvd::runtime
