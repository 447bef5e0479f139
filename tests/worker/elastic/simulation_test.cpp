// Driver and workers in a simulated cluster over virtual time (simulated_cluster.h). Each run has a
// seed, which is printed when something does not hold. HVD_SIMULATION_SEED=n runs that one alone
// and HVD_SIMULATION_RUNS=n changes how many there are, of the test that is selected.
#include <gtest/gtest.h>

#include "tests/worker/elastic/simulated_cluster.h"

namespace hvd {
namespace {

constexpr int kHosts = 3;
constexpr int kSlots = 3;

struct Sum {
  long runs = 0;
  long successes = 0;
  long suspended = 0;
  long generations = 0;
  long commits = 0;
};

// `climate_of` a seed.
template <typename ClimateOf>
Sum simulate(long runs, const ClimateOf& climate_of) {
  const Seeds seeds(runs);
  Sum sum;
  bool is_plain = false;
  for (long number = seeds.begin; number < seeds.end; ++number) {
    const auto seed = static_cast<std::uint64_t>(number);
    const Climate climate = climate_of(seed);
    is_plain = climate.workers.plain;
    SimulatedCluster cluster(seed, climate, kHosts, kSlots);
    const std::string wrong = cluster.run();
    if (!wrong.empty()) {
      SimulatedCluster again(seed, climate, kHosts, kSlots);
      again.tell_story();
      again.run();
      ADD_FAILURE() << again.story() << wrong << "\nHVD_SIMULATION_SEED=" << seed;
      return sum;
    }
    ++sum.runs;
    sum.successes += cluster.succeeded() ? 1 : 0;
    sum.suspended += cluster.suspended() ? 1 : 0;
    sum.generations += cluster.generations();
    sum.commits += cluster.commits();
  }
  const long all = seeds.end - seeds.begin;
  std::printf(
      "%ld runs, %ld of them to the end of the work, %ld suspended, %ld generations, %ld commits\n",
      all, sum.successes, sum.suspended, sum.generations, sum.commits);
  if (all > 1) {
    EXPECT_GT(sum.successes + sum.suspended, all / 3);
    EXPECT_GT(sum.generations, all);
    if (!is_plain) {
      EXPECT_GT(sum.commits, all);
    }
  }
  return sum;
}

Climate everything() {
  Climate climate;
  climate.worker_killed = 500;
  climate.worker_fails = 1'500;
  climate.worker_stopped = 2'000;
  climate.worker_leaves = 1'500;
  climate.worker_leaves_early = 2'000;
  climate.host_leaves = 2'000;
  climate.agent_dies = 2'000;
  climate.agent_lies = 4'000;
  climate.host_cut_off = 1'000;
  climate.discovery_changes = 700;
  climate.everybody_is_replaced = 1'500;
  climate.driver_stalls = 2'000;
  climate.host_drained = 1'000;
  climate.job_scaled = 1'000;
  climate.worker_is_slow = 1'000;
  climate.host_fails = 20;
  climate.launch_fails = 50;
  climate.launch_hangs = 100;
  climate.slow_start = 20;
  climate.agent_stays = 20;
  climate.killed_at_the_end = 5;
  climate.workers.dies_at_message = 200;
  climate.workers.answer_of_mark_is_lost = 20;
  climate.workers.slow_message = 30;
  climate.workers.mutate_is_interrupted = 2;
  climate.workers.stays = 20;
  climate.workers.slow_start = 20;
  climate.may_fail = true;  // if all are lost
  return climate;
}

// All kinds of programs.
void choose_program(WorkerClimate& workers, Dice& dice) {
  workers.copies = !dice.one_in(3);
  workers.commit_every = 1 + dice.below(3);
  // Half of them end while things still go wrong.
  if (dice.one_in(2)) workers.steps = 1 + dice.below(60);
  workers.can_load = dice.one_in(8);
  workers.sizes_differ = dice.one_in(2) ? 0 : 1 + dice.below(4);
  workers.lacks_frozen = dice.below(4);
}

// Of all that may go wrong, each run has some, more or less often.
Climate some_of_everything(std::uint64_t seed) {
  Climate climate = everything();
  Dice dice(~seed);
  for (int* const mean :
       {&climate.worker_killed, &climate.worker_fails, &climate.worker_stopped,
        &climate.worker_leaves, &climate.worker_leaves_early, &climate.host_leaves,
        &climate.agent_dies, &climate.agent_lies, &climate.host_cut_off, &climate.discovery_changes,
        &climate.everybody_is_replaced, &climate.driver_stalls, &climate.host_drained,
        &climate.job_scaled, &climate.worker_is_slow, &climate.workers.dies_at_message,
        &climate.workers.answer_of_mark_is_lost, &climate.workers.slow_message}) {
    *mean = dice.one_in(2) ? 0 : *mean * (1 + dice.below(4));
  }
  choose_program(climate.workers, dice);
  return climate;
}

TEST(ElasticSimulation, succeeds_when_nothing_goes_wrong) {
  const Sum sum = simulate(100, [](std::uint64_t seed) {
    Climate climate;
    Dice dice(~seed);
    choose_program(climate.workers, dice);
    return climate;
  });
  EXPECT_GE(sum.successes, 1);
}

TEST(ElasticSimulation, follows_discovery_wherever_it_goes) {
  simulate(300, [](std::uint64_t seed) {
    Climate climate;
    climate.discovery_changes = 300;
    climate.slow_start = 20;
    climate.may_fail = true;  // with a least that discovery does not give
    Dice dice(~seed);
    choose_program(climate.workers, dice);
    return climate;
  });
}

TEST(ElasticSimulation, lets_workers_and_hosts_leave) {
  simulate(300, [](std::uint64_t seed) {
    Climate climate;
    climate.worker_leaves = 300;
    climate.host_leaves = 800;
    climate.workers.stays = 10;
    climate.agent_stays = 10;
    climate.may_fail = true;  // if all leave
    Dice dice(~seed);
    choose_program(climate.workers, dice);
    return climate;
  });
}

// Draining of hosts and scaling of the job lose nothing, in any order.
TEST(ElasticSimulation, does_as_people_ask) {
  simulate(2'000, [](std::uint64_t seed) {
    Climate climate;
    climate.host_drained = 300;
    climate.job_scaled = 300;
    climate.workers.slow_message = seed % 2 == 0 ? 0 : 30;
    climate.slow_start = seed % 3 == 0 ? 5 : 0;
    Dice dice(~seed);
    choose_program(climate.workers, dice);
    return climate;
  });
}

// Programs without hvd. Nothing of theirs can be checked but that each group begins alone, and that
// the job ends well when they do.
TEST(ElasticSimulation, starts_plain_programs_again) {
  simulate(500, [](std::uint64_t seed) {
    Climate climate = some_of_everything(seed);
    climate.workers = {};
    climate.workers.plain = true;
    climate.worker_leaves_early = 0;  // it would have to say so
    return climate;
  });
}

TEST(ElasticSimulation, lets_workers_leave_early) {
  simulate(300, [](std::uint64_t seed) {
    Climate climate;
    climate.worker_leaves_early = 300;
    climate.worker_killed = seed % 2 == 0 ? 1'000 : 0;
    climate.may_fail = true;  // if all leave
    Dice dice(~seed);
    choose_program(climate.workers, dice);
    return climate;
  });
}

// At once, twice in a row, after an answer that names no host, or by telling each worker to go: the
// state outlives all workers that have it.
TEST(ElasticSimulation, keeps_the_state_when_everybody_is_replaced) {
  simulate(2'000, [](std::uint64_t seed) {
    Climate climate;
    climate.everybody_is_replaced = 400;
    climate.leave_grace = 30'000;
    climate.workers.slow_message = seed % 2 == 0 ? 0 : 30;
    Dice dice(~seed);
    choose_program(climate.workers, dice);
    return climate;
  });
}

