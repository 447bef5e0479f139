// Somebody on the ways between driver, agents, rendezvous and workers, who loses, delays, repeats,
// alters and cuts what passes there, by a schedule that depends on a seed alone. The job ends well,
// with the same weights as without that, or says what has failed, and no step was lost or done
// twice. HVD_CHAOS_SEEDS=A..B runs the schedules of these seeds.
#include <array>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <optional>
#include <random>
#include <regex>
#include <set>

#include "base/text.h"
#include "tests/e2e/step_logs.h"
#include "tests/many_hosts/many_hosts_test.h"
#include "tests/many_hosts/relay.h"

namespace hvd::test {
namespace {

constexpr std::chrono::seconds kDeadline{120};  // a job without chaos takes two seconds

struct Schedule {
  bool joining = false;        // the agents join; else hvdrun starts them by SSH
  std::map<int, Words> rules;  // of the relays, by the number of their host; 0 is the head
};

// A number of 1 to 2^bits, with small ones as often as large ones.
std::uint64_t any_size(std::mt19937_64& random, unsigned bits) {
  const std::uint64_t scale = std::uint64_t{1} << random() % bits;
  return scale + random() % scale;
}

std::string any_action(std::mt19937_64& random) {
  constexpr std::array<const char*, 9> kActions{
      "alter", "drop", "duplicate", "reorder", "insert", "delay", "truncate", "cut", "silence"};
  const std::string action = kActions[random() % kActions.size()];
  return cat(action, ":", action == "delay" ? any_size(random, 11) : any_size(random, 12));
}

Schedule schedule_of(std::uint64_t seed, const std::string& head, const std::string& rank_0) {
  std::mt19937_64 random(seed);
  Schedule schedule{.joining = random() % 2 == 0};
  for (auto left = 1 + random() % 3; left > 0; --left) {
    int number = 1 + static_cast<int>(random() % 2);
    std::string target;
    unsigned bits = 0;
    switch (random() % 3) {
      case 0:  // agents
        target = schedule.joining ? cat(head, "/4000-4000") : "any/22-22";
        if (!schedule.joining) number = 0;
        bits = 15;
        break;
      case 1:  // the rendezvous
        target = cat(head, "/40000-40999");
        bits = 12;
        break;
      default:  // control and data connections of ranks
        target = cat(rank_0, "/40000-40999");
        number = 2;
        bits = 18;
    }
    const auto connection = random() % 5;
    const char* const direction = random() % 2 == 0 ? "up" : "down";
    const auto at = any_size(random, bits);
    schedule.rules[number].push_back(
        cat(target, ":", connection, ":", direction, ":", at, ":", any_action(random)));
  }
  return schedule;
}

std::string text_of(const Schedule& schedule) {
  std::string text = schedule.joining ? "agents join" : "agents by SSH";
  for (const auto& [number, rules] : schedule.rules) {
    text += cat("; ", number == 0 ? "head" : cat("h", number), ": ", join(rules, " "));
  }
  return text;
}

// "A..B"; 4 to 8 by default.
std::pair<std::uint64_t, std::uint64_t> wanted_seeds() {
  const char* const wanted = std::getenv("HVD_CHAOS_SEEDS");
  if (wanted == nullptr) return {4, 8};
  const auto bounds = split(wanted, '.');
  const auto first = parse_number<std::uint64_t>(bounds.front());
  const auto last = parse_number<std::uint64_t>(bounds.back());
  if (bounds.size() != 3 || !first || !last) {
    ADD_FAILURE() << "HVD_CHAOS_SEEDS=" << wanted << ": expected A..B";
    return {1, 0};
  }
  return {*first, *last};
}

class NightlyChaos : public ManyHostsTest {
 protected:
  void SetUp() override {
    ManyHostsTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    make_bed({.hosts = 2, .ipv6 = false});
    place({"elastic_steps", "hvdrun", "hvd-agent"});
    for (int number = 0; number <= 2; ++number) {
      ASSERT_EQ(at(number).shell("umask 077; printf %064d 7 >token").code, 0);
    }
  }
  Host& at(int number) { return number == 0 ? bed().head() : host(number); }

  Words command_of(const Schedule& schedule) {
    Words words{"--events",
                "none",
                "--port-range",
                "40000-40999",
                "-np",
                "3",
                "--min-np",
                "1",
                "--heartbeat-timeout",
                "1",
                "--blacklist-cooldown-range",
                "0.1",
                "0.5",
                "--elastic-timeout",
                "60",
                "--collective-timeout",
                "3",
                "--start-timeout",
                "5",
                "--orphan-timeout",
                "5",
                "--env",
                "HVD_START_TIMEOUT=5"};
    if (schedule.joining) {
      words.insert(words.end(), {"--join-bind", cat(bed().head().ipv4(), ":4000"), "--token-file",
                                 "/root/token"});
    } else {
      words.insert(words.end(), {"-H", "h1:1,h2:2"});
    }
    words.insert(words.end(), {"./elastic_steps", "--log", "step_logs", "--steps", "100", "--step",
                               "2000", "--state", "200000", "--verify"});
    return words;
  }

