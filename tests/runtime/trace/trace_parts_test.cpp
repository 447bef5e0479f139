// The parts of the timeline that need no world: its file, its text, its clocks, its frames.
#include <filesystem>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "base/frame.h"
#include "base/text.h"
#include "runtime/trace/batch.h"
#include "runtime/trace/clock_offset.h"
#include "runtime/trace/flight_recorder.h"
#include "runtime/trace/frames.h"
#include "runtime/trace/json_text.h"
#include "runtime/trace/timeline_file.h"
#include "runtime/trace/timeline_text.h"
#include "tests/runtime/trace/trace_check.h"
#include "tests/support/process.h"

namespace hvd::test {
namespace {

using namespace runtime::trace;  // NOLINT(google-build-using-namespace): all of it is meant

TEST(TimelineFile, IsValidJsonAfterEveryAppend) {
  const TemporaryDirectory directory;
  const auto path = (directory.path() / "t.json").string();
  auto file = TimelineFile::create(path, "1");
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  for (std::size_t i = 2; i < 50; ++i) {
    ASSERT_TRUE(file->append(cat(i)).ok());
    const auto parsed = nlohmann::json::parse(read_file(path), nullptr, false);
    ASSERT_EQ(parsed.size(), i);
  }
}

TEST(TimelineFile, TakesElementsOfAnyLengthWhereverPagesEnd) {
  const TemporaryDirectory directory;
  const auto path = (directory.path() / "t.json").string();
  auto file = TimelineFile::create(path, "\"\"");
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  std::size_t count = 1;
  for (std::size_t round = 0; round < 60; ++round) {
    std::string elements;
    for (std::size_t i = 0; i < round; ++i, ++count) {
      if (i > 0) elements += ",\n";
      elements += cat('"', std::string((i * 977 + round * 131) % 9000 / (1 + i % 7), 'x'), '"');
    }
    if (elements.empty()) continue;
    ASSERT_TRUE(file->append(elements).ok());
    const auto parsed = nlohmann::json::parse(read_file(path), nullptr, false);
    ASSERT_EQ(parsed.size(), count) << round;
  }
}

TEST(TimelineFile, APipeIsRefusedAtOnce) {
  const TemporaryDirectory directory;
  const auto path = (directory.path() / "t.json").string();
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_FALSE(TimelineFile::create(path, "1").ok());
}

// It would hold up the rank that opens it.
TEST(FlightReport, APipeInItsPlaceIsReplaced) {
  const TemporaryDirectory directory;
  const runtime::WorldSpec spec(3, {}, 1, Token::random());
  const auto pipe = directory.path() / flight_file_name(spec);
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const Status written = write_flight_report(directory.path(), flight_file_name(spec), "{}");
  ASSERT_TRUE(written.ok()) << written.message();
  EXPECT_EQ(test::read_file(pipe), "{}");
}

TEST(JsonText, AnyNameBecomesAString) {
  const std::map<std::string, std::string> cases = {
      {"plain", "plain"},
      {"a\"b\\c\n\x01", "a\"b\\c\n\x01"},
      {"gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f"},
      {"cut \xc3", "cut \xef\xbf\xbd"},
      {"long \xc0\x80", "long \xef\xbf\xbd\xef\xbf\xbd"},
      {"half \xed\xa0\x80", "half \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
  };
  for (const auto& [text, read] : cases) {
    std::string out;
    append_quoted(out, text);
    const auto parsed = nlohmann::json::parse(out, nullptr, false);
    ASSERT_TRUE(parsed.is_string()) << out;
    EXPECT_EQ(parsed.get<std::string>(), read);
  }
}

TEST(ClockOffset, TheFastestAnswerCountsAndTheMachineDecides) {
  ClockOffset clock("here");
  Nanoseconds now = 1'000'000;
  constexpr Nanoseconds kAhead = 5'000'000'000;
  for (int i = 0; i < ClockOffset::kQuestions; ++i) {
    EXPECT_FALSE(clock.known());
    ASSERT_TRUE(clock.ask(now));
    EXPECT_FALSE(clock.ask(now)) << "an answer is under way";
    // One answer is quick both ways, the others slow on the way back.
    const Nanoseconds there = 100;
    const Nanoseconds back = i == 3 ? 100 : 90'000;
    const ClockAnswer answer{now, now + there + kAhead, "elsewhere"};
    now += there + back;
    clock.answered(answer, now);
  }
  ASSERT_TRUE(clock.known());
  EXPECT_EQ(clock.offset(), kAhead);
  EXPECT_FALSE(clock.ask(now));
  EXPECT_TRUE(clock.ask(now + ClockOffset::kEvery)) << "clocks drift";

  ClockOffset shared("here");
  ASSERT_TRUE(shared.ask(now));
  shared.answered({now, now + 77, "here"}, now + 10);
  EXPECT_TRUE(shared.known());
  EXPECT_EQ(shared.offset(), 0);
  EXPECT_FALSE(shared.ask(now + 10 * ClockOffset::kEvery));
}

std::string batch_bytes(std::uint64_t number, Nanoseconds decided, Nanoseconds ended,
                        Nanoseconds enqueued) {
  Batch batch;
  batch.number = number;
  batch.set_size = 2;
  batch.decided = decided;
  batch.begun = decided + 10;
  batch.ended = ended;
  batch.operation = "gloo allreduce";
  runtime::Request request;
  request.name = "t";
  request.type = DataType::float32;
  request.shape = {2, 3};
  BatchWriter writer;
  writer.begin(batch, 1);
  writer.add(request, 7, enqueued, enqueued + 5, "");
  return writer.take();
}

Events events_of(int rank, Nanoseconds offset, std::string batches) {
  Events events;
  events.rank = rank;
  events.offset = offset;
  events.tensors = 1;
  events.batches = std::move(batches);
  return events;
}

TEST(TimelineText, ClocksThatDifferAreLaidOverEachOtherAndOrderIsKept) {
  const TemporaryDirectory directory;
  const auto path = (directory.path() / "t.json").string();
  TimelineText text({{"a#0", "a", ""}, {"b#0", "b", ""}}, 1, 1'000'000);
  auto file = TimelineFile::create(path, text.take());
  ASSERT_TRUE(file.ok());
  const auto now = Clock::now();
  // Rank 1's clock is a second ahead of rank 0's.
  constexpr Nanoseconds kSecond = 1'000'000'000;
  text.add(events_of(1, -kSecond,
                     batch_bytes(1, kSecond + 1'300'000, kSecond + 1'500'000, kSecond + 1'200'000)),
           now);
  EXPECT_NE(text.release(now), kNever) << "rank 0 has not said its part";
  text.add(events_of(0, 0, batch_bytes(1, 1'290'000, 1'490'000, 1'100'000)), now);
  EXPECT_EQ(text.release(now), kNever);
  // A better estimate of the offset moves later events back a little, but not before the last one.
  text.add(events_of(1, -kSecond - 300'000,
                     batch_bytes(2, kSecond + 1'700'000, kSecond + 1'900'000, kSecond + 1'600'000)),
           now);
  text.release(now, true);
  ASSERT_TRUE(file->append(text.take()).ok());
  const auto timeline = expect_right_timeline(path);
  const auto* const track = timeline.track(0, "t");
  ASSERT_NE(track, nullptr);
  EXPECT_EQ(track->instants, (std::vector<std::string>{"rank 0", "rank 1"}));
  EXPECT_EQ(timeline.count(1, "ALLREDUCE"), 2);
}

TEST(TimelineText, DroppedEventsAreCounted) {
  const TemporaryDirectory directory;
  const auto path = (directory.path() / "t.json").string();
  TimelineText text({{"a#0", "a", ""}}, 1, 0);
  Events events = events_of(0, 0, "");
  events.dropped = 12;
  text.add(events, Clock::now());
  ASSERT_TRUE(TimelineFile::create(path, text.take()).ok());
  EXPECT_EQ(expect_right_timeline(path).count(0, "DROPPED"), 1);
  EXPECT_NE(read_file(path).find(R"("tensors":12)"), std::string::npos);
}

TEST(TraceFrames, BytesThatAreNoEventsAreRefused) {
  Events events = events_of(1, 5, batch_bytes(1, 2, 3, 1));
  const auto frame = encode_events(events).substr(kFrameHeaderSize);
  const auto read = decode_events(frame, 2);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->batches, events.batches);
  EXPECT_EQ(read->offset, 5);
  EXPECT_FALSE(decode_events(frame, 1).ok()) << "there is no rank 1";
  for (std::size_t cut = 0; cut < frame.size(); ++cut) {
    EXPECT_FALSE(decode_events(frame.substr(0, cut), 2).ok()) << cut;
  }
  const auto bytes = events.batches;
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
    EXPECT_FALSE(BatchReader(std::string_view(bytes).substr(0, cut)).next().has_value()) << cut;
  }
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    auto lie = bytes;
    lie[i] = static_cast<char>(0xff);
    BatchReader in(lie);
    while (in.next()) {  // ends for any input
    }
  }
}

