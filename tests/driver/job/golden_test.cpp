// Golden scripts, in tests/driver/job/golden/: what happens to a job and what it answers, as text.
//
//     job ...                    the hosts and options
//     > +20ms ready a            20 ms later the agent of a is ready
//     say: ...                   the actions, and what the job waits for then
//     (waits for ...)
//
// The job. All: grace=, start=, init=, heartbeat=, orphan= and pace=MILLISECONDS; the pace is else
// a tenth of the heartbeat timeout.
//     static: job a:2 b:?        the hosts and their slots, where known; further np=PROCESSES,
//                                local=HOST, and no-oversubscribe
//     elastic: job min=1 max=8 np=4 spares=1 policy=host restarts=3 resets=5 planned=5
//                                max-restarts=3 and, in milliseconds: elastic= leave= shortest=
//                                longest=; list (the hosts do not change); suspends (when all go)
//
// Events of all: begin; progress HOST STEP; ready HOST [gpus=N] [cores=N]; failed HOST STEP
// [EXIT CODE] TEXT; heard HOST; gone, broken HOST [HOW]; launched WORKER PID; launch-failed WORKER
// ERRNO TEXT; initialised, done WORKER; described WORKER TEXT; exited WORKER code N | signal N
// [core]; signal N; suspend N; resumed MILLISECONDSms; tick. A STEP is written find-program. A
// WORKER is host#slot, or HOST/INCARNATION for what an agent makes up; a HOST or a host#slot that
// was there before is the newest one.
//
// Of static jobs: addresses ADDRESS... (of all hosts; without any: 10.0.0.1 and so on).
//
// Of elastic jobs: found HOST:SLOTS... (not known: ?; a host of this machine: HOST:SLOTS:local,
// one whose agent has joined by itself: HOST:SLOTS:joins);
// no-discovery TEXT; address HOST [ADDRESS]; leaves HOST; standby, leave WORKER; left WORKER
// [REASON]; committed WORKER GENERATION; entered WORKER GENERATION [PART=MILLISECONDS...]; drain,
// drain-undo HOST; scale N; slow, fast WORKER. Many at once: "up
// HOST..." they become ready and have an address; "begins WORKER..." they are launched and
// initialised, and on standby if they have yet to join.
//
// Time: "deadline" lets it pass until the job asked for a tick. "pass 2000ms [HOST...]" lets it
// pass with every tick in time, while these hosts are heard every tenth of the heartbeat timeout;
// what happens on the way is shown with the time since.
//
// HVD_REWRITE_GOLDEN=1 writes the answers into the files, for review as a diff.
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/text.h"
#include "driver/job/job.h"
#include "driver/job/plan.h"
#include "tests/driver/journal/kept_journal.h"
#include "tests/driver/metrics/kept_metrics.h"
#include "tests/support/process.h"

namespace hvd::driver {
namespace {

using std::chrono::milliseconds;

class GoldenScript {
 public:
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
    EXPECT_EQ(journal_ ? journal_->wrong() : "", "");
    EXPECT_EQ(metrics_ ? metrics_->wrong() : "", "");
    return result;
  }

 private:
  // The line that begins a job, without its first word.
  void begin(const std::string& text) {
    JobOptions options;
    options.job_id = "golden";
    PlanRequest request;
    for (const auto& word : split(text, ' ')) {
      const auto colon = word.find(':');
      if (colon != std::string::npos) {
        request.hosts.push_back({word.substr(0, colon), std::atoi(word.c_str() + colon + 1)});
      } else if (word == "no-oversubscribe") {
        request.oversubscribe = false;
      } else {
        set(options, word);
      }
    }
    heartbeat_ = options.heartbeat_timeout / 10;
    if (options.pace.count() == 0) options.pace = heartbeat_;
    if (request.hosts.empty()) {
      return begin(JobStart{options, JobStart::Elastic{}});
    }

    request.processes = options.elastic.processes;
    request.hosts = hosts_to_ask(request.hosts, request.processes);
    if (!slots_are_known(request.hosts)) {
      return begin(JobStart{options, request});
    }
    const auto plan = plan_static(request.hosts, request.processes, request.oversubscribe);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    begin(JobStart{options, plan->members});
  }

  void begin(const JobStart& start) {
    job_ = start.make();
    journal_.emplace(start);
    metrics_.emplace(start);
  }

