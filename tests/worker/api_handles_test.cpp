// Handles, futures and callbacks, in a world of one, against libhvd.so.
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <gtest/gtest.h>
#include <memory>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <type_traits>
#include <unistd.h>
#include <utility>
#include <vector>

#include <hvd/adapter.h>
#include <hvd/hvd.h>

namespace {

class ApiHandles : public ::testing::Test {
 protected:
  void SetUp() override { hvd::init(); }
  void TearDown() override { hvd::shutdown(); }
};

// The work starts when the test says so.
class Gate final : public hvd::ReadyEvent {
 public:
  bool ready() const override { return open_; }
  void wait() override { future_.wait(); }
  void open() {
    open_ = true;
    promise_.set_value();
  }

 private:
  std::atomic<bool> open_ = false;
  std::promise<void> promise_;
  std::shared_future<void> future_ = promise_.get_future().share();
};

// Later requests wait behind it.
std::shared_ptr<Gate> hold_back(std::vector<float>& data) {
  auto gate = std::make_shared<Gate>();
  hvd::adapter::Submission first;
  first.name = "gate";
  first.input = data;
  first.output = data;
  first.ready = gate;
  first.done = [](const hvd::adapter::Completion&) {};
  hvd::adapter::submit(std::move(first));
  return gate;
}

TEST_F(ApiHandles, ResultsAreHandedOutOnce) {
  const std::vector<int> data{1, 2};
  auto future = hvd::allgather_async(data);
  future.wait();
  EXPECT_EQ(future.get().elements(), 2);
  EXPECT_THROW(future.get(), hvd::InvalidArgumentError);
  EXPECT_THROW(hvd::Future<hvd::Tensor>().get(), hvd::InvalidArgumentError);
  EXPECT_EQ(hvd::join_async().get(), 0);
}

// Two owners of one result would each take it from the other.
static_assert(!std::is_copy_constructible_v<hvd::Future<hvd::Tensor>>);
static_assert(!std::is_copy_assignable_v<hvd::Future<hvd::Tensor>>);

TEST_F(ApiHandles, AFutureIsMovedAndAHandleOfItWaitsForTheSame) {
  const std::vector<int> data{1, 2};
  auto future = hvd::allgather_async(data);
  const hvd::Handle handle = future;
  auto other = std::move(future);
  handle.wait();
  EXPECT_EQ(other.get().elements(), 2);
  EXPECT_THROW(future.get(), hvd::InvalidArgumentError);  // NOLINT(bugprone-use-after-move)
}

TEST_F(ApiHandles, AWaitWithALimitEndsWithTheWorkOrWithTheTime) {
  using std::chrono::milliseconds;
  std::vector<float> data(2);
  const auto gate = hold_back(data);
  std::vector<float> other(2);
  const auto handle = hvd::allreduce_async(other, {.name = "other"});
  EXPECT_FALSE(handle.wait_for(milliseconds(20)));
  EXPECT_FALSE(handle.wait_for(milliseconds(0)));
  EXPECT_FALSE(handle.wait_for(milliseconds(-5)));
  EXPECT_FALSE(handle.wait_for(milliseconds::min()));
  gate->open();
  EXPECT_TRUE(handle.wait_for(milliseconds::max()));
  EXPECT_TRUE(handle.wait_for(milliseconds(0)));
  EXPECT_TRUE(hvd::Handle().wait_for(milliseconds(0)));
}

TEST_F(ApiHandles, CallbacksAreCalledInTheirOrderAlsoThoseThatCallbacksAdd) {
  std::vector<float> data(2);
  const auto gate = hold_back(data);  // so that all callbacks are there before it ends
  std::vector<float> other(2);
  const auto handle = hvd::allreduce_async(other, {.name = "other"});
  std::vector<int> order;
  std::promise<void> done;
  handle.on_done([&](const std::exception_ptr&) {
    order.push_back(1);
    handle.on_done([&](const std::exception_ptr&) {
      order.push_back(3);
      done.set_value();
    });
  });
  handle.on_done([&](const std::exception_ptr&) { order.push_back(2); });
  EXPECT_FALSE(handle.ready());
  gate->open();
  done.get_future().wait();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

TEST_F(ApiHandles, CallbacksThatThrowAreLoggedAndHarmNothing) {
  testing::internal::CaptureStderr();
  auto gate = std::make_shared<Gate>();
  std::vector<float> data(2);
  hvd::adapter::Submission work;
  work.name = "bad";
  work.input = data;
  work.output = data;
  work.ready = gate;
  work.done = [](const hvd::adapter::Completion&) { throw std::runtime_error("from the seam"); };
  hvd::adapter::submit(std::move(work));
  const auto handle = hvd::allreduce_async(data, {.name = "next"});
  std::promise<void> second;
  handle.on_done([](const std::exception_ptr&) { throw std::runtime_error("from the handle"); });
  handle.on_done([&](const std::exception_ptr&) { second.set_value(); });
  gate->open();
  second.get_future().wait();
  handle.on_done([](const std::exception_ptr&) { throw 7; });  // at once, from this thread
  hvd::allreduce(data, {.name = "bad"});
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("\"bad\""), std::string::npos) << log;
  EXPECT_NE(log.find("from the seam"), std::string::npos) << log;
  EXPECT_NE(log.find("from the handle"), std::string::npos) << log;
  EXPECT_NE(log.find("other than a std::exception"), std::string::npos) << log;
  EXPECT_THROW(handle.on_done(nullptr), hvd::InvalidArgumentError);
}

TEST_F(ApiHandles, OutputsWithoutRoomAreErrorsOfTheirCallAlone) {
  testing::internal::CaptureStderr();
  const std::vector<float> data(2);
  for (const bool throws : {false, true}) {
    hvd::adapter::Submission work;
    work.collective = hvd::Collective::allgather;
    work.name = "roomless";
    work.input = data;
    work.allocate = [throws](const std::vector<std::int64_t>&) -> void* {
      if (throws) throw std::bad_alloc();
      return nullptr;
    };
    std::promise<std::exception_ptr> done;
    work.done = [&](const hvd::adapter::Completion& completion) {
      done.set_value(completion.error);
    };
    hvd::adapter::submit(std::move(work));
    const auto error = done.get_future().get();
    ASSERT_NE(error, nullptr);
    try {
      std::rethrow_exception(error);
    } catch (const hvd::OutOfMemoryError& said) {
      EXPECT_NE(std::string(said.what()).find("no memory for the output"), std::string::npos);
    }
  }
  EXPECT_NE(testing::internal::GetCapturedStderr().find("out of memory"), std::string::npos);
  EXPECT_EQ(hvd::allgather(data).elements(), 2);
}

// An object in a callback: its destructor asks the handle.
struct Asker {
  explicit Asker(hvd::Handle work, std::promise<bool>& answer)
      : handle(std::move(work)), told(answer) {}
  ~Asker() { told.set_value(handle.ready()); }
  Asker(const Asker&) = delete;
  Asker& operator=(const Asker&) = delete;
  hvd::Handle handle;
  std::promise<bool>& told;
};

TEST_F(ApiHandles, ObjectsInACallbackMayAskTheHandleWhenTheyAreDestroyed) {
  std::vector<float> data(2);
  const auto gate = hold_back(data);
  std::vector<float> other(2);
  const auto handle = hvd::allreduce_async(other, {.name = "other"});
  std::promise<bool> ready;
  handle.on_done([asker = std::make_shared<Asker>(handle, ready)](const std::exception_ptr&) {});
  gate->open();
  EXPECT_TRUE(ready.get_future().get());
}

TEST_F(ApiHandles, ACallbackCannotLeaveTheWorldButTheWorldGoesOn) {
  std::vector<float> data(2);
  std::promise<std::string> said;
  auto gate = std::make_shared<Gate>();
  hvd::adapter::Submission work;
  work.name = "gate";
  work.input = data;
  work.output = data;
  work.ready = gate;
  work.done = [&said](const hvd::adapter::Completion&) {
    try {
      hvd::shutdown();
      said.set_value("nothing");
    } catch (const hvd::InvalidArgumentError& error) {
      said.set_value(error.what());
    }
  };
  hvd::adapter::submit(std::move(work));
  gate->open();
  EXPECT_NE(said.get_future().get().find("hvd::shutdown()"), std::string::npos);
  hvd::allreduce(data);
}

TEST_F(ApiHandles, CallbacksMayStartWorkWhileTheWorldIsLeft) {
  for (int round = 0; round < 50; ++round) {
    auto data = std::make_shared<std::vector<float>>(2);
    std::promise<void> over;
    std::function<void()> next = [&, data] {
      try {
        hvd::allreduce_async(*data, {.name = "next"}).on_done([&next](const std::exception_ptr&) {
          next();
        });
      } catch (const hvd::Error&) {  // the world has been left
        over.set_value();
      }
    };
    next();
    hvd::shutdown();
    over.get_future().wait();
    hvd::init();
  }
}

TEST_F(ApiHandles, HundredCallsMayFollowFromOneAnother) {
  std::vector<int> data{1};
  std::promise<int> done;
  std::atomic<int> links = 0;
  std::function<void()> next = [&] {
    hvd::allreduce_async(data, {.name = "chain"}).on_done([&](const std::exception_ptr& error) {
      if (error || ++links == 100) {
        done.set_value(links);
      } else {
        next();
      }
    });
  };
  next();
  EXPECT_EQ(done.get_future().get(), 100);
}

TEST_F(ApiHandles, ErrorsOfOneCallReachAllWaitersAndTheCallbacks) {
  std::vector<float> data(3);
  auto future = hvd::alltoall_async(data, {.name = "a", .splits = {4}});
  std::atomic<int> heard = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      try {
        future.wait();
      } catch (const hvd::InvalidArgumentError&) {
        ++heard;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(heard, 4);
  EXPECT_THROW(future.get(), hvd::InvalidArgumentError);
  EXPECT_THROW(future.get(), hvd::InvalidArgumentError);
  std::exception_ptr error;
  future.on_done([&](const std::exception_ptr& why) { error = why; });
  EXPECT_NE(error, nullptr);
  EXPECT_TRUE(future.ready());
}

// The threads that finish the work are in the parent alone.
TEST_F(ApiHandles, AForkedChildIsRefusedTheWaitForWorkOfItsParent) {
  std::vector<float> data(2);
  const auto done = hvd::allreduce_async(data, {.name = "done"});
  done.wait();
  const auto gate = hold_back(data);
  std::vector<float> other(2);
  auto work = hvd::allgather_async(other, {.name = "other"});

  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    int refused = 0;
    const auto call = [&refused](auto of_handle) {
      try {
        of_handle();
      } catch (const hvd::NotInitializedError&) {
        ++refused;
      }
    };
    call([&] { done.wait(); });
    call([&] { work.wait(); });
    call([&] { work.wait_for(std::chrono::milliseconds(1)); });
    call([&] { work.get(); });
    call([&] { work.on_done([](const std::exception_ptr&) {}); });
    ::_exit(refused);
  }

  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 4);
  gate->open();
  EXPECT_EQ(work.get().elements(), 2);
}

