#include "runtime/tuning/tuning_log.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <sys/stat.h>

#include "base/text.h"
#include "tests/support/process.h"

namespace hvd::runtime {
namespace {

std::string content_of(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream out;
  out << in.rdbuf();
  return std::move(out).str();
}

Sample some_sample() {
  Sample sample;
  sample.steps = 10;
  sample.bytes = 5'000'000;
  sample.tensors = 10;
  sample.time = std::chrono::milliseconds(250);
  return sample;
}

TEST(TuningLog, HasAHeaderAndALineForEachSampleAndKeepsWhatIsThere) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.path() / "tune.csv";
  for (const long number : {1, 2}) {
    TuningLog log;
    const Status opened = log.open(path);
    ASSERT_TRUE(opened.ok()) << opened.to_string();
    Parameters parameters;
    parameters.cycle_time = std::chrono::microseconds(250);
    parameters.cache = false;
    log.write(number, some_sample(), {parameters, "challenger won, 4.0 % faster", true});
  }
  const auto lines = split(content_of(path), '\n');
  ASSERT_EQ(lines.size(), 4U) << "a header, two lines, and nothing after the last line's end";
  EXPECT_EQ(lines[0], TuningLog::kHeader);
  EXPECT_EQ(lines[1].substr(24),
            ",1,134217728,0.250,0,0,0,10,5000000,0.250000,20.000,"
            "\"challenger won, 4.0 % faster\"");
  EXPECT_EQ(lines[2].substr(24, 3), ",2,");
  EXPECT_EQ(lines[3], "");
}

void expect_refused(const std::string& path, const std::string& why) {
  TuningLog log;
  const Status opened = log.open(path);
  EXPECT_EQ(opened.code(), Code::invalid_argument);
  EXPECT_NE(opened.message().find(cat("autotuner's log (HVD_AUTOTUNE_LOG) ", path)),
            std::string::npos)
      << opened.message();
  EXPECT_NE(opened.message().find(why), std::string::npos) << opened.message();
}

TEST(TuningLog, APathThatCannotBeWrittenIsAClearError) {
  const test::TemporaryDirectory directory;
  expect_refused(directory.path() / "no" / "such" / "place.csv", "No such file or directory");
  expect_refused(directory.path(), "Is a directory");
}

TEST(TuningLog, AFileOfSomethingElseIsRefusedAndNotTouched) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.file("notes.txt", "do not lose this\n");
  expect_refused(path, "is not an autotuner log");
  EXPECT_EQ(content_of(path), "do not lose this\n");
}

TEST(TuningLog, APipeIsRefusedAtOnce) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.path() / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_FALSE(TuningLog().open(path).ok());
}

TEST(TuningLog, WithoutAPathNothingIsWritten) {
  TuningLog log;
  EXPECT_TRUE(log.open("").ok());
  log.write(1, some_sample(), {});
}

}  // namespace
}  // namespace hvd::runtime