  static void set(JobOptions& options, const std::string& word) {
    ElasticOptions& elastic = options.elastic;
    const auto equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const std::string said = equals == std::string::npos ? "" : word.substr(equals + 1);
    const int value = std::atoi(said.c_str());
    const std::map<std::string, int*> numbers{{"min", &elastic.limits.least},
                                              {"max", &elastic.limits.most},
                                              {"np", &elastic.processes},
                                              {"spares", &elastic.limits.spares},
                                              {"restarts", &elastic.budget.restarts},
                                              {"resets", &elastic.reset_limit},
                                              {"max-restarts", &elastic.max_restarts},
                                              {"planned", &elastic.planned_reset_limit}};
    const std::map<std::string, milliseconds*> times{{"grace", &options.grace},
                                                     {"start", &options.start_timeout},
                                                     {"init", &options.init_timeout},
                                                     {"heartbeat", &options.heartbeat_timeout},
                                                     {"orphan", &options.orphan_timeout},
                                                     {"elastic", &elastic.elastic_timeout},
                                                     {"leave", &elastic.leave_grace},
                                                     {"shortest", &elastic.budget.shortest},
                                                     {"longest", &elastic.budget.longest},
                                                     {"pace", &options.pace}};
    if (const auto number = numbers.find(name); number != numbers.end()) {
      *number->second = value;
    } else if (const auto time = times.find(name); time != times.end()) {
      *time->second = milliseconds(value);
    } else if (name == "replaces-slow") {
      elastic.replaces_slow = true;
    } else if (name == "keeps-state") {
      elastic.keeps_state_in_agents = true;
    } else if (name == "suspends") {
      elastic.suspends_when_all_go = true;
    } else if (name == "list") {
      elastic.hosts_are_fixed = elastic.plan_list = true;
    } else if (name == "policy" && said == "host") {
      elastic.budget.policy = FailurePolicy::host;
    } else if (name == "local") {
      options.local_hosts.push_back(said);
    } else {
      ADD_FAILURE() << "not understood: " << word;
    }
  }

  std::string up(std::istringstream& words) {
    std::string answer;
    for (std::string name; words >> name;) {
      const HostIndex index = host(name);
      answer += actions(event::AgentReady{index, {}}, "");
      answer += actions(event::AddressFound{index, cat("10.0.0.", index + 1)}, "");
    }
    return answer;
  }

  std::string begins(std::istringstream& words) {
    std::string answer;
    for (std::string name; words >> name;) {
      std::istringstream one(name);
      const auto [where, incarnation] = worker(one);
      const int pid = 100 + static_cast<int>(incarnation);
      const auto membership = job_->workers()[job_->index_of(incarnation)].membership;
      answer += actions(event::Launched{where, incarnation, pid}, "");
      answer += actions(event::Initialised{where, incarnation}, "");
      if (membership == MemberStatus::joining) {
        answer += actions(event::WorkerReady{where, incarnation}, "");
      }
    }
    return answer;
  }

  Event addresses(std::istringstream& words) const {
    event::AddressesChosen chosen;
    for (std::string address; words >> address;) chosen.addresses.push_back(address);
    if (!chosen.addresses.empty()) return chosen;
    for (const auto& host : job_->hosts()) {
      if (host.workers.empty()) break;
      chosen.addresses.push_back(cat("10.0.0.", chosen.addresses.size() + 1));
    }
    return chosen;
  }

  static event::HostsFound found(std::istringstream& words) {
    event::HostsFound found;
    for (std::string word; words >> word;) {
      const auto parts = split(word, ':');
      event::FoundHost host{{parts[0], std::atoi(parts[1].c_str())}};
      for (const auto& more : parts) {
        if (more == "local") host.local = true;
        if (more == "joins") host.joins = true;
      }
      found.hosts.push_back(host);
    }
    return found;
  }

  std::string answer_to(const std::string& command) {
    std::istringstream words(command);
    std::string name;
    words >> name;
    if (name.front() == '+') {
      now_ += milliseconds(std::atoi(name.c_str() + 1));
      words >> name;
    }
    if (name == "deadline") {
      const TimePoint next = job_->next_deadline();
      EXPECT_NE(next, kNever) << "the job waits for no time to pass";
      now_ = std::min(next, now_ + std::chrono::hours(1'000'000));
    }
    std::string answer;
    if (name == "pass") {
      answer = pass(words);
    } else if (name == "up") {
      answer = up(words);
    } else if (name == "begins") {
      answer = begins(words);
    } else {
      answer = actions(event(name, words), "");
    }
    const std::string waits = job_->waiting_for(now_);
    EXPECT_EQ(waits.empty(), job_->state() == JobState::finished) << command;
    answer += waits.empty() ? "(finished)\n" : cat("(waits for ", waits, ")\n");
    return answer;
  }