TEST(ElasticSimulation, keeps_the_state_when_everybody_is_replaced_and_some_are_killed) {
  simulate(2'000, [](std::uint64_t seed) {
    Climate climate;
    climate.everybody_is_replaced = 400;
    climate.leave_grace = 30'000;
    climate.killed_while_replaced = 2;
    climate.workers.slow_message = 30;
    climate.workers.mutate_is_interrupted = 2;
    climate.may_fail = true;  // if the only one with the state is killed
    Dice dice(~seed);
    choose_program(climate.workers, dice);
    return climate;
  });
}

// The agents have what was committed: all workers may die at once, again and again.
TEST(ElasticSimulation, goes_on_with_what_agents_have_kept) {
  const Sum sum = simulate(1'000, [](std::uint64_t seed) {
    Climate climate;
    climate.worker_killed = seed % 2 == 0 ? 2'000 : 0;
    climate.all_killed = 1'000;
    climate.driver_stalls = seed % 3 == 0 ? 2'000 : 0;
    climate.workers.agents_keep_state = true;
    climate.workers.slow_message = seed % 5 == 0 ? 30 : 0;
    Dice dice(~seed);
    choose_program(climate.workers, dice);
    climate.workers.copies = true;
    return climate;
  });
  EXPECT_EQ(sum.successes, sum.runs);
}

