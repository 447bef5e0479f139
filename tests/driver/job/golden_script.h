// Golden scripts: what happens to a job and what it answers, as text. The words that all jobs
// share; what else there is stands in job_golden_test.cpp and elastic_golden_test.cpp.
//
//     job ...                    the hosts and options
//     > +20ms ready a            20 ms later the agent of a is ready
//     say: ...                   the actions, and what the job waits for then
//     (waits for ...)
//
// Events: begin; progress HOST STEP; ready HOST [gpus=N] [cores=N]; failed HOST STEP [EXIT CODE]
// TEXT; heard HOST; gone, broken HOST [HOW]; launched WORKER PID; launch-failed WORKER ERRNO TEXT;
// initialised, done WORKER; exited WORKER code N | signal N [core]; signal N; tick. A STEP is
// written find-program. A WORKER is host#slot, or HOST/INCARNATION for what an agent makes up; a
// HOST or a host#slot that was there before is the newest one.
//
// Time: "deadline" lets it pass until the job asked for a tick. "pass 2000ms [HOST...]" lets it
// pass with every tick in time, while these hosts are heard every tenth of the heartbeat timeout;
// what happens on the way is shown with the time since.
//
// HVD_REWRITE_GOLDEN=1 writes the answers into the files, for review as a diff.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/text.h"
#include "driver/job/job_io.h"
#include "tests/support/process.h"

namespace hvd::driver {

using std::chrono::milliseconds;

template <typename Machine, typename State>
class GoldenScript {
 public:
  virtual ~GoldenScript() = default;

  // Runs the script and returns it with the job's answers in place of those that stood there.
  std::string run(const std::string& text) {
    std::string result;
    std::istringstream lines(text);
    std::string line;
    bool answer = false;  // inside what was answered last time
    while (std::getline(lines, line)) {
      if (line.substr(0, 2) == "> ") {
        result += line + "\n" + answer_to(line.substr(2));
        answer = true;
      } else if (line.empty() || line.front() == '#') {
        answer = false;
        result += line + "\n";
      } else if (line.substr(0, 3) == "job") {
        begin(std::string(trim(line.substr(3))));
        result += line + "\n";
      } else if (!answer) {
        ADD_FAILURE() << "not understood: " << line;
      }
    }
    return result;
  }

 protected:
  // The line that begins a job, without its first word.
  virtual void begin(const std::string& text) = 0;
  virtual std::optional<Event> more_events(const std::string& name,
                                           std::istringstream& words) const = 0;

  // A command that stands for many events.
  virtual bool is_many(const std::string& /*name*/) const { return false; }
  virtual std::string many(const std::string& /*name*/, std::istringstream& /*words*/) {
    return {};
  }

  std::string answer_to(const std::string& command) {
    std::istringstream words(command);
    std::string name;
    words >> name;
    if (name.front() == '+') {
      now_ += milliseconds(std::atoi(name.c_str() + 1));
      words >> name;
    }
    if (name == "deadline") now_ = job_->next_deadline();
    std::string answer;
    if (is_many(name)) {
      answer = many(name, words);
    } else {
      answer = name == "pass" ? pass(words) : actions(event(name, words), "");
    }
    const std::string waits = job_->waiting_for(now_);
    EXPECT_EQ(waits.empty(), job_->state() == State::finished) << command;
    answer += waits.empty() ? "(finished)\n" : cat("(waits for ", waits, ")\n");
    return answer;
  }

  std::string actions(const Event& event, const std::string& before) {
    std::string answer;
    for (const auto& action : job_->step(event, now_)) {
      answer += before + to_text(action, job_->host_names()) + "\n";
    }
    return answer;
  }

  std::string pass(std::istringstream& words) {
    const TimePoint start = now_;
    const TimePoint end = now_ + milliseconds(number(words));
    words.ignore(2);  // "ms"
    std::vector<HostIndex> heard;
    for (std::string name; words >> name;) heard.push_back(host(name));
    std::string answer;
    const auto since = [&] {
      return cat("[+", std::chrono::duration_cast<milliseconds>(now_ - start).count(), "ms] ");
    };
    const bool beats = !heard.empty() && heartbeat_.count() > 0;
    EXPECT_TRUE(beats || heard.empty()) << "this job has no heartbeats";
    TimePoint next_beat = beats ? start + heartbeat_ : kNever;
    while (std::min(next_beat, job_->next_deadline()) <= end) {
      now_ = std::min(next_beat, job_->next_deadline());
      if (now_ == next_beat) {
        for (const HostIndex host : heard) answer += actions(event::Heard{host}, since());
        next_beat += heartbeat_;
      } else {
        answer += actions(event::Tick{}, since());
      }
    }
    now_ = end;
    return answer;
  }

  static std::string rest(std::istringstream& words) {
    std::string text;
    std::getline(words >> std::ws, text);
    return text;
  }