TEST(TraceFrames, EachTensorComesBackAsItWasAndItsNameTravelsOnce) {
  std::vector<runtime::Request> requests(2);
  requests[0].name = "a tensor with a name that is long enough to be seen in the size";
  requests[0].shape = {2, 3};
  requests[1].name = "b";
  requests[1].kind = runtime::Kind::allgather;
  requests[1].type = DataType::float64;
  constexpr Nanoseconds kHour = 3'600'000'000'000;
  Batch head;
  head.number = 4;
  head.ended = 5 * kHour;
  BatchWriter writer;
  for (int i = 0; i < 100; ++i) {
    writer.begin(head, 3);
    writer.add(requests[0], 12, head.ended - 70, head.ended - 50, "");
    writer.add(requests[1], runtime::ResponseTensor::kNotCached, head.ended - kHour, head.ended,
               "it went wrong");
    writer.add(requests[0], 12, 0, 0, "");
  }
  EXPECT_EQ(writer.tensors(), 300);
  const auto bytes = writer.take();
  EXPECT_EQ(writer.tensors(), 0);
  EXPECT_EQ(bytes.find(requests[0].name), bytes.rfind(requests[0].name));
  BatchReader reader(bytes);
  int batches = 0;
  for (; const auto batch = reader.next(); ++batches) {
    ASSERT_EQ(batch->tensors.size(), 3);
    EXPECT_EQ(batch->number, 4);
    const auto& [a, b, joined] = std::tie(batch->tensors[0], batch->tensors[1], batch->tensors[2]);
    EXPECT_EQ(a.info->name, requests[0].name);
    EXPECT_EQ(a.info->shape, requests[0].shape);
    EXPECT_EQ(a.enqueued, head.ended - 70);
    EXPECT_EQ(a.asked, head.ended - 50);
    EXPECT_EQ(a.error, "");
    EXPECT_EQ(b.info->name, "b");
    EXPECT_EQ(b.info->kind, runtime::Kind::allgather);
    EXPECT_EQ(b.info->type, DataType::float64);
    EXPECT_EQ(b.enqueued, head.ended - kHour);
    EXPECT_EQ(b.asked, head.ended);
    EXPECT_EQ(b.error, "it went wrong");
    EXPECT_EQ(joined.info->name, requests[0].name);
    EXPECT_EQ(joined.enqueued, 0);
    EXPECT_EQ(joined.asked, 0);
  }
  EXPECT_EQ(batches, 100);
  EXPECT_TRUE(reader.ended_well());
}

}  // namespace
}  // namespace hvd::test
