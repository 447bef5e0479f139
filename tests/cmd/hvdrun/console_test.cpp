// Real pipes, real files, a real terminal: what happens when the reader of hvdrun's output is
// slow, asleep or gone.
#include <array>
#include <atomic>
#include <cstdlib>
#include <fcntl.h>
#include <future>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdexcept>
#include <sys/ioctl.h>
#include <thread>
#include <unistd.h>

#include "base/socket.h"
#include "base/text.h"
#include "cmd/hvdrun/job_output.h"
#include "tests/support/missing_calls.h"
#include "tests/support/process.h"

namespace hvd::cli {
namespace {

using driver::Stream;
using driver::WorkerView;
using test::kGenerous;

struct Pipe {
  UniqueFd read;
  UniqueFd write;
  Pipe() {
    std::array<int, 2> fds{};
    if (::pipe2(fds.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    read.reset(fds[0]);
    write.reset(fds[1]);
  }
};

// Reads until `done` is in it, or the writer has closed; what came until the deadline otherwise.
std::string read_until(int fd, const std::string& done) {
  std::string text;
  const auto deadline = Clock::now() + kGenerous;
  while (text.find(done) == std::string::npos) {
    if (!wait_for(fd, POLLIN, deadline).ok()) break;
    std::array<char, 65536> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init)
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got <= 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return text;
}

TEST(StreamWriter, AMissingThreadIsAnErrorThatSaysItsPurpose) {
  const int code = test::without_threads([] {
    try {
      const StreamWriter writer(STDERR_FILENO, {.name = "standard error"});
    } catch (const std::exception& error) {
      return std::string_view(error.what()).starts_with("write standard error: ") ? 0 : 1;
    }
    return 2;
  });
  if (code == 77) GTEST_SKIP() << "this kernel takes no filter for system calls";
  EXPECT_EQ(code, 0);
}

TEST(StreamWriter, WritesInOrderAndGivesBackEveryCredit) {
  Pipe pipe;
  std::atomic<int> released = 0;
  std::string expected;
  auto reader =
      std::async(std::launch::async, [&] { return read_until(pipe.read.get(), "end\n"); });
  StreamWriter writer(pipe.write.get(), {.name = "pipe", .limit = 1000});
  for (int i = 0; i < 2000; ++i) {
    const std::string line = cat("line ", i, "\n");
    expected += line;
    writer.write(line, make_credit([&] { ++released; }));
  }
  writer.write("end\n");
  EXPECT_TRUE(writer.drain(Clock::now() + kGenerous));
  EXPECT_EQ(reader.get(), expected + "end\n");
  EXPECT_TRUE(test::eventually([&] { return released == 2000; }));
}

TEST(StreamWriter, DoesNotChangeTheModeOfAStreamThatOthersShare) {
  Pipe pipe;
  StreamWriter writer(pipe.write.get(), {.name = "pipe"});
  writer.write("x\n");
  EXPECT_TRUE(writer.drain(Clock::now() + kGenerous));
  EXPECT_EQ(::fcntl(pipe.write.get(), F_GETFL) & O_NONBLOCK, 0);
}

TEST(StreamWriter, AReaderThatSleepsHoldsCreditBackUntilTheQueueIsDropped) {
  Pipe pipe;
  std::promise<std::uint64_t> resumed;
  std::atomic<std::size_t> released = 0;
  StreamWriterOptions options{.name = "pipe", .limit = 100'000};
  options.stall_timeout = std::chrono::milliseconds(300);
  options.on_resumed = [&](std::uint64_t bytes) { resumed.set_value(bytes); };
  StreamWriter writer(pipe.write.get(), options);
  const std::string block(9'999, 'x');
  constexpr std::size_t kBlocks = 100;  // a megabyte: more than the pipe and the queue hold
  for (std::size_t i = 0; i < kBlocks; ++i) {
    writer.write(block + "\n", make_credit([&] { ++released; }));
  }
  // Without a reader, all workers that wait for credit go on.
  EXPECT_TRUE(test::eventually([&] { return released == kBlocks; })) << released;
  auto reader =
      std::async(std::launch::async, [&] { return read_until(pipe.read.get(), "after"); });
  auto dropped = resumed.get_future();
  ASSERT_EQ(dropped.wait_for(kGenerous), std::future_status::ready);
  writer.write("after");
  const std::string text = reader.get();
  // Not a byte is unaccounted for: what was read, what was dropped, and the newline that closes the
  // line that was cut.
  const std::uint64_t lost = dropped.get();
  EXPECT_GT(lost, 0U);
  const std::size_t kept = text.size() - std::string("after").size();
  const std::size_t closing = kBlocks * 10'000 < kept + lost ? 1 : 0;
  EXPECT_EQ(kept + lost, kBlocks * 10'000 + closing);
  EXPECT_EQ(text[kept - 1], '\n');
}

TEST(StreamWriter, AReaderThatHasStalledIsNotWaitedForAgain) {
  Pipe pipe;
  std::atomic<bool> released = false;
  StreamWriterOptions options{.name = "pipe", .limit = 100};
  options.stall_timeout = std::chrono::milliseconds(100);
  StreamWriter writer(pipe.write.get(), options);
  const std::string text(1'000'000, 'x');
  writer.write(text, make_credit([&] { released = true; }));
  ASSERT_TRUE(test::eventually([&] { return released.load(); }));
  writer.write("the end\n");
  EXPECT_FALSE(writer.drain(Clock::now() + std::chrono::hours(1)));
  const std::uint64_t unread = writer.unread();
  EXPECT_GT(unread, text.size() / 2);
  EXPECT_LE(unread, text.size() + 8);
}

TEST(StreamWriter, AQueueThatIsNotFullIsNeverDropped) {
  Pipe pipe;
  StreamWriterOptions options{.name = "pipe"};
  options.stall_timeout = std::chrono::milliseconds(1);
  options.on_resumed = [](std::uint64_t bytes) { ADD_FAILURE() << bytes << " bytes dropped"; };
  StreamWriter writer(pipe.write.get(), options);
  const std::string text(1'000'000, 'x');
  writer.write(text);
  EXPECT_FALSE(writer.drain(Clock::now() + std::chrono::milliseconds(200)));
  auto reader = std::async(std::launch::async, [&] { return read_until(pipe.read.get(), "y"); });
  writer.write("y");
  EXPECT_EQ(reader.get().size(), text.size() + 1);
}

TEST(Console, UnreadOutputIsLostAtTheEndOnly) {
  Pipe out;
  Pipe error;
  const std::string text(1'000'000, 'x');
  {
    Console console(out.write.get(), error.write.get(), std::chrono::hours(1), {});
    console.out().write(text);
    EXPECT_FALSE(console.drain(Clock::now()));
    auto reader = std::async(std::launch::async, [&] { return read_until(out.read.get(), "y"); });
    console.out().write("y");
    EXPECT_EQ(reader.get().size(), text.size() + 1);
    console.out().write(text);
    console.finish(Clock::now());
  }
  error.write.reset();
  EXPECT_EQ(read_until(error.read.get(), "\n").find("hvdrun: the last "), 0U);
}

TEST(StreamWriter, AReaderThatLeavesIsReportedOnceAndNobodyWaits) {
  Pipe pipe;
  pipe.read.reset();
  std::atomic<int> failures = 0;
  std::atomic<int> released = 0;
  StreamWriterOptions options{.name = "pipe", .limit = 10};
  options.on_failure = [&](const Status& why, WriteFailure kind) {
    EXPECT_NE(why.message().find("Broken pipe"), std::string::npos) << why.message();
    EXPECT_EQ(kind, WriteFailure::broken_pipe);
    ++failures;
  };
  StreamWriter writer(pipe.write.get(), options);
  for (int i = 0; i < 100; ++i) {
    writer.write("many bytes for nobody", make_credit([&] { ++released; }));
  }
  EXPECT_TRUE(writer.drain(Clock::now() + kGenerous));
  EXPECT_TRUE(test::eventually([&] { return released == 100; }));
  EXPECT_EQ(failures, 1);
}

// \r\x1b[K wipes it.
TEST(StreamWriter, ALiveLineIsBelowAllOutputAndNeverBehindHalfALine) {
  Pipe pipe;
  StreamWriter writer(pipe.write.get(), {.name = "pipe"});
  writer.set_live_line("waiting for a");
  EXPECT_EQ(read_until(pipe.read.get(), "for a"), "\r\x1b[Kwaiting for a");
  writer.write("one line\n");
  EXPECT_EQ(read_until(pipe.read.get(), "for a"), "\r\x1b[Kone line\n\r\x1b[Kwaiting for a");

  writer.write("half");
  EXPECT_EQ(read_until(pipe.read.get(), "half"), "\r\x1b[Khalf");
  writer.set_live_line("waiting for b");
  writer.write(" a line\n");
  EXPECT_EQ(read_until(pipe.read.get(), "for b"), " a line\n\r\x1b[Kwaiting for b");

  writer.set_live_line({});
  EXPECT_TRUE(writer.drain(Clock::now() + kGenerous));
  writer.write("end\n");
  EXPECT_EQ(read_until(pipe.read.get(), "end\n"), "\r\x1b[Kend\n");
}

TEST(StreamWriter, ALiveLineIsCutToTheWidthAndNotInsideACharacter) {
  Pipe pipe;
  StreamWriter writer(pipe.write.get(), {.name = "pipe"});
  writer.set_live_line(cat(std::string(78, '-'), "\u00e9", "no longer seen"));
  EXPECT_TRUE(writer.drain(Clock::now() + kGenerous));
  writer.set_live_line({});
  EXPECT_TRUE(writer.drain(Clock::now() + kGenerous));
  writer.write("end\n");
  EXPECT_EQ(read_until(pipe.read.get(), "end\n"),
            cat("\r\x1b[K", std::string(78, '-'), "\r\x1b[Kend\n"));
}

TEST(StreamWriter, AFullDiskIsReportedWithItsReason) {
  const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  std::string reason;
  StreamWriterOptions options{.name = "standard output"};
  options.on_failure = [&](const Status& why, WriteFailure kind) {
    reason = why.message();
    EXPECT_EQ(kind, WriteFailure::other);
  };
  StreamWriter writer(full.get(), options);
  writer.write("x");
  EXPECT_TRUE(writer.drain(Clock::now() + kGenerous));
  EXPECT_EQ(reason, "write to standard output: No space left on device");
}

// The console of a job whose two streams are pipes of their own.
struct Job {
  Pipe out;
  Pipe error;
  Console console;
  JobOutput output;
  explicit Job(PrefixStyle style = {}, RankFiles* files = nullptr)
      : console(out.write.get(), error.write.get(), std::chrono::seconds(10), nullptr),
        output(console, files, style, true) {}
};

TEST(JobOutput, EachStreamGoesToItsOwnWithThePrefixOfItsRank) {
  Job job;
  const WorkerView zero{.rank = 0, .host = "a", .slot = 0, .incarnation = 1, .pid = 10};
  const WorkerView one{.rank = 1, .host = "a", .slot = 1, .incarnation = 2, .pid = 11};
  int released = 0;
  const auto count = [&] { ++released; };
  job.output.on_output(zero, Stream::standard_output, "hel", count);
  job.output.on_output(one, Stream::standard_output, "other\n", count);
  job.output.on_output(zero, Stream::standard_output, "lo\nunfinished", count);
  job.output.on_output(one, Stream::standard_error, "oops\n", count);
  job.output.on_output_closed(zero, Stream::standard_output);
  job.output.on_output(one, Stream::standard_error, "never closed", count);
  job.output.finish();
  EXPECT_TRUE(job.console.drain(Clock::now() + kGenerous));
  EXPECT_EQ(read_until(job.out.read.get(), "unfinished\n"),
            "[1]<stdout>:other\n[0]<stdout>:hello\n[0]<stdout>:unfinished\n");
  EXPECT_EQ(read_until(job.error.read.get(), "never closed\n"),
            "[1]<stderr>:oops\n[1]<stderr>:never closed\n");
  EXPECT_EQ(released, 5);
}

TEST(JobOutput, ShowsOnlyTheLocalRanksThatAreAskedFor) {
  const test::TemporaryDirectory directory;
  auto files = RankFiles::open(directory.path().string(), 3, {});
  ASSERT_TRUE(files.ok());
  Job job({}, files->get());
  job.output.show_only({1});
  int released = 0;
  const auto count = [&] { ++released; };
  for (int rank = 0; rank < 3; ++rank) {
    const WorkerView worker{.rank = rank,
                            .host = "a",
                            .slot = rank,
                            .incarnation = static_cast<std::uint64_t>(rank + 1),
                            .pid = 10 + rank,
                            .local_rank = rank};
    job.output.on_output(worker, Stream::standard_output, cat("line of ", rank, "\n"), count);
  }
  (*files)->drain();
  EXPECT_TRUE(job.console.drain(Clock::now() + kGenerous));
  EXPECT_EQ(read_until(job.out.read.get(), "\n"), "[1]<stdout>:line of 1\n");
  EXPECT_EQ(test::read_file(directory.path() / "rank.2/stdout"), "line of 2\n");
  EXPECT_EQ(released, 3);
}

TEST(JobOutput, ShowsAWorkerWithoutARankWhicheverLocalRanksAreAskedFor) {
  Job job;
  job.output.show_only({1});
  const WorkerView joiner{.rank = -1, .host = "a", .slot = 3, .incarnation = 4, .pid = 14};
  job.output.on_output(joiner, Stream::standard_output, "no rank yet\n", nullptr);
  EXPECT_EQ(read_until(job.out.read.get(), "\n"), "[a#3]<stdout>:no rank yet\n");
}

TEST(JobOutput, WarningsAndProgressGoToStandardError) {
  Job job;
  job.output.on_warning("more workers than slots");
  job.output.on_progress("all agents are ready");
  EXPECT_TRUE(job.console.drain(Clock::now() + kGenerous));
  EXPECT_EQ(read_until(job.error.read.get(), "ready\n"),
            "hvdrun: warning: more workers than slots\nhvdrun: all agents are ready\n");
}

TEST(JobOutput, WithoutATerminalAWaitIsToldInLinesAndOnlyOnceItIsLong) {
  Job job;
  const auto wait = [&] {
    job.output.on_waiting({driver::Waiting::For::start, [] { return std::string("host b"); }});
  };
  wait();
  job.output.on_waiting_over();
  job.output.on_notice("it was short");
  const TimePoint until = Clock::now() + WaitingReport::kFirstLine;
  wait();
  while (Clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  wait();
  wait();
  job.output.finish();
  EXPECT_TRUE(job.console.drain(Clock::now() + kGenerous));
  job.output.on_notice("end");
  EXPECT_EQ(read_until(job.error.read.get(), "end\n"),
            "hvdrun: it was short\nhvdrun: waiting for host b; 2 s so far\nhvdrun: end\n");
}

TEST(JobOutput, RemembersWhoseErrorsAreStillInSight) {
  Job job;
  const WorkerView failed{.rank = 0, .host = "a", .slot = 0, .incarnation = 1, .pid = 10};
  const WorkerView other{.rank = 1, .host = "a", .slot = 1, .incarnation = 2, .pid = 11};
  EXPECT_FALSE(job.output.stderr_was_just_shown(1));
  job.output.on_output(failed, Stream::standard_error, "no such file", nullptr);
  EXPECT_FALSE(job.output.stderr_was_just_shown(1)) << "half a line is held back";
  job.output.on_output_closed(failed, Stream::standard_error);
  EXPECT_TRUE(job.output.stderr_was_just_shown(1));
  EXPECT_FALSE(job.output.stderr_was_just_shown(2));
  for (int i = 0; i < 40; ++i) {
    EXPECT_TRUE(job.output.stderr_was_just_shown(1)) << i;
    job.output.on_output(other, Stream::standard_output, "other\n", nullptr);
  }
  job.output.on_output(other, Stream::standard_output, "other\n", nullptr);
  EXPECT_FALSE(job.output.stderr_was_just_shown(1));
}

TEST(WaitingReport, LinesComeAtGrowingIntervals) {
  WaitingReport report;
  const TimePoint begin{};
  std::vector<int> told;
  for (int second = 0; second < 300; ++second) {
    if (report.is_line_due(begin + std::chrono::seconds(second))) told.push_back(second);
  }
  EXPECT_EQ(told, (std::vector{2, 7, 17, 37, 77, 137, 197, 257}));
  report.end();
  EXPECT_FALSE(report.is_line_due(begin + std::chrono::seconds(300))) << "another wait begins";
  EXPECT_TRUE(report.is_line_due(begin + std::chrono::seconds(302)));
}

TEST(WaitingReport, ALiveLineDoesNotFlashUp) {
  WaitingReport report;
  const TimePoint begin{};
  EXPECT_FALSE(report.is_live_due(begin));
  EXPECT_TRUE(report.is_live_due(begin + WaitingReport::kFirstLive));
}

// hvdrun stops right after it: the thread that writes would stop with it.
TEST(JobOutput, NoticesBeforeAPauseAreWrittenWhenThePauseBegins) {
  Job job;
  const auto unread = [](int fd) {
    int bytes = 0;
    EXPECT_EQ(::ioctl(fd, FIONREAD, &bytes), 0);
    return static_cast<std::size_t>(bytes);
  };
  std::size_t said = 0;
  for (int i = 0; i < 200; ++i) {
    job.output.on_notice("stopped");
    said += std::string_view("hvdrun: stopped\n").size();
    job.output.on_pause();
    ASSERT_EQ(unread(job.error.read.get()), said);
  }
}

TEST(JobOutput, WritesTheFilesBesideTheConsole) {
  const test::TemporaryDirectory directory;
  auto files = RankFiles::open(directory.path().string(), 1, {});
  ASSERT_TRUE(files.ok());
  Job job({}, files->get());
  const WorkerView zero{.rank = 0, .host = "a", .slot = 0, .incarnation = 1, .pid = 10};
  job.output.on_output(zero, Stream::standard_error, "raw \xff bytes", nullptr);
  job.output.finish();
  (*files)->drain();
  EXPECT_TRUE(job.console.drain(Clock::now() + kGenerous));
  EXPECT_EQ(test::read_file(directory.path() / "rank.0/stderr"), "raw \xff bytes");
  EXPECT_EQ(read_until(job.error.read.get(), "\n"), "[0]<stderr>:raw \xff bytes\n");
}

TEST(Console, StreamsThatAreOneFileKeepTheirOrder) {
  Pipe pipe;
  const UniqueFd copy(::dup(pipe.write.get()));
  Console console(pipe.write.get(), copy.get(), std::chrono::seconds(10), nullptr);
  EXPECT_EQ(&console.out(), &console.error());
  console.out().write("1\n");
  console.error().write("2\n");
  console.out().write("3\n");
  EXPECT_TRUE(console.drain(Clock::now() + kGenerous));
  EXPECT_EQ(read_until(pipe.read.get(), "3\n"), "1\n2\n3\n");
}

TEST(Console, ColoursAreForTerminalsThatWantThem) {
  const char* const before = std::getenv("TERM");
  const std::string terminal = before == nullptr ? "" : before;
  ::setenv("TERM", "xterm", 1);
  ::unsetenv("NO_COLOR");
  EXPECT_TRUE(colours_wanted(true));
  EXPECT_FALSE(colours_wanted(false));
  ::setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(colours_wanted(true));
  ::unsetenv("NO_COLOR");
  ::setenv("TERM", "dumb", 1);
  EXPECT_FALSE(colours_wanted(true));
  if (before == nullptr) {
    ::unsetenv("TERM");
  } else {
    ::setenv("TERM", terminal.c_str(), 1);
  }
}

TEST(Console, ATerminalGetsColouredTags) {
  const UniqueFd master(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(master);
  ASSERT_EQ(::grantpt(master.get()), 0);
  ASSERT_EQ(::unlockpt(master.get()), 0);
  std::array<char, 128> name{};
  ASSERT_EQ(::ptsname_r(master.get(), name.data(), name.size()), 0);
  const UniqueFd terminal(::open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(terminal);
  ::setenv("TERM", "xterm", 1);
  ::unsetenv("NO_COLOR");
  Console console(terminal.get(), terminal.get(), std::chrono::seconds(10), nullptr);
  JobOutput output(console, nullptr, {}, false);
  output.on_output({.rank = 0, .host = "a", .slot = 0, .incarnation = 1, .pid = 1},
                   Stream::standard_output, "text\n", nullptr);
  EXPECT_TRUE(console.drain(Clock::now() + kGenerous));
  EXPECT_EQ(read_until(master.get(), "text\r\n"), "\x1b[32m[0]<stdout>:\x1b[0mtext\r\n");
}

}  // namespace
}  // namespace hvd::cli
