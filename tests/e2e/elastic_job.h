// Fixture of the tests of elastic jobs on this machine: the program elastic_steps under the real
// hvdrun, and its step logs, from which the test reads the course of the job.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <string>

#include "tests/e2e/job_test.h"
#include "tests/e2e/step_logs.h"

namespace hvd::test {

class ElasticJobTest : public JobTest {
 protected:
  ElasticJobTest() : step_logs_({directory() / "step_logs"}) {
    std::filesystem::create_directories(directory() / "orders");
  }

  // `hvdrun flags... elastic_steps ...`. It trains until it is told that it is enough.
  Process& start_training(const Words& flags, const Words& program_flags = {});
  // Tells it, waits for its end, and judges the step logs.
  ExitStatus finish(Process& job, const StepLogRules& rules = {});
  void say_enough() { directory_file("enough"); }

  StepLogs& step_logs() { return step_logs_; }
  // Of the newest world; the test fails if there is none.
  pid_t pid_of_rank(int rank);
  void kill_rank(int rank, int signal_number = SIGKILL);
  // At this point a worker ("localhost#1", "any") does as it is told, once; elastic_steps.cpp says
  // what it can do.
  void order(const std::string& worker, const std::string& point, const std::string& action);
  bool was_obeyed(const std::string& worker, const std::string& point) const;
  // A discovery script, which prints what discover() was told last.
  std::string discovery_script(const std::string& first_answer);
  void discover(const std::string& answer);
  // Another script in its place.
  void discover_by(const std::string& commands);

 private:
  void replace_file(const std::string& name, const std::string& content);

  StepLogs step_logs_;
};

// The same; hvdrun's commands about running jobs find those of this test, and no others.
class AskedJobTest : public ElasticJobTest {
 protected:
  void SetUp() override {
    ElasticJobTest::SetUp();
    ::setenv("HVD_RUNTIME_DIR", sockets().c_str(), 1);
  }
  void TearDown() override {
    ElasticJobTest::TearDown();
    ::unsetenv("HVD_RUNTIME_DIR");
  }
  // Where the jobs' sockets are.
  std::filesystem::path sockets() const { return directory() / "sockets"; }
};

}  // namespace hvd::test
