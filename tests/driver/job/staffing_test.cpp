#include "driver/job/staffing.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace hvd::driver {
namespace {

// "a#0" for a member, "(a#0)" for one that is not yet.
std::vector<Occupant> workers(const std::string& text) {
  std::vector<Occupant> result;
  for (const auto& word : split(text, ' ')) {
    const bool member = word.front() != '(';
    const std::string name = member ? word : word.substr(1, word.size() - 2);
    const auto hash = name.find('#');
    result.push_back({name.substr(0, hash), std::stoi(name.substr(hash + 1)),
                      static_cast<Incarnation>(result.size() + 1), member});
  }
  return result;
}

// "start a#1; release b#0"
std::string staffed(const std::vector<Room>& rooms, const std::string& there,
                    const Limits& limits) {
  const auto occupants = workers(there);
  const Staffing staffing = staff(rooms, occupants, limits);
  std::vector<std::string> parts;
  for (const auto& place : staffing.launch)
    parts.push_back(cat("start ", place.host, "#", place.slot));
  for (const auto incarnation : staffing.release) {
    const auto& who = occupants[incarnation - 1];
    parts.push_back(cat("release ", who.host, "#", who.slot));
  }
  return join(parts, ", ");
}

TEST(Staffing, fills_every_slot_in_the_order_of_the_hosts) {
  EXPECT_EQ(staffed({{"b", 2}, {"a", 1}}, "", {}), "start b#0, start b#1, start a#0");
}

TEST(Staffing, changes_nothing_when_all_slots_are_taken) {
  EXPECT_EQ(staffed({{"a", 2}, {"b", 1}}, "a#0 a#1 (b#0)", {}), "");
}

TEST(Staffing, restarts_the_slot_that_is_empty) {
  EXPECT_EQ(staffed({{"a", 3}, {"b", 1}}, "a#0 a#2 b#0", {}), "start a#1");
}

TEST(Staffing, takes_the_highest_slots_of_a_host_that_shrinks) {
  EXPECT_EQ(staffed({{"a", 2}, {"b", 1}}, "a#0 a#1 a#2 a#3 b#0", {}), "release a#2, release a#3");
}

TEST(Staffing, releases_all_of_a_host_that_is_no_longer_named) {
  EXPECT_EQ(staffed({{"b", 1}}, "a#0 a#1 b#0", {}), "release a#0, release a#1");
  EXPECT_EQ(staffed({}, "a#0", {}), "release a#0");
}

TEST(Staffing, starts_no_more_than_the_most_and_prefers_hosts_that_work_already) {
  EXPECT_EQ(staffed({{"new", 4}, {"a", 4}}, "a#0", {.most = 3}), "start a#1, start a#2");
  EXPECT_EQ(staffed({{"new", 4}, {"a", 2}}, "a#0", {.most = 3}), "start a#1, start new#0");
}

TEST(Staffing, keeps_spares_beside_the_most) {
  EXPECT_EQ(staffed({{"a", 4}}, "", {.most = 2, .spares = 1}), "start a#0, start a#1, start a#2");
  EXPECT_EQ(staffed({{"a", 4}}, "a#0 a#1 (a#2)", {.most = 2, .spares = 1}), "");
}

TEST(Staffing, releases_no_worker_to_make_room_for_another) {
  EXPECT_EQ(staffed({{"new", 2}, {"a", 2}}, "a#0 a#1", {.most = 2}), "");
  EXPECT_EQ(staffed({{"new", 2}, {"a", 2}}, "a#0 (a#1)", {.most = 2}), "");
}

TEST(Staffing, waits_for_a_slot_until_it_is_free_and_uses_another_meanwhile) {
  const std::vector<Occupant> occupants{{"a", 0, 1, true}, {"a", 1, 2, true, true}};
  EXPECT_EQ(staff({{"a", 2}}, occupants, {}).launch, std::vector<SlotPlace>());
  EXPECT_EQ(staff({{"a", 3}}, occupants, {.most = 2}).launch,
            (std::vector<SlotPlace>{{"a", 2, 3}}));
  EXPECT_EQ(staff({}, occupants, {}).release, std::vector<Incarnation>{1});
}

TEST(Staffing, starts_no_worker_on_a_host_that_rests_and_leaves_its_workers) {
  EXPECT_EQ(staffed({{"a", 2, true}, {"b", 2}}, "a#0 b#0", {}), "start b#1");
}

TEST(Staffing, starts_no_worker_in_a_slot_that_rests) {
  EXPECT_EQ(staffed({{"a", 4, false, {0, 2}}, {"b", 1}}, "a#2", {}),
            "start a#1, start a#3, start b#0");
  EXPECT_EQ(staffed({{"a", 2, false, {1, 7}}, {"b", 2}}, "a#0", {.most = 2}), "start b#0");
}

TEST(Staffing, is_not_carried_away_by_what_discovery_prints) {
  const std::vector<Room> rooms(1'000, {"a", 65'536});
  EXPECT_EQ(staff(rooms, {}, {}).launch.size(), kMaxWorkers);
}

TEST(Staffing, keeps_spares_out_of_the_world_unless_it_were_too_small) {
  EXPECT_EQ(world_size(8, {}), 8);
  EXPECT_EQ(world_size(8, {.spares = 2}), 6);
  EXPECT_EQ(world_size(8, {.most = 4, .spares = 2}), 4);
  EXPECT_EQ(world_size(5, {.most = 4, .spares = 2}), 3);
  EXPECT_EQ(world_size(5, {.least = 4, .most = 4, .spares = 2}), 4);
  EXPECT_EQ(world_size(3, {.least = 4, .spares = 2}), 3);
}

}  // namespace
}  // namespace hvd::driver
