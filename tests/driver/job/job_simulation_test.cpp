// The job against simulated hosts over virtual time (tests/driver/job/simulated_job.h). Each run
// has a seed, which is printed when something does not hold. HVD_SIMULATION_SEED=n runs that one
// alone; HVD_SIMULATION_RUNS=n changes how many there are.
#include <gtest/gtest.h>

#include "tests/driver/job/simulated_job.h"

namespace hvd::driver {
namespace {

void simulate(const Weather& weather, long runs, int max_hosts, int max_slots) {
  const Seeds seeds(runs);
  for (long seed = seeds.begin; seed < seeds.end; ++seed) {
    SimulatedJob job(static_cast<std::uint64_t>(seed), weather, max_hosts, max_slots);
    const std::string wrong = job.run();
    ASSERT_EQ(wrong, "") << "HVD_SIMULATION_SEED=" << seed << "\n" << job.story();
  }
}

TEST(JobSimulation, succeeds_when_nothing_goes_wrong) { simulate({}, 300, 6, 4); }

TEST(JobSimulation, names_every_host_that_cannot_take_part) {
  Weather weather;
  weather.host_fails = 10;
  weather.host_has_no_turn = 50;
  weather.agent_never_ready = 20;
  weather.agent_dies = 20;
  weather.agent_lies = 50;
  weather.agent_immortal = 10;
  weather.unreachable = 20;
  weather.no_addresses = 20;
  weather.interrupts = 10;
  simulate(weather, 2'000, 10, 2);
}

TEST(JobSimulation, reports_the_first_failure_of_workers_and_launches) {
  Weather weather;
  weather.worker_fails = 10;
  weather.worker_forgets_done = 20;
  weather.some_join = 10;
  weather.launch_fails = 50;
  weather.worker_ignores_stop = 4;
  simulate(weather, 1'500, 6, 4);
}

TEST(JobSimulation, ends_whatever_agents_do) {
  Weather weather;
  weather.host_fails = 50;
  weather.agent_never_ready = 50;
  weather.agent_dies = 10;
  weather.agent_lies = 15;
  weather.agent_deaf = 5;
  weather.agent_stays = 5;
  weather.agent_immortal = 5;
  weather.worker_fails = 30;
  weather.worker_hangs = 30;
  weather.worker_ignores_stop = 3;
  simulate(weather, 2'000, 6, 4);
}

TEST(JobSimulation, ends_when_it_is_interrupted_at_any_time) {
  Weather weather;
  weather.interrupts = 1;
  weather.host_fails = 50;
  weather.agent_never_ready = 50;
  weather.agent_deaf = 10;
  weather.agent_stays = 10;
  weather.worker_fails = 100;
  weather.worker_hangs = 5;
  weather.worker_ignores_stop = 2;
  simulate(weather, 1'500, 6, 4);
}

TEST(JobSimulation, gives_verdicts_on_silence_that_are_neither_hasty_nor_late) {
  Weather weather;
  weather.silence = 6;
  weather.blackout = 4;
  weather.stalls = 4;
  weather.agent_stays = 20;
  weather.worker_hangs = 20;
  weather.worker_fails = 50;
  simulate(weather, 2'000, 6, 2);
}

TEST(NightlyJobSimulation, a_busy_driver_loses_no_healthy_host_and_still_finds_the_silent_ones) {
  Weather weather;
  weather.busy = 1;
  weather.silence = 6;
  weather.blackout = 6;
  weather.stalls = 3;
  weather.worker_hangs = 20;
  simulate(weather, 2'000, 8, 2);
}

TEST(JobSimulation, ends_whatever_happens_at_once) {
  Weather weather;
  weather.host_fails = 100;
  weather.agent_never_ready = 100;
  weather.agent_dies = 30;
  weather.agent_lies = 50;
  weather.agent_deaf = 20;
  weather.agent_stays = 20;
  weather.agent_immortal = 20;
  weather.silence = 15;
  weather.blackout = 10;
  weather.stalls = 5;
  weather.busy = 5;
  weather.launch_fails = 200;
  weather.worker_fails = 50;
  weather.worker_forgets_done = 50;
  weather.worker_hangs = 20;
  weather.worker_ignores_stop = 5;
  weather.interrupts = 5;
  weather.requests = 3;
  simulate(weather, 1'500, 8, 3);
}

TEST(JobSimulation, serves_a_thousand_hosts) {
  Weather weather;
  weather.worker_fails = 20'000;
  weather.agent_dies = 20'000;
  weather.silence = 5'000;
  weather.stalls = 2;
  simulate(weather, 3, 1'000, 4);
}

}  // namespace
}  // namespace hvd::driver
