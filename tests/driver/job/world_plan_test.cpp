#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <set>

#include "base/text.h"
#include "driver/job/staffing.h"
#include "driver/job/worlds.h"

namespace hvd::driver {
namespace {

// A world and what becomes of it: workers are written host#slot, the second in a slot host#slot'.
class WorldSequence {
 public:
  explicit WorldSequence(const std::string& first) { next("", first); }

  // The world after these went and those came.
  std::string next(const std::string& gone, const std::string& come) {
    std::vector<Incarnation> going;
    for (const auto& name : split(gone, ' ')) {
      for (const auto& member : world_) {
        if (names_[member.incarnation] == name) going.push_back(member.incarnation);
      }
    }
    std::vector<Newcomer> coming;
    for (const auto& name : split(come, ' ')) {
      const auto hash = name.find('#');
      coming.push_back({name.substr(0, hash), std::atoi(name.c_str() + hash + 1), ++last_, ""});
      names_[last_] = name;
    }
    world_ = plan_world(world_, going, coming);
    std::vector<std::string> names;
    for (const auto& member : world_) names.push_back(names_[member.incarnation]);
    return join(names, " ");
  }

 private:
  std::vector<WorldMember> world_;
  std::map<Incarnation, std::string> names_;
  Incarnation last_ = 0;
};

TEST(WorldPlan, begins_host_by_host_in_the_order_given) {
  EXPECT_EQ(WorldSequence("b#0 b#1 a#0").next("", ""), "b#0 b#1 a#0");
}

TEST(WorldPlan, closes_ranks_after_a_loss) {
  WorldSequence worlds("a#0 a#1 b#0 b#1");
  EXPECT_EQ(worlds.next("a#1", ""), "a#0 b#0 b#1");
  EXPECT_EQ(worlds.next("a#0", ""), "b#0 b#1");
}

TEST(WorldPlan, gives_a_replacement_the_place_of_the_one_it_replaces) {
  EXPECT_EQ(WorldSequence("a#0 a#1 b#0 c#0").next("a#1", "a#1'"), "a#0 a#1' b#0 c#0");
  EXPECT_EQ(WorldSequence("a#0 b#0 c#0").next("b#0", "b#0'"), "a#0 b#0' c#0");
}

TEST(WorldPlan, gives_it_that_place_also_when_the_world_went_on_without_it) {
  WorldSequence worlds("a#0 a#1 a#2 b#0");
  EXPECT_EQ(worlds.next("a#1", ""), "a#0 a#2 b#0");
  EXPECT_EQ(worlds.next("", "a#1'"), "a#0 a#1' a#2 b#0");
}

TEST(WorldPlan, is_led_by_a_survivor_of_the_same_host_if_there_is_one) {
  WorldSequence worlds("a#0 a#1 a#2 b#0");
  EXPECT_EQ(worlds.next("a#0", "a#0'"), "a#1 a#0' a#2 b#0");
  // A member that has become a survivor keeps its place.
  EXPECT_EQ(worlds.next("a#2", "a#2'"), "a#1 a#0' a#2' b#0");
  EXPECT_EQ(worlds.next("a#1", "a#1'"), "a#0' a#1' a#2' b#0");
}

TEST(WorldPlan, is_led_by_a_survivor_of_the_next_host_if_the_first_has_none) {
  EXPECT_EQ(WorldSequence("a#0 a#1 b#0 b#1 c#0").next("a#0 a#1", "a#0' a#1'"),
            "b#0 b#1 a#0' a#1' c#0");
  EXPECT_EQ(WorldSequence("a#0 b#0 b#1").next("a#0 b#0", "a#0' b#0'"), "b#1 b#0' a#0'");
}

TEST(WorldPlan, puts_new_hosts_last_in_the_order_in_which_they_came) {
  WorldSequence worlds("b#0 b#1");
  EXPECT_EQ(worlds.next("", "z#0 a#0 a#1"), "b#0 b#1 z#0 a#0 a#1");
  EXPECT_EQ(worlds.next("b#0 b#1", "b#0' b#1'"), "z#0 b#0' b#1' a#0 a#1");
  EXPECT_EQ(worlds.next("z#0", ""), "b#0' b#1' a#0 a#1");
  EXPECT_EQ(worlds.next("", "z#0'"), "b#0' b#1' a#0 a#1 z#0'");
}

TEST(WorldPlan, fills_local_and_cross_ranks) {
  const auto world =
      plan_world({}, {}, {{"a", 0, 1, "10.0.0.1"}, {"b", 0, 2, ""}, {"b", 3, 3, ""}});
  const WorldMember last{2, "b", 3, 3, "", 1, 2, 0, 1};
  EXPECT_EQ(world.back(), last);
  EXPECT_EQ(world.front().address, "10.0.0.1");
  EXPECT_EQ(world.front().cross_size, 2);
}

// ---- any history ----

std::string text_of(const std::vector<WorldMember>& world) {
  std::string text;
  for (const auto& member : world) text += cat(" ", member.worker(), "/", member.incarnation);
  return text;
}

void check_order(const std::vector<WorldMember>& before, const std::vector<WorldMember>& after,
                 const std::set<Incarnation>& gone) {
  std::set<std::string> hosts;
  std::set<std::string> places;
  std::string host;
  int local = 0;
  for (std::size_t rank = 0; rank < after.size(); ++rank) {
    const auto& member = after[rank];
    ASSERT_EQ(member.rank, static_cast<int>(rank));
    ASSERT_TRUE(places.insert(member.worker()).second) << "twice in a slot: " << member.worker();
    ASSERT_EQ(gone.count(member.incarnation), 0U);
    if (member.host != host) {
      ASSERT_TRUE(hosts.insert(member.host).second) << "not host-major";
      local = 0;
    }
    ASSERT_EQ(member.local_rank, local++);
    host = member.host;
  }
  std::vector<Incarnation> survivors;
  for (const auto& member : before) {
    if (gone.count(member.incarnation) == 0) survivors.push_back(member.incarnation);
  }
  std::vector<Incarnation> kept;
  for (const auto& member : after) {
    if (std::find(survivors.begin(), survivors.end(), member.incarnation) != survivors.end())
      kept.push_back(member.incarnation);
  }
  ASSERT_EQ(kept, survivors) << "survivors are lost or change their order";
  if (!survivors.empty()) {
    ASSERT_EQ(after.front().incarnation, survivors.front()) << "the oldest does not lead";
  }
}

// Hosts come, go, shrink and grow, workers die; the staff is adapted, the world planned anew.
TEST(WorldPlan, holds_its_promises_in_any_history) {
  std::mt19937_64 random(11);  // NOLINT(cert-msc51-cpp): the same histories each time
  const auto below = [&](int limit) {
    return static_cast<int>(random() % static_cast<std::uint64_t>(limit));
  };
  for (int history = 0; history < 300; ++history) {
    const Limits limits{1, below(3) == 0 ? 1 + below(12) : 0, below(2)};
    std::vector<Room> rooms;
    std::vector<WorldMember> world;
    Incarnation last = 0;
    for (int step = 0; step < 30; ++step) {
      for (auto& room : rooms) {
        if (below(6) == 0) room.slots = 1 + below(5);
        room.rests = below(6) == 0;
      }
      std::erase_if(rooms, [&](const Room&) { return below(8) == 0; });
      if (rooms.size() < 6 && below(2) == 0)
        rooms.push_back({cat("h", history, ".", step), 1 + below(5)});
      std::shuffle(rooms.begin(), rooms.end(), random);
      std::set<Incarnation> gone;
      std::vector<Occupant> occupants;
      for (const auto& member : world) {
        if (below(7) == 0) {
          gone.insert(member.incarnation);
        } else {
          occupants.push_back({member.host, member.slot, member.incarnation, true});
        }
      }
      const Staffing staffing = staff(rooms, occupants, limits);
      gone.insert(staffing.release.begin(), staffing.release.end());
      std::vector<Newcomer> newcomers;
      for (const auto& place : staffing.launch) {
        if (below(4) != 0) newcomers.push_back({place.host, place.slot, ++last, ""});
      }
      const auto next = plan_world(world, {gone.begin(), gone.end()}, newcomers);
      check_order(world, next, gone);
      ASSERT_EQ(next.size(), occupants.size() - staffing.release.size() + newcomers.size());
      if (limits.most != 0) {
        ASSERT_LE(static_cast<int>(next.size()), limits.most + limits.spares);
      }
      for (const auto& member : next) {
        const auto room = std::find_if(rooms.begin(), rooms.end(),
                                       [&](const Room& one) { return one.host == member.host; });
        ASSERT_NE(room, rooms.end()) << text_of(next);
        ASSERT_LT(member.slot, room->slots) << text_of(next);
      }
      // Nothing happens: nothing changes.
      std::vector<Occupant> now;
      for (const auto& member : next)
        now.push_back({member.host, member.slot, member.incarnation, true});
      ASSERT_TRUE(staff(rooms, now, limits).release.empty());
      ASSERT_EQ(plan_world(next, {}, {}), next);
      world = next;
    }
  }
}

}  // namespace
}  // namespace hvd::driver
