// Injects faults into a job on pretend hosts for a given time, and then checks its history: no
// committed step was lost, each sample was used once, all ranks hold the same weights, and no
// process or file is left. Needs root.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/text.h"
#include "bench/soak/agreement.h"
#include "bench/soak/fault_injector.h"

namespace hvd::soak {
namespace {

constexpr const char* kUsage =
    "hvd_soak [--program train|steps] [--seconds 60] [--every 2:5] [--seed N] [--hosts 4]\n"
    "         [--slots 2] [--bar SHARE] [--diary FILE] [--only FAULT,FAULT,...] [--stop 40]\n"
    "         [--agents ssh|join]\n"
    "         train: [--hidden 512] [--batch 64] [--shards N]\n"
    "         steps: [--step 10000] [--state 1000000] [--mode copy|mark]\n"
    "Runs a job of examples/train, or of the tests' elastic_steps, on pretend hosts for so many\n"
    "seconds, and disturbs it every 2 to 5 seconds (--every): kills, failures, frozen workers,\n"
    "cuts, crashes, hosts that come and go, notices of preemption, the whole job stopped for a\n"
    "while (--stop, seconds). The seed says what happens when.\n"
    "--only FAULT,...: only these: kill, exit, freeze, cut, crash, add, remove, preempt,\n"
    "preempt-host, kill-driver (another one comes), kill-all (all workers at once; agents keep\n"
    "the state, unless --mode is mark), replace-all (all hosts at once), break-slot\n"
    "(for good), exit-0, descriptors (a worker that can open nothing more), stop, full-disk,\n"
    "hung-disk, no-directory (of all that observes the job), suspend-slow-disk.\n"
    "--agents join: hvdrun logs in nowhere; agents join, and come again when they have ended.\n"
    "--shards: each step ends with the weights of a job of one worker that nothing disturbs.\n"
    "Prints the share of time outside recovery; less than --bar is a failure.\n"
    "--diary FILE: what was done when, and what hvdrun said.\n";

constexpr int kSkipped = 77;

struct Options {
  double seconds = 60;
  double least_pause = 2;
  double most_pause = 5;
  double bar = 0;
  std::uint64_t seed = 1;
  int hosts = 4;
  int slots = 2;
  long step_us = 10'000;
  long state = 1'000'000;
  bool mark = false;  // CommitMode
  double stop = 40;   // seconds
  bool joining = false;
  std::set<std::string> only;
  std::string diary;
  long hidden = 512;  // a state of 2.8 MB
  long batch = 64;
  long shards = 0;
  test::StepsProgram program = test::StepsProgram::train;
};

template <typename Number>
Number number_of(const std::string& flag, const std::string& text, Number least) {
  const auto value = parse_number<Number>(text);
  if (!value || *value < least) {
    throw std::runtime_error(cat(flag, " ", text, ": must be a number, at least ", least));
  }
  return *value;
}

std::set<std::string> faults_of(const std::string& list) {
  const auto names = FaultInjector::names();
  std::set<std::string> only;
  for (const auto& name : split(list, ',')) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      throw std::runtime_error(
          cat("--only ", name, ": there is no such fault; there are ", join(names, ", ")));
    }
    only.insert(name);
  }
  return only;
}

// A flag that the program lacks would be ignored silently.
void check_program(const std::string& flag, test::StepsProgram program) {
  static const std::map<std::string, test::StepsProgram> kOnly{
      {"--hidden", test::StepsProgram::train},
      {"--batch", test::StepsProgram::train},
      {"--shards", test::StepsProgram::train},
      {"--step", test::StepsProgram::elastic_steps},
      {"--state", test::StepsProgram::elastic_steps},
      {"--mode", test::StepsProgram::elastic_steps}};
  const auto found = kOnly.find(flag);
  if (found != kOnly.end() && found->second != program) {
    throw std::runtime_error(cat(flag, " is not for --program ",
                                 program == test::StepsProgram::train ? "train" : "steps"));
  }
}

