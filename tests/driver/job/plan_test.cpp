#include "driver/job/plan.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace hvd::driver {
namespace {

// "0=a#0 1=a#1 ..." and so on: what a person would write on paper.
std::string placed(const Plan& plan) {
  std::vector<std::string> parts;
  for (const auto& member : plan.members) parts.push_back(cat(member.rank, "=", member.worker()));
  return join(parts, " ");
}

std::string counts(const Plan& plan) {
  std::vector<std::string> parts;
  for (const auto& member : plan.members) {
    if (member.local_rank == 0) parts.push_back(cat(member.host, ":", member.local_size));
  }
  return join(parts, " ");
}

// (rank, local, cross/cross_size) as horovod's own documents write it.
std::string ranks(const Plan& plan) {
  std::vector<std::string> parts;
  for (const auto& member : plan.members) {
    parts.push_back(cat("(", member.rank, ",", member.local_rank, ",", member.cross_rank, "/",
                        member.cross_size, ")"));
  }
  return join(parts, " ");
}

Plan plan_of(const std::vector<HostSlots>& hosts, int processes) {
  auto plan = plan_static(hosts, processes, true);
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  return plan.ok() ? *plan : Plan();
}

TEST(Plan, fills_hosts_in_the_order_given) {
  EXPECT_EQ(placed(plan_of({{"b", 2}, {"a", 2}}, 3)), "0=b#0 1=b#1 2=a#0");
}

TEST(Plan, takes_every_slot_when_no_number_is_given) {
  const Plan plan = plan_of({{"a", 1}, {"b", 2}}, 0);
  EXPECT_EQ(placed(plan), "0=a#0 1=b#0 2=b#1");
  EXPECT_EQ(plan.oversubscription, "");
}

TEST(Plan, leaves_out_hosts_that_are_not_needed) {
  EXPECT_EQ(counts(plan_of({{"a", 2}, {"b", 2}, {"c", 2}}, 2)), "a:2");
}

TEST(Plan, gives_local_and_cross_ranks_to_unequal_hosts_as_horovod_does) {
  const Plan plan = plan_of({{"w0", 1}, {"w1", 2}}, 3);
  EXPECT_EQ(ranks(plan), "(0,0,0/2) (1,0,1/2) (2,1,0/1)");
  EXPECT_EQ(plan.members[0].local_size, 1);
  EXPECT_EQ(plan.members[2].local_size, 2);
}

TEST(Plan, counts_across_hosts_only_where_the_local_rank_exists) {
  EXPECT_EQ(ranks(plan_of({{"a", 3}, {"b", 1}, {"c", 2}}, 6)),
            "(0,0,0/3) (1,1,0/2) (2,2,0/1) (3,0,1/3) (4,0,2/3) (5,1,1/2)");
}

TEST(Plan, spreads_too_many_processes_evenly_and_says_so) {
  const Plan plan = plan_of({{"a", 4}, {"b", 4}}, 16);
  EXPECT_EQ(counts(plan), "a:8 b:8");
  EXPECT_EQ(plan.oversubscription,
            "oversubscribed: 16 processes on 8 slots: 8 on a (4 slots), 8 on b (4 slots); "
            "--no-oversubscribe makes this an error");
}

TEST(Plan, spreads_too_many_processes_in_proportion_to_the_slots) {
  EXPECT_EQ(counts(plan_of({{"a", 1}, {"b", 3}}, 8)), "a:2 b:6");
  EXPECT_EQ(counts(plan_of({{"a", 1}, {"b", 3}}, 5)), "a:1 b:4");
  EXPECT_EQ(counts(plan_of({{"a", 2}, {"b", 2}, {"c", 2}}, 8)), "a:3 b:3 c:2");
}

TEST(Plan, gives_every_process_a_place_however_many_and_however_unequal) {
  for (int processes = 1; processes <= 60; ++processes) {
    const Plan plan = plan_of({{"a", 1}, {"b", 7}, {"c", 3}, {"d", 2}}, processes);
    ASSERT_EQ(plan.members.size(), static_cast<std::size_t>(processes));
    EXPECT_EQ(plan.oversubscription.empty(), processes <= 13) << processes;
    WorldDocument world;
    world.job_id = "j";
    world.generation = 1;
    world.members = plan.members;
    std::uint64_t incarnation = 0;
    for (auto& member : world.members) {
      member.incarnation = ++incarnation;
      member.address = "127.0.0.1";
    }
    const auto read = WorldDocument::decode(world.encode());  // checks ranks and identities
    EXPECT_TRUE(read.ok()) << read.status().to_string();
  }
}

TEST(Plan, refuses_too_many_processes_in_horovods_words_if_told_to) {
  const auto plan = plan_static({{"a", 4}, {"b", 4}}, 16, false);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().message(),
            "Requested more processes (16) than there are available slots (8)");
  EXPECT_TRUE(plan_static({{"a", 4}, {"b", 4}}, 8, false).ok());
}

TEST(Plan, refuses_what_cannot_be_placed_and_says_why) {
  const auto message = [](const std::vector<HostSlots>& hosts, int processes) {
    const auto plan = plan_static(hosts, processes, true);
    return plan.ok() ? "no error" : plan.status().message();
  };
  EXPECT_EQ(message({}, 1), "there is no host to run on");
  EXPECT_EQ(message({{"a", 0}}, 1), "host a has 0 slots; it needs at least one");
  EXPECT_EQ(message({{"a", 1}, {"a", 1}}, 1), "host a is named twice");
  EXPECT_EQ(message({{"a", 1}}, -3), "the number of processes must be from 1 to 100,000, not -3");
  EXPECT_EQ(message({{"a", 60'000}, {"b", 60'000}}, 0),
            "the hosts have 120,000 slots; a job may have 100,000 workers: say how many with -np");
  EXPECT_EQ(message({{"a", 60'000}, {"b", 60'000}}, 100'000), "no error");
  EXPECT_EQ(message({{"a", 60'000}, {"b", 40'000}}, 0), "no error");
}

TEST(Plan, asks_only_hosts_that_may_get_a_worker) {
  const auto asked = [](const std::vector<HostSlots>& hosts, int processes) {
    std::string names;
    for (const auto& host : hosts_to_ask(hosts, processes)) names += host.name;
    return names;
  };
  EXPECT_EQ(asked({{"a", 4}, {"b", 0}, {"c", 0}}, 0), "abc");
  EXPECT_EQ(asked({{"a", 4}, {"b", 0}, {"c", 0}}, 4), "a");
  EXPECT_EQ(asked({{"a", 4}, {"b", 0}, {"c", 0}}, 5), "ab");
  EXPECT_EQ(asked({{"a", 0}, {"b", 0}, {"c", 0}}, 2), "ab");
  EXPECT_EQ(asked({{"a", 0}, {"b", 0}, {"c", 0}}, 9), "abc");
}

TEST(Plan, has_room_for_the_least_or_says_what_there_is) {
  const std::vector<HostSlots> hosts{{"a", 2}, {"b", 1}};
  EXPECT_TRUE(check_least(3, hosts, *plan_static(hosts, 0, true)).ok());
  EXPECT_TRUE(check_least(8, hosts, *plan_static(hosts, 8, true)).ok());
  EXPECT_EQ(check_least(4, hosts, *plan_static(hosts, 2, true)).message(),
            "--min-np 4 is more than the 3 slots of the hosts that are named");
}

}  // namespace
}  // namespace hvd::driver
