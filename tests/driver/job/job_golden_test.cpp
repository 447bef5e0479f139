// Golden scripts of static jobs, in tests/driver/job/golden/ (see golden_script.h).
//
//     job a:2 b:?                the hosts and their slots, where known; further np=PROCESSES,
//                                grace=, start=, heartbeat= and orphan=MILLISECONDS, local=HOST,
//                                and no-oversubscribe
//
// A further event: addresses ADDRESS... (of all hosts; none: 10.0.0.1 and so on).
#include "driver/job/job.h"
#include "driver/job/plan.h"
#include "tests/driver/job/golden_script.h"

namespace hvd::driver {
namespace {

class Script : public GoldenScript<Job, JobState> {
 private:
  void begin(const std::string& text) override {
    JobOptions options;
    options.job_id = "golden";
    PlanRequest request;
    for (const auto& word : split(text, ' ')) {
      const auto colon = word.find(':');
      const auto equals = word.find('=');
      if (colon != std::string::npos) {
        request.hosts.push_back({word.substr(0, colon), std::atoi(word.c_str() + colon + 1)});
      } else if (word == "no-oversubscribe") {
        request.oversubscribe = false;
      } else if (word.substr(0, equals) == "local") {
        options.local_hosts.push_back(word.substr(equals + 1));
      } else {
        const milliseconds value(std::atoi(word.c_str() + equals + 1));
        const std::string name = word.substr(0, equals);
        if (name == "np") {
          request.processes = static_cast<int>(value.count());
        } else if (name == "grace") {
          options.grace = value;
        } else if (name == "start") {
          options.start_timeout = value;
        } else if (name == "init") {
          options.init_timeout = value;
        } else if (name == "heartbeat") {
          options.heartbeat_timeout = value;
        } else if (name == "orphan") {
          options.orphan_timeout = value;
        } else {
          ADD_FAILURE() << "not understood: " << word;
        }
      }
    }
    heartbeat_ = options.heartbeat_timeout / 10;
    request.hosts = hosts_to_ask(request.hosts, request.processes);
    if (!slots_are_known(request.hosts)) {
      job_ = std::make_unique<Job>(options, request);
      return;
    }
    const auto plan = plan_static(request.hosts, request.processes, request.oversubscribe);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    job_ = std::make_unique<Job>(options, plan->members);
  }

  std::optional<Event> more_events(const std::string& name,
                                   std::istringstream& words) const override {
    if (name != "addresses") return std::nullopt;
    return addresses(words);
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
};

TEST(ExitText, SaysWhatTheAccountOfTheControlGroupSays) {
  event::Exited exited{.host = 0, .incarnation = 1, .signal_number = 9};
  EXPECT_EQ(exit_text(exited), "was killed by SIGKILL (signal 9)");
  exited.out_of_memory = true;
  EXPECT_EQ(exit_text(exited), "was killed by SIGKILL (signal 9): out of memory");
  exited.memory_limit = std::uint64_t{1536} << 20;
  EXPECT_EQ(
      exit_text(exited),
      "was killed by SIGKILL (signal 9): out of memory (the memory limit of its control group "
      "is 1.5 GiB)");
}

class JobGolden : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(JobGolden, answers_as_written) { expect_as_written<Script>(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Scripts, JobGolden, testing::ValuesIn(golden_scripts("golden")),
                         [](const auto& script) { return script.param.stem().string(); });

}  // namespace
}  // namespace hvd::driver