Options parse(const std::vector<std::string>& words) {
  Options options;
  for (std::size_t at = 0; at < words.size(); at += 2) {
    const std::string& flag = words[at];
    if (at + 1 == words.size()) throw std::runtime_error(flag + " is unknown, or needs a value");
    const std::string& value = words[at + 1];
    if (flag == "--seconds") {
      options.seconds = number_of(flag, value, 1.0);
    } else if (flag == "--every") {
      const auto ends = split(value, ':');
      options.least_pause = number_of(flag, ends.front(), 0.1);
      options.most_pause = number_of(flag, ends.back(), options.least_pause);
    } else if (flag == "--seed") {
      options.seed = number_of<std::uint64_t>(flag, value, 0);
    } else if (flag == "--hosts") {
      options.hosts = number_of(flag, value, 3);  // two may be away at a time
    } else if (flag == "--slots") {
      options.slots = number_of(flag, value, 1);
    } else if (flag == "--step") {
      options.step_us = number_of(flag, value, 0L);
    } else if (flag == "--state") {
      options.state = number_of(flag, value, 1L);
    } else if (flag == "--mode") {
      if (value != "copy" && value != "mark") throw std::runtime_error("--mode is copy or mark");
      options.mark = value == "mark";
    } else if (flag == "--program") {
      if (value != "train" && value != "steps") {
        throw std::runtime_error("--program is train or steps");
      }
      options.program =
          value == "train" ? test::StepsProgram::train : test::StepsProgram::elastic_steps;
    } else if (flag == "--hidden") {
      options.hidden = number_of(flag, value, 1L);
    } else if (flag == "--batch") {
      options.batch = number_of(flag, value, 1L);
    } else if (flag == "--shards") {
      options.shards = number_of(flag, value, 1L);
    } else if (flag == "--only") {
      options.only = faults_of(value);
    } else if (flag == "--stop") {
      options.stop = number_of(flag, value, 0.1);
    } else if (flag == "--agents") {
      if (value != "ssh" && value != "join") throw std::runtime_error("--agents is ssh or join");
      options.joining = value == "join";
    } else if (flag == "--diary") {
      options.diary = value;
    } else if (flag == "--bar") {
      options.bar = number_of(flag, value, 0.0);
    } else {
      throw std::runtime_error(flag + " is unknown; --help names all");
    }
  }

  for (std::size_t at = 0; at < words.size(); at += 2) check_program(words[at], options.program);
  if (options.program == test::StepsProgram::train &&
      options.batch < options.hosts * options.slots) {
    throw std::runtime_error(cat("--batch ", options.batch, ": ", options.hosts * options.slots,
                                 " workers need at least one sample each"));
  }
  return options;
}

struct Pace {
  double share = 0;  // of the time that was not lost to changes of the world
  double step_ms = 0;
  double longest_ms = 0;        // in which nothing was committed
  std::int64_t longest_us = 0;  // when that began, by the monotonic clock
};

std::int64_t microseconds(TimePoint time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count();
}

// The cost of a change is the time from the last committed step of one world to the first of the
// next, less one step. The times in which the job was suspended are left out.
Pace pace_of(const test::StepLogs& step_logs, const std::vector<TimePoint>& suspensions) {
  struct Step {
    std::int64_t us = 0;
    std::int64_t world = 0;
  };
  std::map<std::int64_t, Step> steps;
  for (const auto& step_log : step_logs.step_logs()) {
    for (const auto& commit : step_log.commits) {
      const auto [found, fresh] = steps.emplace(commit.step, Step{commit.us, commit.world});
      if (!fresh) found->second.us = std::min(found->second.us, commit.us);
    }
  }

  std::vector<std::int64_t> within;
  std::vector<std::int64_t> between;
  std::int64_t suspended = 0;
  Pace pace;
  for (auto at = steps.begin(); at != steps.end() && std::next(at) != steps.end(); ++at) {
    const auto& next = std::next(at)->second;
    const auto gap = next.us - at->second.us;
    const auto begin = at->second.us;
    if (std::any_of(suspensions.begin(), suspensions.end(), [&](TimePoint end) {
          return begin < microseconds(end) && microseconds(end) < next.us;
        })) {
      suspended += gap;
      continue;
    }
    (next.world == at->second.world ? within : between).push_back(gap);
    if (next.world != at->second.world && static_cast<double>(gap) / 1000 > pace.longest_ms) {
      pace.longest_ms = static_cast<double>(gap) / 1000;
      pace.longest_us = at->second.us;
    }
  }

  if (within.empty()) return pace;
  std::sort(within.begin(), within.end());
  const auto step = within[within.size() / 2];
  std::int64_t lost = 0;
  for (const auto gap : between) lost += std::max<std::int64_t>(0, gap - step);
  const auto total = steps.rbegin()->second.us - steps.begin()->second.us - suspended;
  pace.share = 1 - static_cast<double>(lost) / static_cast<double>(total);
  pace.step_ms = static_cast<double>(step) / 1000;
  return pace;
}

