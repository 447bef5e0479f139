#include "bench/faults/rows.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <stdexcept>
#include <utility>

#include "base/text.h"

namespace hvd::bench {
namespace {

using Words = std::vector<std::string>;

constexpr std::chrono::milliseconds kApart{2600};

std::int64_t signal_rank(Scene& scene, std::size_t rank, int number) {
  const pid_t pid = scene.job.pid_of(*scene.members.at(rank));
  const auto begin = now_us();
  if (pid <= 0 || ::kill(pid, number) != 0) throw std::runtime_error("the worker is gone");
  return begin;
}

// A fault that begins as soon as it is called for.
std::function<std::int64_t(Scene&)> at_once(std::function<void(Scene&)> fault) {
  return [fault = std::move(fault)](Scene& scene) {
    const auto begin = now_us();
    fault(scene);
    return begin;
  };
}

// When the worker of this rank has obeyed.
std::int64_t order_rank(Scene& scene, std::size_t rank, const std::string& action) {
  const std::string worker = scene.members.at(rank)->worker;
  const auto begin = now_us();
  scene.job.order(worker, "step", action);
  std::int64_t obeyed = 0;
  scene.job.step_logs().wait([&] {
    for (const auto& step_log : scene.job.step_logs().step_logs()) {
      if (step_log.worker == worker && step_log.obeyed > begin) obeyed = step_log.obeyed;
    }
    return obeyed != 0;
  });
  if (obeyed == 0) throw std::runtime_error(worker + " did not do as it was told");
  return obeyed;
}

// Losses of workers alone, on this machine and on hosts.
void add_worker_rows(std::vector<Row>& rows, const BenchOptions& options) {
  const Words flags{"-np", "4", "--min-np", "2", "--restarts", "1000"};
  const auto program = [&](long state) {
    return Words{"--state", cat(state), "--step", cat(options.step_us)};
  };
  const test::StepsJobOptions local{
      .hosts = "localhost:4", .flags = flags, .program_flags = program(1'000'000)};
  test::StepsJobOptions much = local;
  much.program_flags = program(options.state);
  const auto kill_one = [](Scene& scene) { return signal_rank(scene, 1, SIGKILL); };
  rows.push_back({.name = "worker killed, 4 on a host, much state",
                  .noticed_by = "agent",
                  .options = much,
                  .inject = kill_one,
                  .words = "was killed by SIGKILL"});
  much.program_flags.push_back("--mark");
  rows.push_back({.name = "worker killed, 4 on a host, much, marked",
                  .noticed_by = "agent",
                  .options = much,
                  .inject = kill_one,
                  .words = "was killed by SIGKILL"});
  much.program_flags.pop_back();
  much.hosts = "h1:2,h2:2,h3:2,h4:2";
  much.flags = {"-np", "8", "--min-np", "2", "--restarts", "1000"};
  rows.push_back({.name = "worker killed, 8 on 4 hosts, much state",
                  .noticed_by = "agent",
                  .hosts = 4,
                  .size = 8,
                  .options = much,
                  .inject = kill_one,
                  .words = "was killed by SIGKILL"});
  rows.push_back({.name = "worker killed, 4 on a host",
                  .noticed_by = "agent",
                  .options = local,
                  .inject = kill_one,
                  .words = "was killed by SIGKILL"});
  rows.push_back({.name = "rank 0 killed, 4 on a host",
                  .noticed_by = "agent",
                  .options = local,
                  .inject = [](Scene& scene) { return signal_rank(scene, 0, SIGKILL); },
                  .words = "was killed by SIGKILL"});
  rows.push_back({.name = "worker exits with 3",
                  .noticed_by = "agent",
                  .options = local,
                  .inject = [](Scene& scene) { return order_rank(scene, 2, "exit 3"); },
                  .words = "exited with code 3",
                  .pause = kApart});
  test::StepsJobOptions watched = local;
  watched.flags.insert(watched.flags.end(), {"--heartbeat-timeout", "0.3"});
  rows.push_back({.name = "worker frozen, heartbeats of 300 ms",
                  .noticed_by = "agent",
                  .options = watched,
                  .inject = [](Scene& scene) { return signal_rank(scene, 2, SIGSTOP); },
                  .words = "no sign of life"});
  watched = local;
  watched.flags.insert(watched.flags.end(), {"--stall-check-warning-time-seconds", "1",
                                             "--stall-check-shutdown-time-seconds", "1"});
  rows.push_back({.name = "worker never calls, shutdown time of 1 s",
                  .noticed_by = "inspector",
                  .options = watched,
                  .inject = [](Scene& scene) { return order_rank(scene, 2, "stall"); },
                  .words = "exited with code 1",
                  .pause = kApart});
  rows.push_back({.name = "two killed at once",
                  .noticed_by = "agent",
                  .options = local,
                  .inject =
                      [](Scene& scene) {
                        const auto begin = signal_rank(scene, 1, SIGKILL);
                        signal_rank(scene, 3, SIGKILL);
                        return begin;
                      },
                  .words = "was killed by SIGKILL"});
  rows.push_back({.name = "one killed, one more while they re-form",
                  .noticed_by = "agent",
                  .options = local,
                  .inject =
                      [](Scene& scene) {
                        scene.job.order("any", "reset", "kill");
                        return signal_rank(scene, 1, SIGKILL);
                      },
                  .words = "was killed by SIGKILL"});
  rows.push_back({.name = "all killed: the job has ended",
                  .noticed_by = "agent",
                  .options = local,
                  .inject = at_once([](Scene& scene) {
                    for (std::size_t rank = 0; rank < 4; ++rank) {
                      signal_rank(scene, rank, SIGKILL);
                    }
                  }),
                  .ends_the_job = true});
}

test::Host& host_of_last(Scene& scene) { return scene.job.host_of(*scene.members.back()); }

void add_host_rows(std::vector<Row>& rows, const BenchOptions& options) {
  const test::StepsJobOptions many{
      .hosts = "h1:2,h2:2,h3:2,h4:2",
      .flags = {"-np", "8", "--min-np", "2", "--restarts", "1000", "--heartbeat-timeout", "0.3",
                "--blacklist-cooldown-range", "0.1", "0.2"},
      .program_flags = {"--state", "1000000", "--step", cat(options.step_us)}};
  const auto crash = [](Scene& scene) {
    test::Host& host = host_of_last(scene);
    const auto begin = now_us();
    scene.bed.crash(host);
    return begin;
  };
  const auto boot = [](Scene& scene) {
    for (int number = 1; number <= scene.bed.size(); ++number) {
      test::Host& host = scene.bed.host(number);
      if (host.is_up()) continue;
      scene.bed.boot(host);
      scene.job.host_is_back(host);
    }
  };
  rows.push_back({.name = "host lost, heartbeats of 300 ms",
                  .noticed_by = "heartbeats",
                  .hosts = 4,
                  .size = 8,
                  .options = many,
                  .inject = crash,
                  .words = "no sign of life",
                  .undo = boot});
  rows.push_back({.name = "host cut off, heartbeats of 300 ms",
                  .noticed_by = "heartbeats",
                  .hosts = 4,
                  .size = 8,
                  .options = many,
                  .inject = at_once([](Scene& scene) { scene.bed.cut_off(host_of_last(scene)); }),
                  .words = "no sign of life",
                  .undo = [](Scene& scene) { scene.bed.heal(); }});
  rows.push_back({.name = "worker told to go (SIGTERM)",
                  .noticed_by = "worker",
                  .hosts = 4,
                  .size = 8,
                  .options = many,
                  .inject = [](Scene& scene) { return signal_rank(scene, 7, SIGTERM); }});
  rows.push_back({.name = "hvdrun killed: nothing is left on any host",
                  .noticed_by = "agents",
                  .hosts = 4,
                  .size = 8,
                  .options = many,
                  .inject = at_once([](Scene& scene) { scene.job.process().signal(SIGKILL); }),
                  .ends_the_job = true});
  rows.push_back({.name = "Ctrl-C: nothing is left on any host",
                  .noticed_by = "driver",
                  .hosts = 4,
                  .size = 8,
                  .options = many,
                  .inject = at_once([](Scene& scene) { scene.job.process().signal(SIGINT); }),
                  .ends_the_job = true});
}

void add_planned_rows(std::vector<Row>& rows, const BenchOptions& options) {
  test::StepsJobOptions discovered{
      .hosts = "h1:2\nh2:2\nh3:2\n",
      .discovery = true,
      .flags = {"--heartbeat-timeout", "3"},
      .program_flags = {"--state", "1000000", "--step", cat(options.step_us)}};
  Row added{.name = "host added: all train",
            .noticed_by = "discovery",
            .hosts = 4,
            .size = 6,
            .options = discovered,
            .inject = at_once([](Scene& scene) { scene.job.discover("h1:2\nh2:2\nh3:2\nh4:2\n"); }),
            .words = {},
            .undo = [](Scene& scene) { scene.job.discover("h1:2\nh2:2\nh3:2\n"); },
            .size_after = 8};
  rows.push_back(added);
  added.name = "host added, much state: all train";
  added.options.program_flags[1] = cat(options.state);
  added.options.program_flags.insert(added.options.program_flags.end(),
                                     {"--frozen", cat(options.frozen)});
  rows.push_back(added);
  // Few workers, so that a state of gigabytes fits.
  added.name = "second host added, much state: both train";
  added.hosts = 2;
  added.size = 1;
  added.options.hosts = "h1:1\n";
  added.inject = at_once([](Scene& scene) { scene.job.discover("h1:1\nh2:1\n"); });
  added.undo = [](Scene& scene) { scene.job.discover("h1:1\n"); };
  added.size_after = 2;
  rows.push_back(std::move(added));
  rows.push_back({.name = "host taken away: the others train on",
                  .noticed_by = "discovery",
                  .hosts = 3,
                  .size = 6,
                  .options = discovered,
                  .inject = at_once([](Scene& scene) { scene.job.discover("h1:2\nh2:2\n"); }),
                  .words = {},
                  .undo = [](Scene& scene) { scene.job.discover("h1:2\nh2:2\nh3:2\n"); },
                  .size_after = 4});
}

Row joined(Row row) {
  row.name += ", joined";
  row.options.joining = true;
  row.options.discovery = false;
  std::replace(row.options.hosts.begin(), row.options.hosts.end(), ',', '\n');
  auto& flags = row.options.flags;
  if (std::find(flags.begin(), flags.end(), "--min-np") == flags.end()) {
    flags.insert(flags.end(), {"--min-np", "1"});
  }
  return row;
}

}  // namespace

std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch())
      .count();
}

std::vector<Row> rows(const BenchOptions& options) {
  std::vector<Row> all;
  add_worker_rows(all, options);
  const std::size_t first_of_hosts = all.size();
  add_host_rows(all, options);
  add_planned_rows(all, options);
  // The same faults on hosts whose agents have joined.
  const std::size_t last = all.size();
  for (std::size_t row = first_of_hosts; row < last; ++row) all.push_back(joined(all[row]));
  return all;
}

}  // namespace hvd::bench