  HostIndex host(std::istringstream& words) const {
    std::string name;
    words >> name;
    return host(name);
  }
  HostIndex host(const std::string& name) const {
    const auto names = job_->host_names();
    // The newest of that name.
    const auto found = std::find(names.rbegin(), names.rend(), name);
    if (found == names.rend()) {
      ADD_FAILURE() << "no such host: " << name;
      return 0;
    }
    return static_cast<HostIndex>(names.rend() - found) - 1;
  }

  std::pair<HostIndex, Incarnation> worker(std::istringstream& words) const {
    std::string name;
    words >> name;
    if (const auto slash = name.find('/'); slash != std::string::npos) {
      return {host(name.substr(0, slash)),
              static_cast<Incarnation>(std::atoll(name.c_str() + slash + 1))};
    }
    // The newest in the slot.
    for (std::size_t index = job_->workers().size(); index-- > 0;) {
      const auto& one = job_->workers()[index];
      if (one.member.worker() == name) return {one.host, one.member.incarnation};
    }
    ADD_FAILURE() << "no such worker: " << name;
    return {};
  }

  static int number(std::istringstream& words) {
    int value = 0;
    words >> value;
    return value;
  }

  static Step step(std::istringstream& words) {
    std::string name;
    words >> name;
    std::replace(name.begin(), name.end(), '-', ' ');
    for (int number = 0; number <= static_cast<int>(Step::reach); ++number) {
      if (name_of(static_cast<Step>(number)) == name) return static_cast<Step>(number);
    }
    ADD_FAILURE() << "no such step: " << name;
    return {};
  }

  Event ready(std::istringstream& words) const {
    event::AgentReady ready{host(words), {}};
    for (std::string word; words >> word;) {
      const int value = std::atoi(word.c_str() + word.find('=') + 1);
      (word.starts_with("gpus=") ? ready.capacity.gpus : ready.capacity.cores) = value;
    }
    return ready;
  }

  Event failed(std::istringstream& words) const {
    event::HostFailed failed;
    failed.host = host(words);
    failed.trouble.step = step(words);
    words >> std::ws;
    if (std::isdigit(words.peek()) != 0) failed.trouble.exit_code = number(words);
    failed.trouble.message = rest(words);
    return failed;
  }

  Event event(const std::string& name, std::istringstream& words) const {
    if (name == "begin") return event::Begin{};
    if (name == "tick" || name == "deadline") return event::Tick{};
    if (name == "ready") return ready(words);
    if (name == "heard") return event::Heard{host(words)};
    if (name == "failed") return failed(words);
    if (name == "progress") {
      const auto where = host(words);
      return event::HostProgress{where, step(words)};
    }
    if (name == "signal") return event::StopRequested{number(words)};
    if (name == "gone" || name == "broken") {
      const auto where = host(words);
      if (name == "gone") return event::AgentGone{where, rest(words)};
      return event::AgentBroken{where, rest(words)};
    }
    if (const auto more = more_events(name, words)) return *more;
    const auto [where, incarnation] = worker(words);
    if (name == "launched") return event::Launched{where, incarnation, number(words)};
    if (name == "launch-failed") {
      const int error = number(words);
      return event::LaunchFailed{where, incarnation, error, rest(words)};
    }
    if (name == "initialised") return event::Initialised{where, incarnation};
    if (name == "done") return event::Done{where, incarnation};
    if (name == "described") return event::Described{where, incarnation, rest(words)};
    if (name == "exited") {
      std::string kind;
      words >> kind;
      const int value = number(words);
      const bool signal = kind == "signal";
      return event::Exited{where, incarnation, signal ? 0 : value, signal ? value : 0,
                           rest(words) == "core"};
    }
    ADD_FAILURE() << "not understood: " << name;
    return event::Tick{};
  }

  std::unique_ptr<Machine> job_;
  milliseconds heartbeat_{0};
  TimePoint now_{std::chrono::hours(1)};
};

inline std::vector<std::filesystem::path> golden_scripts(const std::string& folder) {
  std::vector<std::filesystem::path> result;
  for (const auto& entry : std::filesystem::directory_iterator(
           std::filesystem::path(HVD_SOURCE_DIR) / "tests/driver/job" / folder)) {
    if (entry.path().extension() == ".txt") result.push_back(entry.path());
  }
  std::sort(result.begin(), result.end());
  return result;
}

// Answers as the file says.
template <typename Script>
void expect_as_written(const std::filesystem::path& path) {
  const std::string expected = test::read_file(path);
  const std::string actual = Script().run(expected);
  if (std::getenv("HVD_REWRITE_GOLDEN") != nullptr) {  // NOLINT(concurrency-mt-unsafe)
    std::ofstream(path) << actual;
  }
  EXPECT_EQ(actual, expected);
}

}  // namespace hvd::driver
