// Golden scripts of elastic jobs, in tests/driver/job/elastic_golden/ (see golden_script.h).
//
//     job min=1 max=8 np=4 spares=1 policy=host restarts=3 resets=5 planned=5
//                                and, in milliseconds: grace= start= elastic= leave= heartbeat=
//                                orphan= shortest= longest=; list (the hosts do not change)
//
// Further events: found HOST:SLOTS... (not known: ?; a host of this machine: HOST:SLOTS:local);
// no-discovery TEXT; address HOST [ADDRESS]; leaves HOST; warm, leave WORKER; committed WORKER
// GENERATION.
//
// Many at once: "up HOST..." they become ready and have an address; "begins WORKER..." they are
// launched and initialised, and warm if they have yet to join.
#include <map>

#include "driver/job/elastic_job.h"
#include "tests/driver/job/golden_script.h"

namespace hvd::driver {
namespace {

class ElasticScript : public GoldenScript<ElasticJob, ElasticState> {
 private:
  void begin(const std::string& text) override {
    ElasticOptions options;
    options.job.job_id = "golden";
    for (const auto& word : split(text, ' ')) {
      const auto equals = word.find('=');
      const std::string name = word.substr(0, equals);
      const std::string said = word.substr(equals + 1);
      const int value = std::atoi(said.c_str());
      const std::map<std::string, int*> numbers{{"min", &options.limits.least},
                                                {"max", &options.limits.most},
                                                {"np", &options.processes},
                                                {"spares", &options.limits.spares},
                                                {"restarts", &options.budget.restarts},
                                                {"resets", &options.reset_limit},
                                                {"planned", &options.planned_reset_limit}};
      const std::map<std::string, milliseconds*> times{
          {"grace", &options.job.grace},           {"start", &options.job.start_timeout},
          {"init", &options.job.init_timeout},     {"elastic", &options.elastic_timeout},
          {"leave", &options.leave_grace},         {"heartbeat", &options.job.heartbeat_timeout},
          {"orphan", &options.job.orphan_timeout}, {"shortest", &options.budget.shortest},
          {"longest", &options.budget.longest}};
      if (const auto number = numbers.find(name); number != numbers.end()) {
        *number->second = value;
      } else if (const auto time = times.find(name); time != times.end()) {
        *time->second = milliseconds(value);
      } else if (name == "list") {
        options.hosts_are_fixed = true;
        options.plan_list = true;
      } else if (name == "policy" && said == "host") {
        options.budget.policy = FailurePolicy::host;
      } else {
        ADD_FAILURE() << "not understood: " << word;
      }
    }
    heartbeat_ = options.job.heartbeat_timeout / 10;
    job_ = std::make_unique<ElasticJob>(options);
  }

  std::string many(const std::string& name, std::istringstream& words) override {
    std::string answer;
    for (std::string word; words >> word;) {
      std::istringstream one(word);
      if (name == "up") {
        const HostIndex index = host(word);
        answer += actions(event::AgentReady{index, {}}, "");
        answer += actions(event::AddressFound{index, cat("10.0.0.", index + 1)}, "");
        continue;
      }
      const auto [where, incarnation] = worker(one);
      const int pid = 100 + static_cast<int>(incarnation);
      const bool joins = job_->workers()[job_->index_of(incarnation)].standing == Standing::coming;
      answer += actions(event::Launched{where, incarnation, pid}, "");
      answer += actions(event::Initialised{where, incarnation}, "");
      if (joins) answer += actions(event::WorkerReady{where, incarnation}, "");
    }
    return answer;
  }

  bool is_many(const std::string& name) const override { return name == "up" || name == "begins"; }

  static event::HostsFound found(std::istringstream& words) {
    event::HostsFound found;
    for (std::string word; words >> word;) {
      const auto parts = split(word, ':');
      found.hosts.push_back({{parts[0], std::atoi(parts[1].c_str())}, parts.size() > 2});
    }
    return found;
  }

  std::optional<Event> more_events(const std::string& name,
                                   std::istringstream& words) const override {
    if (name == "found") return found(words);
    if (name == "no-discovery") return event::DiscoveryFailed{rest(words)};
    if (name == "leaves") return event::HostLeaves{host(words)};
    if (name == "address") {
      const HostIndex where = host(words);
      const std::string address = rest(words);
      return event::AddressFound{where, address.empty() ? cat("10.0.0.", where + 1) : address};
    }
    if (name != "warm" && name != "leave" && name != "left" && name != "committed") {
      return std::nullopt;
    }
    const auto [where, incarnation] = worker(words);
    if (name == "warm") return event::WorkerReady{where, incarnation};
    if (name == "leave") return event::LeaveRequested{where, incarnation};
    if (name == "left") return event::WorkerLeft{where, incarnation, rest(words)};
    return event::Committed{where, incarnation, static_cast<std::uint64_t>(number(words))};
  }
};

class ElasticGolden : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(ElasticGolden, answers_as_written) { expect_as_written<ElasticScript>(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Scripts, ElasticGolden,
                         testing::ValuesIn(golden_scripts("elastic_golden")),
                         [](const auto& script) { return script.param.stem().string(); });

}  // namespace
}  // namespace hvd::driver