// And whatever else may happen does.
TEST(ElasticSimulation, goes_on_with_what_agents_have_kept_whatever_happens) {
  simulate(1'000, [](std::uint64_t seed) {
    Climate climate = some_of_everything(seed);
    climate.all_killed = 1'000;
    climate.workers.agents_keep_state = true;
    return climate;
  });
}

// The driver dies at any moment, also while it does what it has decided, and the next one goes on,
// soon or late. Nothing else goes wrong: no worker is lost, and each world is whole again.
TEST(ElasticSimulation, outlives_its_driver) {
  const Sum sum = simulate(1'000, [](std::uint64_t seed) {
    Climate climate;
    climate.driver_dies = 300;
    climate.driver_dies_in_step = seed % 2 == 0 ? 0 : 10;
    climate.workers.slow_message = seed % 3 == 0 ? 30 : 0;
    Dice dice(~seed);
    choose_program(climate.workers, dice);
    return climate;
  });
  EXPECT_EQ(sum.successes, sum.runs);
}

// And whatever else may happen does.
TEST(ElasticSimulation, outlives_its_driver_whatever_happens_at_once) {
  simulate(2'000, [](std::uint64_t seed) {
    Climate climate = some_of_everything(seed);
    climate.driver_dies = seed % 3 == 0 ? 0 : 400;
    climate.driver_dies_in_step = seed % 3 == 1 ? 0 : 20;
    climate.driver_stays_away = seed % 4 == 0 ? 10 : 0;
    return climate;
  });
}

// One slot or one machine is broken, from the beginning or after a while: the rest goes on.
TEST(ElasticSimulation, goes_on_without_broken_slots_and_machines) {
  simulate(2'000, [](std::uint64_t seed) {
    Climate climate;
    climate.broken = seed % 2 == 0 ? Climate::Broken::slot : Climate::Broken::machine;
    climate.breaks_late = seed / 2 % 2 == 0;
    climate.workers.slow_message = seed % 3 == 0 ? 30 : 0;
    Dice dice(~seed);
    choose_program(climate.workers, dice);
    if (climate.breaks_late) climate.workers.steps = 0;
    climate.may_fail = climate.breaks_late;  // if no other worker was there yet
    return climate;
  });
}

// One worker dies at one message, each run at the next one; and a moment later maybe another.
TEST(ElasticSimulation, survives_a_crash_at_every_message) {
  constexpr std::uint64_t kMessages = 150;
  simulate(1'500, [](std::uint64_t seed) {
    Climate climate;
    climate.workers.dies_at = 1 + static_cast<int>(seed % kMessages);
    climate.workers.dies_again_after = static_cast<int>(seed / kMessages % 3) * 4;
    climate.workers.copies = seed / kMessages % 2 == 0;
    climate.workers.steps = 8;
    climate.may_fail = true;  // a world of one
    return climate;
  });
}

// The request comes at any time, also before the job runs and while it ends.
Climate suspended(Climate climate, std::uint64_t seed) {
  Dice dice(seed + 1);
  climate.suspended_within = dice.one_in(3) ? 500 : 3'000;
  climate.suspended_twice = dice.one_in(3) ? 1 : 0;
  climate.suspends_when_all_go = dice.one_in(3);
  climate.leave_grace = dice.one_in(2) ? 600 : 5'000;
  // A program that comes to no commit any more.
  if (dice.one_in(20)) climate.workers.commit_every = 1'000'000;
  return climate;
}

TEST(ElasticSimulation, suspends_a_job_in_which_nothing_else_happens) {
  const Sum sum = simulate(1'000, [](std::uint64_t seed) {
    Climate climate;
    Dice dice(~seed);
    choose_program(climate.workers, dice);
    return suspended(climate, seed);
  });
  EXPECT_GE(sum.suspended, 1);
}

TEST(ElasticSimulation, suspends_a_job_whose_members_die_at_any_message) {
  const Sum sum = simulate(1'500, [](std::uint64_t seed) {
    Climate climate;
    climate.workers.dies_at_message = 300;
    climate.workers.slow_message = seed % 2 == 0 ? 0 : 10;
    climate.workers.save_fails = seed % 5 == 0 ? 2 : 0;
    climate.may_fail = true;  // if all die
    Dice dice(~seed);
    choose_program(climate.workers, dice);
    return suspended(climate, seed);
  });
  EXPECT_GE(sum.suspended, 1);
}