  // An agent of each host, which comes again when it has ended, until the job is over.
  std::vector<std::unique_ptr<Process>> start_agents() {
    std::vector<std::unique_ptr<Process>> agents;
    for (int number = 1; number <= 2; ++number) {
      agents.push_back(host(number).start(
          {"sh", "-c",
           cat("while [ ! -e over ]; do ./hvdrun agent --join tls://", bed().head().ipv4(),
               ":4000 --token-file token --host ", host(number).name(), " --slots ", number,
               " --join-timeout 10; sleep 0.1; done")}));
    }
    return agents;
  }

  // What a job has no business to leave: files, and ports that something listens at.
  std::string remains() {
    std::string text;
    for (int number = 1; number <= 2; ++number) {
      text += host(number).shell("find /tmp /dev/shm -mindepth 1; ss -Hltn | awk '{print $4}'").out;
    }
    return text;
  }

  std::string step_logs_summary() const { return step_logs_->summary(); }
  static int failed_parts() {
    return testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count();
  }

  // Without a relay where the schedule has no rule.
  ExitStatus run_schedule(const Schedule& schedule) {
    for (int number = 1; number <= 2; ++number) host(number).shell("rm -rf over step_logs");
    std::map<int, Relay> relays;
    for (const auto& [number, rules] : schedule.rules) {
      relays.try_emplace(number, at(number), number == 0 ? "22" : "4000:40999", rules);
    }
    Process& job = start(command_of(schedule));
    std::vector<std::unique_ptr<Process>> agents;
    if (schedule.joining) agents = start_agents();

    // One that hangs says what its workers do.
    job.wait_for_output("what no worker says", kDeadline);
    if (std::filesystem::exists(cat("/proc/", job.pid()))) job.signal(SIGUSR1);
    ExitStatus end = job.wait(std::chrono::seconds(10));
    if (end.code < 0) job.signal(SIGKILL);
    for (int number = 1; number <= 2; ++number) host(number).shell("touch over");
    for (const auto& agent : agents) agent->wait();
    for (auto& [number, relay] : relays) {
      const std::string acted = relay.acted();
      if (!acted.empty()) ++schedules_that_acted_;
      end.err += cat("acted at ", number, ":\n", acted);
    }
    return end;
  }

  // The weights with which workers have ended well; empty: none has.
  std::set<std::string> results() {
    step_logs_.emplace(std::vector<std::filesystem::path>{host(1).files() / "root/step_logs",
                                                          host(2).files() / "root/step_logs"});
    std::set<std::string> found;
    for (const StepLog& log : step_logs_->read()) {
      if (log.done != 0) found.insert(cat(log.done_step, " ", log.weights));
    }
    return found;
  }

  int schedules_that_acted_ = 0;

  void expect_right(const ExitStatus& end, const std::set<std::string>& right) {
    EXPECT_EQ(end.signal, 0);
    const auto found = results();
    StepLogRules rules{.may_end_in_error = true};
    if (end.code == 0) {
      EXPECT_EQ(found, right);
    } else {
      rules.ends_well = false;
      static const std::regex kSubject("h[12]\\b|10\\.77\\.0\\.|[Rr]ank [0-9]|rendezvous");
      EXPECT_TRUE(std::regex_search(end.err, kSubject)) << "the error names nobody";
    }
    EXPECT_EQ(step_logs_->errors(rules), "");
  }

 private:
  std::optional<StepLogs> step_logs_;
};

TEST_F(NightlyChaos, EndsNoJobInSilenceOrWithAWrongResult) {
  ASSERT_EQ(run_schedule({}).code, 0);
  const auto right = results();
  ASSERT_EQ(right.size(), 1U);
  const std::string before = remains();
  const auto [first, last] = wanted_seeds();
  std::map<int, int> ends;
  for (auto seed = first; seed <= last && !HasFatalFailure(); ++seed) {
    const Schedule schedule = schedule_of(seed, bed().head().ipv4(), host(1).ipv4());
    SCOPED_TRACE(cat("seed ", seed, ": ", text_of(schedule)));
    const auto failures = failed_parts();
    const auto begun = std::chrono::steady_clock::now();
    const ExitStatus end = run_schedule(schedule);
    expect_right(end, right);
    EXPECT_TRUE(nobody_left()) << names_of_strangers();
    EXPECT_EQ(remains(), before);
    ++ends[end.code];
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
    std::cout << "seed " << seed << ": exit code " << end.code << " after " << took.count()
              << " s\n"
              << std::flush;
    if (failed_parts() != failures) std::cout << step_logs_summary() << end.out << end.err;
  }
  EXPECT_GT(schedules_that_acted_, 0) << "nobody was disturbed";
  for (const auto& [code, count] : ends) std::cout << count << " with exit code " << code << "\n";
}

}  // namespace
}  // namespace hvd::test
