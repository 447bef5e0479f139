// Flow control of the workers' output, and the last lines of standard error.
#include <gtest/gtest.h>
#include <mutex>
#include <thread>

#include "base/text.h"
#include "driver/core/stderr_tail.h"
#include "driver/output/output_credit.h"

namespace hvd::driver {
namespace {

using agent_link::kOutputWindow;
using agent_link::Stream;

// An OutputCredit whose "driver's thread" is the caller of run().
struct Credits {
  std::mutex mutex;
  std::vector<std::function<void()>> posted;
  std::vector<agent_link::Credit> sent;
  OutputCredit credit{[this](const agent_link::Credit& one) { sent.push_back(one); },
                      [this](std::function<void()> work) {
                        const std::lock_guard lock(mutex);
                        posted.push_back(std::move(work));
                      }};
  void run() {
    std::vector<std::function<void()>> work;
    {
      const std::lock_guard lock(mutex);
      work.swap(posted);
    }
    for (const auto& one : work) one();
  }
  std::function<void()> take(std::uint64_t worker, std::size_t bytes) {
    auto receipt = credit.take(worker, Stream::standard_output, bytes);
    EXPECT_TRUE(receipt.ok()) << receipt.status().to_string();
    return receipt.ok() ? *receipt : [] {};
  }
};

TEST(OutputCredit, sends_nothing_for_little_output) {
  Credits credits;
  for (int index = 0; index < 100; ++index) credits.take(1, 80)();
  credits.run();
  EXPECT_TRUE(credits.sent.empty());
}

TEST(OutputCredit, returns_consumed_bytes_once_and_only_those) {
  Credits credits;
  const auto held = credits.take(1, 1000);
  credits.take(1, kOutputWindow / 2)();
  credits.run();
  ASSERT_EQ(credits.sent.size(), 1U);
  EXPECT_EQ(credits.sent[0].incarnation, 1U);
  EXPECT_EQ(credits.sent[0].bytes, kOutputWindow / 2);
  held();
  credits.run();
  EXPECT_EQ(credits.sent.size(), 1U);
}

TEST(OutputCredit, never_starves_a_stream_whose_bytes_are_all_consumed) {
  Credits credits;
  std::uint64_t window = kOutputWindow;
  for (int index = 0; index < 10'000; ++index) {
    const std::size_t chunk = 1 + static_cast<std::size_t>(index * 7919 % 65'536);
    ASSERT_GE(window, chunk);
    window -= chunk;
    credits.take(3, chunk)();
    credits.run();
    for (const auto& credit : std::exchange(credits.sent, {})) window += credit.bytes;
  }
}

TEST(OutputCredit, refuses_more_than_the_window) {
  Credits credits;
  const auto held = credits.take(1, kOutputWindow);
  EXPECT_FALSE(credits.credit.take(1, Stream::standard_output, 1).ok());
  EXPECT_TRUE(credits.credit.take(1, Stream::standard_error, 1).ok());
  EXPECT_TRUE(credits.credit.take(2, Stream::standard_output, 1).ok());
}

TEST(OutputCredit, pays_everything_at_once_when_nobody_is_waited_for_any_more) {
  Credits credits;
  const auto held = credits.take(1, kOutputWindow - 100);
  credits.credit.waive();
  ASSERT_EQ(credits.sent.size(), 1U);
  EXPECT_EQ(credits.sent[0].bytes, kOutputWindow - 100);
  const auto last = credits.take(1, 100);  // the observer still has room for this
  EXPECT_TRUE(last);
  EXPECT_FALSE(credits.take(1, 1));
  ASSERT_EQ(credits.sent.size(), 3U);
  EXPECT_EQ(credits.sent[1].bytes, 100U);
  EXPECT_EQ(credits.sent[2].bytes, 1U);
  held();
  EXPECT_TRUE(credits.take(1, 1));
  credits.run();
  EXPECT_EQ(credits.sent.size(), 4U);  // nothing is paid twice
}

TEST(OutputCredit, forgets_streams_that_have_ended) {
  Credits credits;
  const auto held = credits.take(1, kOutputWindow);
  for (std::uint64_t worker = 2; worker < 1'000; ++worker) {
    credits.take(worker, kOutputWindow)();
    credits.credit.end(worker, Stream::standard_output);
  }
  credits.credit.end(1, Stream::standard_output);
  EXPECT_EQ(credits.credit.accounts(), 1U);  // of that which the observer still holds
  held();
  EXPECT_EQ(credits.credit.accounts(), 0U);
}

TEST(OutputCredit, takes_receipts_from_any_thread_also_after_its_end) {
  std::function<void()> late;
  std::vector<std::thread> threads;
  std::uint64_t returned = 0;
  {
    Credits credits;
    late = credits.take(1, 10);
    for (std::uint64_t worker = 2; worker < 6; ++worker) {
      for (int index = 0; index < 16; ++index) {
        threads.emplace_back(credits.take(worker, kOutputWindow / 16));
      }
    }
    for (auto& thread : threads) thread.join();
    credits.run();
    for (const auto& credit : credits.sent) returned += credit.bytes;
  }
  EXPECT_EQ(returned, 4 * kOutputWindow);
  late();
}

TEST(StderrTail, keeps_the_last_lines_with_the_unfinished_one) {
  StderrTail tail;
  for (int line = 1; line <= 30; ++line) tail.feed(cat("line ", line, "\n"));
  tail.feed("and ");
  tail.feed("then");
  const auto lines = tail.lines();
  ASSERT_EQ(lines.size(), 20U);
  EXPECT_EQ(lines.front(), "line 12");
  EXPECT_EQ(lines.back(), "and then");
}

TEST(StderrTail, keeps_what_a_progress_bar_showed_last) {
  StderrTail tail;
  tail.feed("10%\r20%\r");
  EXPECT_EQ(tail.lines(), std::vector<std::string>{"20%"});
  tail.feed("30%\r\ndone\r");
  tail.feed("\n");
  EXPECT_EQ(tail.lines(), (std::vector<std::string>{"30%", "done"}));
}

TEST(StderrTail, takes_bounded_memory_of_an_endless_line) {
  StderrTail tail;
  const std::string chunk(100'000, 'x');
  for (int index = 0; index < 100; ++index) tail.feed(chunk);
  ASSERT_EQ(tail.lines().size(), 1U);
  EXPECT_EQ(tail.lines()[0].size(), StderrTail::kMaxLine);
}

TEST(StderrTail, keeps_bytes_that_are_no_text) {
  StderrTail tail;
  tail.feed(std::string("\xff\xfe\0z\n", 5));
  EXPECT_EQ(tail.lines(), std::vector<std::string>{std::string("\xff\xfe\0z", 4)});
}

}  // namespace
}  // namespace hvd::driver