// The driver dies at any moment of it, and the next one ends what it began.
TEST(ElasticSimulation, outlives_its_driver_while_it_is_suspended) {
  const Sum sum = simulate(500, [](std::uint64_t seed) {
    Climate climate = seed % 4 == 0 ? some_of_everything(seed) : Climate{};
    climate.workers.save_fails = 50;
    climate.workers.slow_message = seed % 3 == 0 ? 30 : 0;
    climate.driver_dies = 300;
    climate.driver_dies_in_step = seed % 2 == 0 ? 0 : 10;
    climate.may_fail = true;  // if no commit comes in time
    return suspended(climate, seed);
  });
  EXPECT_GE(sum.suspended, 1);
}

// Nobody asks for it.
TEST(ElasticSimulation, suspends_a_job_whose_workers_are_all_told_to_go) {
  const Sum sum = simulate(500, [](std::uint64_t seed) {
    Climate climate;
    climate.everybody_is_replaced = 400;
    climate.worker_leaves = 200;
    climate.suspends_when_all_go = true;
    climate.suspended_within = seed % 2 == 0 ? 0 : 3'000;
    climate.leave_grace = 5'000;
    climate.may_fail = true;
    Dice dice(~seed);
    choose_program(climate.workers, dice);
    return climate;
  });
  EXPECT_GE(sum.suspended, 1);
}

TEST(ElasticSimulation, suspends_whatever_happens_at_once) {
  const Sum sum = simulate(2'000, [](std::uint64_t seed) {
    Climate climate = some_of_everything(seed);
    climate.workers.save_fails = 50;
    return suspended(climate, seed);
  });
  EXPECT_GE(sum.suspended, 1);
}

TEST(ElasticSimulation, holds_whatever_happens_at_once) { simulate(2'000, some_of_everything); }

// Prints after how many runs it is found.
template <typename ClimateOf>
void expect_found(Flaw flaw, const char* what, const ClimateOf& climate_of) {
  constexpr std::uint64_t kRuns = 100'000;
  std::string found;
  std::uint64_t seed = 0;
  for (; found.empty() && seed < kRuns; ++seed) {
    SimulatedCluster cluster(seed, climate_of(seed), kHosts, kSlots, flaw);
    found = cluster.run();
  }
  EXPECT_NE(found, "") << what;
  std::printf("%s: found after %d runs: %s\n", what, static_cast<int>(seed), found.c_str());
}

// A test of the simulation itself: a wrong protocol does not pass.
TEST(NightlyElasticSimulation, finds_every_flaw) {
  for (const auto& [flaw, what] :
       {std::pair{Flaw::answers_before_the_mark, "answers before the mark"},
        std::pair{Flaw::resumes_from_the_lowest, "resumes from the lowest"},
        std::pair{Flaw::ignores_the_mark, "ignores the mark"},
        std::pair{Flaw::writes_the_mark_blindly, "writes the mark blindly"},
        std::pair{Flaw::takes_doubt_for_success, "takes doubt for success"},
        std::pair{Flaw::receives_over_the_only_copy, "receives over the only copy"},
        std::pair{Flaw::commits_without_agreement, "commits without agreement"},
        std::pair{Flaw::takes_half_a_transfer, "takes half a transfer"},
        std::pair{Flaw::sends_from_all_holders, "sends from all holders"},
        std::pair{Flaw::sends_what_the_first_receiver_lacks, "sends what the first receiver lacks"},
        std::pair{Flaw::forgets_that_the_run_has_finished, "forgets that the run has finished"}}) {
    expect_found(flaw, what, some_of_everything);
  }
}

TEST(NightlyElasticSimulation, finds_every_flaw_of_a_suspension) {
  for (const auto& [flaw, what] :
       {std::pair{Flaw::leaves_before_the_state_is_saved, "leaves before the state is saved"},
        std::pair{Flaw::proposes_the_last_world_once, "proposes the last world once"},
        std::pair{Flaw::starts_workers_while_suspending, "starts workers while suspending"},
        std::pair{Flaw::forgets_to_stop_what_cannot_be_suspended,
                  "forgets to stop what cannot be suspended"}}) {
    expect_found(flaw, what,
                 [](std::uint64_t seed) { return suspended(some_of_everything(seed), seed); });
  }
}

}  // namespace
}  // namespace hvd