// Files where a job could leave some.
std::set<std::string> files_of(test::HostBed& bed) {
  std::set<std::string> found;
  for (int number = 0; number <= bed.size(); ++number) {
    test::Host& host = number == 0 ? bed.head() : bed.host(number);
    if (!host.is_up()) continue;
    const auto listed = host.shell("find /tmp /dev/shm /run -mindepth 1 -not -type d 2>/dev/null");
    for (const auto& line : split(listed.out, '\n')) {
      // The head sees this machine's own /run and /tmp, where others come and go.
      const bool shared = number == 0 && !line.starts_with("/dev/shm");
      if (!line.empty() && !shared) found.insert(cat(host.name(), ":", line));
    }
  }
  return found;
}

// Agents and workers that still run, or are there as the dead.
std::string processes_left(test::HostBed& bed, const std::string& program) {
  std::string left;
  for (int number = 0; number <= bed.size(); ++number) {
    const test::Host& host = number == 0 ? bed.head() : bed.host(number);
    for (const auto& seen : host.processes()) {
      const bool ours = seen.command_line.starts_with("./" + program) ||
                        seen.command_line.find("hvd-agent") != std::string::npos;
      if (ours) left += cat("\n  ", host.name(), " ", seen.pid, " ", seen.command_line);
    }
  }
  return left;
}

std::vector<std::string> program_flags(const Options& options) {
  if (options.program == test::StepsProgram::train) {
    std::vector<std::string> flags{"--hidden",         cat(options.hidden), "--batch",
                                   cat(options.batch), "--log-every",       "100"};
    if (options.shards > 0) {
      flags.insert(flags.end(), {"--shards", cat(options.shards), "--deterministic"});
    }
    return flags;
  }
  std::vector<std::string> flags{"--state", cat(options.state), "--step", cat(options.step_us)};
  if (options.mark) flags.emplace_back("--mark");
  return flags;
}

// With shards: the digests of all steps, of a job of one worker without faults.
std::map<std::int64_t, std::string> calm_weights(const Options& options, test::HostBed& bed,
                                                 std::int64_t steps, std::string& errors) {
  std::vector<std::string> words{test::binary("hvdrun"), "-np", "1", "./train"};
  words.insert(words.end(), {"--text", "text", "--context", "12", "--steps", cat(steps), "--ledger",
                             "calm_logs"});
  const auto flags = program_flags(options);
  words.insert(words.end(), flags.begin(), flags.end());
  const auto end = bed.head().start(words)->wait(std::chrono::hours(1));
  if (end.code != 0) errors += cat("the job without faults ended with ", end.code, "\n", end.err);
  test::StepLogs step_logs({bed.head().files() / "root/calm_logs"});
  step_logs.read();
  return step_logs.weights_of_steps();
}

