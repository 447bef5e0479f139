// run_job() with real agents and real programs. When it returns no process of the job may be left.
#pragma once

#include <cerrno>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <utility>
#include <vector>

#include "base/protocol/world_document.h"
#include "base/security/crypto.h"
#include "base/text.h"
#include "driver/core/job_spec.h"
#include "driver/driver.h"
#include "tests/support/process.h"

namespace hvd::driver {

// A variable in the environment of all processes of a job.
inline constexpr const char* kTag = "HVD_TEST_TAG";

// Records all reports to the observer, and runs a test's reactions to them.
struct Seen : Observer {
  WorldDocument world;
  std::vector<std::string> warnings;
  std::vector<std::string> notices;
  std::set<std::string> waits;
  std::string progress;
  std::vector<WorkerView> started;
  std::map<int, std::string> out;  // by rank
  std::map<int, std::string> err;
  std::map<std::pair<int, Stream>, int> closed;
  std::map<int, std::string> exited;

  std::function<void()> at_notice = [] {};
  std::function<void(const WorkerView&)> at_start = [](const WorkerView&) {};
  std::function<void(const WorkerView&, const std::string&)> at_output = [](const WorkerView&,
                                                                            const std::string&) {};
  std::function<void(std::function<void()>)> at_bytes = [](const std::function<void()>& consumed) {
    consumed();
  };

  void on_plan(const WorldDocument& document) override { world = document; }
  void on_world(const WorldDocument& document, std::string_view /*why*/) override {
    world = document;
  }
  void on_warning(std::string_view text) override { warnings.emplace_back(text); }
  void on_notice(std::string_view text) override {
    notices.emplace_back(text);
    at_notice();
  }
  void on_waiting(const Waiting& waiting) override { waits.insert(waiting.text()); }
  void on_waiting_over() override {}
  void on_progress(std::string_view text) override { progress += cat(text, "\n"); }
  void on_started(const WorkerView& worker) override {
    started.push_back(worker);
    at_start(worker);
  }
  void on_output(const WorkerView& worker, Stream stream, std::string bytes,
                 std::function<void()> consumed) override {
    EXPECT_EQ((closed[{worker.rank, stream}]), 0);
    std::string& text = (stream == Stream::standard_error ? err : out)[worker.rank];
    text += bytes;
    at_output(worker, text);
    at_bytes(std::move(consumed));
  }
  void on_output_closed(const WorkerView& worker, Stream stream) override {
    ++closed[{worker.rank, stream}];
  }
  void on_exited(const WorkerView& worker, std::string_view how) override {
    EXPECT_TRUE(exited.emplace(worker.rank, how).second);
  }
  void on_pause() override {}
};

class RunJob : public testing::Test {
 protected:
  RunJob() {
    spec.agent_path = test::binary("hvd-agent");
    spec.working_directory = directory.path();
    spec.environment = {cat("PATH=", "/usr/local/bin:/usr/bin:/bin"), cat(kTag, "=", tag)};
    spec.hosts = {{"localhost", 2}};
  }

  Outcome run(const std::string& script) {
    spec.command = {"bash", "-c", script};
    return run_command();
  }
  Outcome run_command() {
    Outcome outcome = run_job(spec, seen);
    EXPECT_EQ(test::processes_with_variable(kTag, tag), std::vector<pid_t>());
    EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
    EXPECT_EQ(errno, ECHILD);
    for (const auto& worker : seen.started) {
      EXPECT_EQ((seen.closed[{worker.rank, Stream::standard_output}]), 1);
      EXPECT_EQ((seen.closed[{worker.rank, Stream::standard_error}]), 1);
      EXPECT_EQ(seen.exited.count(worker.rank), 1U);
    }
    EXPECT_FALSE(outcome.reason.empty());
    return outcome;
  }
  std::string script_file(const std::string& text) {
    const auto path = directory.file("program", text);
    ::chmod(path.c_str(), 0755);
    return path;
  }

  const std::string tag = to_hex(random_bytes(8));
  test::TemporaryDirectory directory;
  JobSpec spec;
  Seen seen;
};

}  // namespace hvd::driver