// ---- threads that end by force ----

// Speaks when its thread has ended, and everything of it was unwound.
class EndOfThread {
 public:
  explicit EndOfThread(std::promise<void>& ended) : ended_(ended) {}
  ~EndOfThread() { ended_.set_value(); }

 private:
  std::promise<void>& ended_;
};

// As Python ends a thread that waits for its lock while the interpreter shuts down.
void end_this_thread(std::promise<void>& ended) {
  thread_local const EndOfThread told(ended);
  (void)told;
  ::pthread_exit(nullptr);
}

TEST(ApiForcedUnwinding, ACallbackOfAHandleMayEndItsThread) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        hvd::init();
        std::promise<void> ended;
        std::vector<float> first(4, 1);
        std::vector<float> second(4, 1);
        const auto gate = hold_back(first);
        hvd::allreduce_async(second, {.name = "x"}).on_done([&ended](const std::exception_ptr&) {
          end_this_thread(ended);
        });
        gate->open();
        ended.get_future().wait();
        ::_exit(0);
      },
      testing::ExitedWithCode(0), "^$");
}

TEST(ApiForcedUnwinding, ACallbackOfTheAdapterMayEndItsThread) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        hvd::init();
        std::promise<void> ended;
        std::vector<float> first(4, 1);
        std::vector<float> second(4, 1);
        const auto gate = hold_back(first);
        hvd::adapter::Submission work;
        work.name = "x";
        work.input = second;
        work.output = second;
        work.done = [&ended](const hvd::adapter::Completion&) { end_this_thread(ended); };
        hvd::adapter::submit(std::move(work));
        gate->open();
        ended.get_future().wait();
        ::_exit(0);
      },
      testing::ExitedWithCode(0), "^$");
}

TEST(ApiForcedUnwinding, AThreadThatWaitsMayBeCancelled) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        hvd::init();
        std::vector<float> first(4, 1);
        std::vector<float> second(4, 1);
        const auto gate = hold_back(first);
        auto handle = hvd::allreduce_async(second, {.name = "x"});
        std::promise<void> waits;
        std::thread waiting([&] {
          waits.set_value();
          handle.wait();
          for (;;) ::pause();  // where a request to cancel is obeyed at the latest
        });
        waits.get_future().wait();
        ::pthread_cancel(waiting.native_handle());
        gate->open();
        waiting.join();
        ::_exit(0);
      },
      testing::ExitedWithCode(0), "^$");
}

}  // namespace