int judge(const Options& options, test::HostBed& bed, test::StepsJob& job,
          const FaultInjector& maker, const Agreement& agreement,
          const std::set<std::string>& files_before) {
  std::string errors = agreement.errors();
  const auto end = job.process().wait(std::chrono::seconds(120));
  if (end.code != 0) errors += cat("hvdrun ended with ", end.code, "\n");
  errors += maker.errors();
  test::StepLogRules rules = job.rules();
  rules.may_end_with = maker.expected_error();
  if (options.shards > 0) {
    job.step_logs().read();
    rules.weights = calm_weights(options, bed, job.step_logs().newest_step(), errors);
    std::printf("the digests of %zu steps were compared with those of a job without faults\n",
                rules.weights.size());
  }
  errors += job.step_logs().errors(rules);
  const auto left = [&] { return processes_left(bed, test::name_of(options.program)); };
  // A host that a cut has kept from receiving Shutdown ends after --orphan-timeout, 30 s.
  if (!test::eventually([&] { return left().empty(); }, std::chrono::seconds(50))) {
    errors += cat("processes are left:", left(), "\n");
  }
  for (const auto& file : files_of(bed)) {
    if (files_before.count(file) == 0) errors += cat("a file is left: ", file, "\n");
  }
  const Pace pace = pace_of(job.step_logs(), maker.suspensions());
  std::set<std::int64_t> worlds;
  for (const auto& step_log : job.step_logs().step_logs()) {
    for (const auto& world : step_log.worlds) worlds.insert(world.id);
  }
  std::printf("faults: %s\n", maker.account().c_str());
  std::printf("status, metrics, page and events were compared %zu times\n", agreement.looks());
  std::printf("%zu worlds, %zu workers, %lld steps of %.1f ms\n", worlds.size(),
              job.step_logs().step_logs().size(),
              static_cast<long long>(job.step_logs().newest_step()), pace.step_ms);
  const auto longest_at = pace.longest_us - microseconds(maker.begin());
  const std::string said = maker.said_before() + end.err;
  std::printf("share of time outside recovery: %.3f; the longest recovery: %.0f ms, from %lld ms\n",
              pace.share, pace.longest_ms, static_cast<long long>(longest_at / 1000));
  if (!options.diary.empty()) {
    std::ofstream(options.diary) << maker.diary() << "hvdrun said:\n" << said;
  }
  if (pace.share < options.bar) errors += cat("the share is below ", options.bar, "\n");
  if (errors.empty()) return 0;
  std::printf("seed %llu: FAILED\n%s", static_cast<unsigned long long>(options.seed),
              errors.c_str());
  std::printf("hvdrun said:\n%s\n%s\n", said.c_str(), maker.diary().c_str());
  return 1;
}

int main_of(const std::vector<std::string>& words) {
  if (!words.empty() && (words.front() == "--help" || words.front() == "-h")) {
    std::cout << kUsage;
    return 0;
  }
  const Options options = parse(words);
  if (const auto reason = test::HostBed::why_impossible()) {
    std::cout << "skipped: " << *reason << "\n";
    return kSkipped;
  }
  test::HostBed bed({.hosts = options.hosts});
  const auto files_before = files_of(bed);
  test::StepsJobOptions job_options{
      .program = options.program,
      .hosts = FaultInjector::answer(options.hosts, options.slots),
      .discovery = !options.joining,
      .joining = options.joining,
      .breakable = true,
      .observed = true,
      .flags = {"--min-np", "1", "--heartbeat-timeout", "0.3", "--restarts", "3",
                "--blacklist-cooldown-range", "0.1", "0.5", "--status-page", "--state",
                "/root/state"},
      .program_flags = program_flags(options)};
  if (!options.mark) job_options.flags.emplace_back("--keep-state-in-agents");
  test::StepsJob job(bed, job_options);
  Agreement agreement;
  FaultInjector maker(bed, job, agreement,
                      {options.hosts, options.slots, options.seed, options.least_pause,
                       options.most_pause, options.stop, !options.mark, options.only});
  if (job.step_logs().wait_for_world(options.hosts * options.slots) == 0) {
    std::printf("the first world never was whole:\n%s\n", job.process().err().c_str());
    return 1;
  }
  agreement.follow(job.events_file(), job.process().pid());
  maker.run(options.seconds);
  maker.make_whole();
  agreement.stop();
  if (job.step_logs().wait_for_steps_more(10)) job.say_enough();
  return judge(options, bed, job, maker, agreement, files_before);
}

}  // namespace
}  // namespace hvd::soak

int main(int argc, char** argv) {
  try {
    return hvd::soak::main_of({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << "hvd_soak: " << error.what() << "\n";
    return 1;
  }
}