  std::string actions(const Event& event, const std::string& before) {
    std::string answer;
    const auto actions = job_->step(event, now_);
    journal_->step(event, actions, *job_, now_);
    metrics_->step(event, actions, *job_, now_);
    metrics_->check(*job_, now_);
    for (const auto& action : actions) {
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
    failed.error.step = step(words);
    words >> std::ws;
    if (std::isdigit(words.peek()) != 0) failed.error.exit_code = number(words);
    failed.error.message = rest(words);
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
    if (name == "resumed") return event::Resumed{milliseconds(number(words))};
    if (name == "taken-over") return event::TakenOver{2, milliseconds(number(words))};
    if (name == "suspend") return event::SuspendRequested{number(words)};
    if (name == "signal") return event::StopRequested{number(words)};
    if (name == "gone" || name == "broken") {
      const auto where = host(words);
      if (name == "gone") return event::AgentGone{where, rest(words)};
      return event::AgentBroken{where, rest(words)};
    }
    if (name == "addresses") return addresses(words);
    if (name == "found") return found(words);
    if (name == "no-discovery") return event::DiscoveryFailed{rest(words)};
    if (name == "leaves") return event::HostLeaves{host(words)};
    if (name == "notice") {
      event::HostLeaves leaves{host(words), true};
      if (const std::string left = rest(words); !left.empty()) {
        leaves.left = milliseconds(std::stoi(left));
      }
      return leaves;
    }
    if (name == "drain" || name == "drain-undo") {
      return event::DrainRequested{rest(words), name == "drain-undo"};
    }
    if (name == "scale") return event::ScaleRequested{number(words)};
    if (name == "entered") return entered(words);
    if (name == "address") {
      const HostIndex where = host(words);
      const std::string address = rest(words);
      return event::AddressFound{where, address.empty() ? cat("10.0.0.", where + 1) : address};
    }
    return worker_event(name, words);
  }

  Event worker_event(const std::string& name, std::istringstream& words) const {
    const auto [where, incarnation] = worker(words);
    if (name == "launched") {
      const int pid = number(words);
      return event::Launched{where, incarnation, pid, rest(words)};
    }
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
      const std::string more = rest(words);
      const bool dumped = more == "core";
      return event::Exited{where, incarnation, signal ? 0 : value, signal ? value : 0, dumped,
                           false, 0,           dumped ? "" : more};
    }
    if (name == "standby") return event::WorkerReady{where, incarnation};
    if (name == "leave") return event::LeaveRequested{where, incarnation};
    if (name == "left") return event::WorkerLeft{where, incarnation, rest(words)};
    if (name == "gives_up") return event::WorkerLeft{where, incarnation, rest(words), true};
    if (name == "slow" || name == "fast") {
      return event::FoundSlow{where, incarnation, name == "slow"};
    }
    // "saving 0 1 900 300": of 900 bytes; "saving 0 1 900 900 in place"
    if (name == "saving") {
      const auto total = static_cast<std::uint64_t>(number(words));
      const auto written = static_cast<std::uint64_t>(number(words));
      return event::Saving{where, incarnation, total, written, !rest(words).empty()};
    }
    if (name == "committed") {
      return event::Committed{where, incarnation, static_cast<std::uint64_t>(number(words))};
    }
    ADD_FAILURE() << "not understood: " << name;
    return event::Tick{};
  }

  // "entered b#0 2 leave=3 connect=20", in milliseconds.
  Event entered(std::istringstream& words) const {
    event::WorldEntered entered;
    entered.slowest = worker(words).second;
    entered.generation = static_cast<std::uint64_t>(number(words));
    const std::map<std::string, Duration*> parts{
        {"leave", &entered.leave}, {"wait", &entered.wait}, {"connect", &entered.connect},
        {"vote", &entered.vote},   {"sync", &entered.sync}, {"step", &entered.step}};
    for (std::string word; words >> word;) {
      const std::size_t equals = word.find('=');
      const int value = std::atoi(word.c_str() + equals + 1);
      const auto part = parts.find(word.substr(0, equals));
      if (part != parts.end()) {
        *part->second = milliseconds(value);
      } else {
        entered.received = static_cast<std::uint64_t>(value);
      }
    }
    return entered;
  }

  std::unique_ptr<Job> job_;
  std::optional<KeptJournal> journal_;
  std::optional<KeptMetrics> metrics_;
  milliseconds heartbeat_{0};
  TimePoint now_{std::chrono::hours(1)};
};

std::vector<std::filesystem::path> golden_scripts(const std::string& folder) {
  std::vector<std::filesystem::path> result;
  for (const auto& entry : std::filesystem::directory_iterator(
           std::filesystem::path(HVD_SOURCE_DIR) / "tests/driver/job/golden" / folder)) {
    if (entry.path().extension() == ".txt") result.push_back(entry.path());
  }
  std::sort(result.begin(), result.end());
  return result;
}

class JobGolden : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(JobGolden, answers_as_written) {
  const std::string expected = test::read_file(GetParam());
  const std::string actual = GoldenScript().run(expected);
  if (std::getenv("HVD_REWRITE_GOLDEN") != nullptr) {  // NOLINT(concurrency-mt-unsafe)
    std::ofstream(GetParam()) << actual;
  }
  EXPECT_EQ(actual, expected);
}

INSTANTIATE_TEST_SUITE_P(Static, JobGolden, testing::ValuesIn(golden_scripts("static")),
                         [](const auto& script) { return script.param.stem().string(); });
INSTANTIATE_TEST_SUITE_P(Elastic, JobGolden, testing::ValuesIn(golden_scripts("elastic")),
                         [](const auto& script) { return script.param.stem().string(); });

}  // namespace
}  // namespace hvd::driver
