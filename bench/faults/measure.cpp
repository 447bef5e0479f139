// One row: a job, and the fault again and again.
#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <stdexcept>
#include <thread>

#include "base/text.h"
#include "bench/faults/rows.h"

namespace hvd::bench {
namespace {

using test::StepLogs;

constexpr const char* kNeverSaid = "\n\n\n";
constexpr int kStepsBetween = 10;  // of an undisturbed world, before each fault

double milliseconds(std::int64_t us) { return static_cast<double>(us) / 1000; }

[[noreturn]] void give_up(test::StepsJob& job, const std::string& what) {
  const std::string& said = job.process().err();
  throw std::runtime_error(
      cat(what, "; hvdrun said last: ", said.substr(said.size() > 2000 ? said.size() - 2000 : 0),
          "\n", job.step_logs().summary()));
}

// The first world after `before` in which all surviving workers have committed.
struct Next {
  std::int64_t world = 0;
  std::int64_t entered = 0;    // by the last of the survivors
  std::int64_t committed = 0;  // likewise
  std::int64_t stood = 0;      // the longest time that a survivor committed nothing
};

std::optional<Next> next_after(const StepLogs& step_logs, std::int64_t before, int size) {
  std::map<std::int64_t, Next> found;
  std::map<std::int64_t, bool> whole;
  for (const auto& step_log : step_logs.step_logs()) {
    const bool survivor = std::any_of(step_log.worlds.begin(), step_log.worlds.end(),
                                      [&](const auto& world) { return world.id == before; });
    std::int64_t last = 0;
    for (const auto& world : step_log.worlds) {
      const auto first = std::find_if(step_log.commits.begin(), step_log.commits.end(),
                                      [&](const auto& commit) { return commit.world == world.id; });
      if (world.id > before && (size == 0 || world.size == size)) {
        const bool counts = survivor || size != 0;
        auto [at, fresh] = whole.emplace(world.id, true);
        if (first == step_log.commits.end()) {
          at->second = at->second && !counts;
        } else if (counts) {
          Next& next = found[world.id];
          next.world = world.id;
          next.entered = std::max(next.entered, world.us);
          next.committed = std::max(next.committed, first->us);
          if (last != 0) next.stood = std::max(next.stood, first->us - last);
        }
      }
      for (const auto& commit : step_log.commits) {
        if (commit.world == world.id) last = commit.us;
      }
    }
  }
  for (const auto& [id, next] : found) {
    if (whole[id]) return next;
  }
  return std::nullopt;
}

double median_step(const StepLogs& step_logs) {
  std::vector<double> steps;
  for (const auto& step_log : step_logs.step_logs()) {
    for (std::size_t at = 1; at < step_log.commits.size(); ++at) {
      const auto& one = step_log.commits[at - 1];
      const auto& other = step_log.commits[at];
      if (one.world == other.world) steps.push_back(milliseconds(other.us - one.us));
    }
  }
  return steps.empty() ? 0 : median(std::move(steps));
}

class Measurement {
 public:
  Measurement(const Row& row, const BenchOptions& options)
      : row_(row), options_(options), bed_({.hosts = std::max(row.hosts, 1)}) {
    if (options.rate.empty()) return;
    for (int host = 1; host <= bed_.size(); ++host) {
      bed_.shape(bed_.host(host), {.rate = options.rate});
    }
  }

  Times run() {
    for (int round = 0; round < options_.rounds; ++round) {
      if (!job_) start();
      Scene scene{bed_, *job_, {}};
      wait_until_whole(scene);
      std::this_thread::sleep_for(row_.pause);
      row_.ends_the_job ? end_job(scene) : disturb(scene);
    }
    if (job_) {
      job_->say_enough();
      if (job_->process().wait().code != 0) give_up(*job_, "the job failed");
      if (const auto errors = job_->step_logs().errors(); !errors.empty()) give_up(*job_, errors);
      times_.step = median_step(job_->step_logs());
    }
    times_.phases = {{"noticed -> all in the next world", entered_},
                     {"in the next world -> first commit", first_commit_},
                     {"survivors committed nothing for", stood_}};
    if (row_.ends_the_job) times_.phases.clear();
    return std::move(times_);
  }

 private:
  void start() {
    job_.emplace(bed_, row_.options);
    world_ = 0;
  }

  void wait_until_whole(Scene& scene) {
    world_ = job_->step_logs().wait_for_world(row_.size, world_);
    if (world_ == 0) give_up(*job_, cat("there is no world of ", row_.size));
    if (!job_->step_logs().wait_for_steps_more(kStepsBetween)) give_up(*job_, "nobody commits");
    // Where in a step the fault comes is left to chance.
    world_ = job_->step_logs().newest_world();
    scene.members = job_->step_logs().members();
    if (scene.members.size() != static_cast<std::size_t>(row_.size)) {
      give_up(*job_, "the world changed by itself");
    }
  }

  void disturb(Scene& scene) {
    // The messages of hvdrun about the last round belong to that round.
    job_->process().wait_for_error(kNeverSaid, std::chrono::milliseconds(5));
    const auto said = job_->process().err().size();
    const auto begin = row_.inject(scene);
    std::int64_t noticed = 0;
    if (!row_.words.empty()) {
      if (!job_->process().wait_for_error(row_.words, test::kGenerous, said)) {
        give_up(*job_, cat("nobody noticed: \"", row_.words, "\""));
      }
      noticed = now_us();
      times_.noticed.push_back(milliseconds(noticed - begin));
    }
    std::optional<Next> next;
    job_->step_logs().wait([&] {
      next = next_after(job_->step_logs(), world_, row_.size_after);
      return next.has_value();
    });
    if (!next) give_up(*job_, "those who were left did not go on");
    times_.recovered.push_back(milliseconds(next->committed - begin));
    entered_.push_back(milliseconds(next->entered - (noticed != 0 ? noticed : begin)));
    first_commit_.push_back(milliseconds(next->committed - next->entered));
    stood_.push_back(milliseconds(next->stood));
    if (row_.undo) row_.undo(scene);
  }

  void end_job(Scene& scene) {
    const auto begin = row_.inject(scene);
    job_->process().wait();
    if (!test::eventually([&] { return !somebody_is_left(); }))
      give_up(*job_, "something of the job is left");
    times_.recovered.push_back(milliseconds(now_us() - begin));
    job_.reset();
  }

  bool somebody_is_left() {
    for (int number = 0; number <= bed_.size(); ++number) {
      const test::Host& host = number == 0 ? bed_.head() : bed_.host(number);
      for (const auto& seen : host.processes()) {
        const bool ours = seen.command_line.find("elastic_steps") != std::string::npos ||
                          seen.command_line.find("hvd-agent") != std::string::npos;
        if (ours && seen.state != 'Z') return true;
      }
    }
    return false;
  }

  const Row& row_;
  const BenchOptions& options_;
  test::HostBed bed_;
  std::optional<test::StepsJob> job_;
  std::int64_t world_ = 0;
  Times times_;
  std::vector<double> entered_;
  std::vector<double> first_commit_;
  std::vector<double> stood_;
};

}  // namespace

Times measure(const Row& row, const BenchOptions& options) {
  return Measurement(row, options).run();
}

}  // namespace hvd::bench
