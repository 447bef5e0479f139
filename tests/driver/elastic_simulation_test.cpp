// The elastic job against a simulated cluster over virtual time (simulated_elastic_job.h). Each run
// has a seed, which is printed when something does not hold. HVD_SIMULATION_SEED=n runs that one
// alone; HVD_SIMULATION_RUNS=n changes how many there are.
#include <cstdlib>
#include <gtest/gtest.h>

#include "tests/driver/simulated_elastic_job.h"

namespace hvd::driver {
namespace {

long from_environment(const char* name, long otherwise) {
  const char* const text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  return text == nullptr ? otherwise : std::atol(text);
}

void simulate(const Climate& climate, long runs, int max_hosts, int max_slots) {
  const long only = from_environment("HVD_SIMULATION_SEED", -1);
  runs = from_environment("HVD_SIMULATION_RUNS", runs);
  int generations = 0;
  for (long seed = only < 0 ? 0 : only; seed < (only < 0 ? runs : only + 1); ++seed) {
    SimulatedElasticJob job(static_cast<std::uint64_t>(seed), climate, max_hosts, max_slots);
    const std::string wrong = job.run();
    ASSERT_EQ(wrong, "") << "HVD_SIMULATION_SEED=" << seed << "\n" << job.story();
    generations += job.generations();
  }
  EXPECT_GT(generations, 0);
}

TEST(ElasticSimulation, succeeds_when_nothing_goes_wrong) { simulate({}, 300, 5, 4); }

TEST(ElasticSimulation, follows_discovery_wherever_it_goes) {
  Climate climate;
  climate.discovery_changes = 1'500;
  climate.slow_start = 20;
  climate.stays = 20;
  climate.may_fail = true;  // with a least that discovery does not give
  simulate(climate, 500, 5, 4);
}

TEST(ElasticSimulation, replaces_whoever_is_lost) {
  Climate climate;
  climate.worker_killed = 3'000;
  climate.worker_fails = 10'000;
  climate.launch_fails = 30;
  climate.slow_start = 20;
  climate.may_fail = true;  // if all are lost
  simulate(climate, 500, 5, 4);
}

TEST(ElasticSimulation, goes_on_without_hosts_that_are_lost) {
  Climate climate;
  climate.agent_dies = 8'000;
  climate.agent_lies = 20'000;
  climate.host_cut_off = 5'000;
  climate.driver_stalls = 20'000;
  climate.host_fails = 10;
  climate.stays = 10;
  climate.may_fail = true;
  simulate(climate, 500, 5, 3);
}

TEST(ElasticSimulation, lets_workers_and_hosts_leave) {
  Climate climate;
  climate.worker_leaves = 3'000;
  climate.host_leaves = 8'000;
  climate.stays = 10;
  climate.may_fail = true;
  simulate(climate, 500, 5, 3);
}

TEST(ElasticSimulation, ends_well_though_some_are_killed_at_the_end) {
  Climate climate;
  climate.killed_at_the_end = 1;
  simulate(climate, 500, 5, 3);
}

TEST(ElasticSimulation, holds_whatever_happens_at_once) {
  Climate climate;
  climate.worker_killed = 6'000;
  climate.worker_fails = 15'000;
  climate.worker_leaves = 15'000;
  climate.host_leaves = 20'000;
  climate.agent_dies = 20'000;
  climate.agent_lies = 40'000;
  climate.host_cut_off = 10'000;
  climate.discovery_changes = 5'000;
  climate.driver_stalls = 20'000;
  climate.host_fails = 20;
  climate.launch_fails = 50;
  climate.launch_hangs = 100;
  climate.slow_start = 20;
  climate.stays = 20;
  climate.killed_at_the_end = 5;
  climate.may_fail = true;
  simulate(climate, 1'000, 6, 4);
}

}  // namespace
}  // namespace hvd::driver
