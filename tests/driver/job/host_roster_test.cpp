#include "driver/job/host_roster.h"

#include <gtest/gtest.h>

namespace hvd::driver {
namespace {

using std::chrono::seconds;

class HostRosterTest : public testing::Test {
 protected:
  static HostRoster::Found found(const std::vector<HostSlots>& hosts) {
    HostRoster::Found found;
    for (const auto& host : hosts) found.push_back({host, false});
    return found;
  }
  // Its agent is ready, and its address is known.
  void make_ready(const std::string& name) {
    const HostIndex host = hosts_.add(name, false);
    hosts_.move(host, HostState::starting);
    hosts_.move(host, HostState::ready);
    hosts_[host].address = "10.0.0.1";
  }
  int ready() const { return roster_.ready_slots(now_); }
  void fail(const std::string& host, int slot, int times) {
    for (int i = 0; i < times; ++i) roster_.budget().worker_failed(host, slot, now_, 0);
  }

  TimePoint now_{std::chrono::hours(1)};
  Hosts hosts_{{}};
  HostRoster roster_{hosts_, {}};
};

TEST_F(HostRosterTest, nothing_is_known_before_the_first_answer) {
  EXPECT_FALSE(roster_.is_known());
  EXPECT_EQ(roster_.room_text(now_), "no host is known yet");
  roster_.name({}, now_);
  EXPECT_TRUE(roster_.is_known());
  EXPECT_EQ(roster_.room_text(now_), "0 slots are ready on 0 of 0 hosts");
}

TEST_F(HostRosterTest, slots_are_ready_where_an_agent_is_and_nothing_rests_or_is_drained) {
  roster_.name(found({{"a", 4}, {"b", 4}, {"c", 4}}), now_);
  EXPECT_EQ(ready(), 0);
  make_ready("a");
  make_ready("b");
  EXPECT_EQ(ready(), 8);
  fail("a", 1, 4);
  EXPECT_EQ(ready(), 7);
  EXPECT_TRUE(roster_.drain("b#0"));
  EXPECT_TRUE(roster_.drain("b#9"));  // which it does not have
  EXPECT_EQ(ready(), 6);
  EXPECT_TRUE(roster_.drain("a"));
  EXPECT_FALSE(roster_.drain("a"));
  EXPECT_EQ(ready(), 3);
  EXPECT_EQ(roster_.find_used("a"), nullptr);
  EXPECT_NE(roster_.find_named("a"), nullptr);
  EXPECT_EQ(roster_.drained_text(), ", a, b#0 and b#9 are drained");
  roster_.use_again("a");
  EXPECT_EQ(ready(), 6);
  EXPECT_EQ(roster_.room_text(now_), "6 slots are ready on 2 of 3 hosts");
}

TEST_F(HostRosterTest, slots_are_those_that_are_named_or_counted_and_at_least_those_planned) {
  EXPECT_EQ(roster_.slots_of({"a", 2}), 2);
  EXPECT_EQ(roster_.slots_of({"b", 0}), 0);
  roster_.count_slots("b", 8);
  EXPECT_EQ(roster_.slots_of({"b", 0}), 8);
  EXPECT_FALSE(roster_.is_planned());
  roster_.plan_slots({{"a", 3}});
  EXPECT_TRUE(roster_.is_planned());
  EXPECT_EQ(roster_.slots_of({"a", 2}), 3);
}

TEST_F(HostRosterTest, what_rests_for_the_rest_of_the_job_is_no_room_for_later) {
  roster_.name(found({{"a", 2}, {"b", 0}}), now_);
  EXPECT_EQ(roster_.slots_for_ever(now_), std::nullopt) << "b may have any number";
  roster_.count_slots("b", 2);
  EXPECT_EQ(roster_.slots_for_ever(now_), 4);
  roster_.drain("a");
  EXPECT_EQ(roster_.slots_for_ever(now_), 4) << "it may be used again";
  roster_.budget().set_aside_for_good("b", 1);
  EXPECT_EQ(roster_.slots_for_ever(now_), 3);
}

TEST_F(HostRosterTest, errors_are_told_as_long_as_they_matter) {
  roster_.name(found({{"a", 2}, {"b", 2}, {"c", 2}, {"d", 2}}), now_);
  EXPECT_EQ(roster_.errors_text(now_), "");
  roster_.note_error("b", {Step::connect, "refused", 1});
  roster_.note_slot_error("a", 1, "exited with code 3");
  EXPECT_EQ(roster_.errors_text(now_), " (b: connect: refused)") << "the slot does not rest";
  fail("a", 1, 4);
  EXPECT_EQ(roster_.errors_text(now_),
            " (b: connect: refused; a#1 is set aside, since it exited with code 3)");
  roster_.note_error("c", {Step::connect, "refused", 1});
  roster_.note_error("d", {Step::connect, "refused", 1});
  EXPECT_NE(roster_.errors_text(now_).find("; 1 more)"), std::string::npos);
  roster_.name(found({{"a", 2}}), now_);
  EXPECT_EQ(roster_.error_of("b"), nullptr) << "it is no longer named";
}

TEST_F(HostRosterTest, names_that_may_never_come_again_are_forgotten) {
  roster_.name(found({{"a", 0}}), now_);
  roster_.count_slots("a", 8);
  fail("a", 0, 1);
  roster_.name({}, now_);
  EXPECT_FALSE(roster_.is_old("a")) << "its failure is remembered";
  now_ += std::chrono::hours(2);
  roster_.name({}, now_);
  EXPECT_TRUE(roster_.is_old("a"));
  EXPECT_EQ(roster_.slots_of({"a", 0}), 0);
}

TEST_F(HostRosterTest, a_host_that_had_joined_goes_with_its_agent) {
  HostRoster::Found hosts = found({{"a", 2}, {"b", 2}});
  hosts[1].joins = true;
  roster_.name(hosts, now_);
  roster_.joined_agent_is_gone("a");  // it is named by others
  roster_.joined_agent_is_gone("b");
  EXPECT_NE(roster_.find_used("a"), nullptr);
  EXPECT_EQ(roster_.find_used("b"), nullptr);
}

}  // namespace
}  // namespace hvd::driver
