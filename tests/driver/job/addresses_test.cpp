#include "driver/job/addresses.h"

#include <gtest/gtest.h>
#include <set>

#include "driver/job/arrival.h"

namespace hvd::driver {
namespace {

using Addresses = std::vector<std::string>;

HostNetwork far(std::string name, std::vector<Interface> interfaces, std::string peer = {}) {
  HostNetwork host;
  host.name = std::move(name);
  host.interfaces = std::move(interfaces);
  host.interfaces.insert(host.interfaces.begin(), {{"lo", "127.0.0.1"}, {"lo", "::1"}});
  host.peer_address = std::move(peer);
  host.local_address = "10.0.0.254";
  host.probe_port = 4000;
  host.probe_greeting = "I am " + host.name;
  return host;
}

HostNetwork here(std::string name = "localhost") {
  HostNetwork host;
  host.name = std::move(name);
  host.local = true;
  return host;
}

// ---- candidates ----

TEST(Candidates, begin_with_where_the_host_was_reached_and_go_on_with_its_family) {
  const auto host = far("a",
                        {{"eth0", "10.0.0.1"},
                         {"eth0", "fe80::1"},
                         {"eth0", "fd00::1"},
                         {"ib0", "10.1.0.1"},
                         {"ib0", "169.254.7.7"},
                         {"docker0", "172.17.0.1"}},
                        "10.1.0.1");
  EXPECT_EQ(*candidates_of(host, {}), (Addresses{"10.1.0.1", "10.0.0.1", "172.17.0.1", "fd00::1"}));
  auto by_v6 = host;
  by_v6.peer_address = "fd00::1";
  EXPECT_EQ(*candidates_of(by_v6, {}),
            (Addresses{"fd00::1", "10.0.0.1", "10.1.0.1", "172.17.0.1"}));
}

TEST(Candidates, do_not_hold_an_address_that_only_stands_in_front_of_the_host) {
  EXPECT_EQ(*candidates_of(far("a", {{"eth0", "10.0.0.1"}}, "192.0.2.7"), {}),
            (Addresses{"10.0.0.1"}));
}

TEST(Candidates, hold_loopback_only_if_the_host_was_reached_there) {
  EXPECT_EQ(*candidates_of(far("a", {{"eth0", "10.0.0.1"}}, "127.0.0.1"), {}),
            (Addresses{"127.0.0.1", "10.0.0.1"}));
  const auto nothing = candidates_of(far("a", {{"eth0", "fe80::1"}}, ""), {});
  ASSERT_FALSE(nothing.ok());
  EXPECT_EQ(nothing.status().message(),
            "no address of it can be used, there are lo (127.0.0.1, ::1), eth0 (fe80::1); address= "
            "in the list of hosts says which to take");
}

TEST(Candidates, are_no_link_local_ones_but_others_that_begin_alike) {
  EXPECT_EQ(*candidates_of(far("a", {{"e", "fe8::1"}, {"e", "feb0::1"}, {"e", "fec0::1"}}), {}),
            (Addresses{"fe8::1", "fec0::1"}));
}

TEST(Candidates, are_of_the_interfaces_asked_for_whichever_of_them_a_host_has) {
  const auto host = far("a", {{"eth0", "10.0.0.1"}, {"ib0", "10.1.0.1"}}, "10.0.0.1");
  EXPECT_EQ(*candidates_of(host, {"ib0", "ib1"}), (Addresses{"10.1.0.1"}));
  EXPECT_EQ(*candidates_of(host, {"lo"}), (Addresses{"127.0.0.1", "::1"}));
  const auto none = candidates_of(host, {"ib7"});
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(
      none.status().message(),
      "no usable address is on the network interfaces ib7 (--network-interface); there are lo "
      "(127.0.0.1, ::1), eth0 (10.0.0.1), ib0 (10.1.0.1)");
}

TEST(Candidates, are_the_person_s_word_alone) {
  auto host = far("a", {{"eth0", "10.0.0.1"}, {"ib0", "10.1.0.1"}, {"ib0", "fd00::1"}}, "10.0.0.1");
  for (const char* const own : {"10.1.0.1", "fd00:0::1", "127.0.0.9"}) {
    host.advertise_address = own;
    EXPECT_EQ(*candidates_of(host, {"ib7"}), Addresses{own});
  }
}

// Behind NAT the agent is reached there, and no worker can listen there.
TEST(Candidates, are_not_the_person_s_word_if_the_host_has_no_such_address) {
  auto host = far("a", {{"eth0", "10.0.0.1"}}, "192.0.2.1");
  host.advertise_address = "192.0.2.1";
  const auto outer = candidates_of(host, {});
  ASSERT_FALSE(outer.ok());
  EXPECT_EQ(outer.status().message(),
            "address=192.0.2.1 in the list of hosts is not an address of it, and its workers could "
            "not listen there; it has lo (127.0.0.1, ::1), eth0 (10.0.0.1). The outer address of a "
            "host behind NAT does not help: a VPN gives it one of its own");
}

TEST(CandidatesOfThisMachine, begin_with_what_the_hosts_see_it_as) {
  const std::vector<Interface> own{
      {"lo", "127.0.0.1"}, {"eth0", "10.9.0.1"}, {"eth1", "10.0.0.254"}, {"eth1", "fd00::fe"}};
  auto behind_nat = far("b", {});
  behind_nat.local_address = "192.0.2.1";  // none of ours
  EXPECT_EQ(*candidates_of_this_machine(own, "", {here(), behind_nat, far("a", {})}, {}),
            (Addresses{"10.0.0.254", "10.9.0.1", "fd00::fe"}));
  EXPECT_EQ(*candidates_of_this_machine(own, "10.9.0.1", {far("a", {})}, {}),
            (Addresses{"10.9.0.1"}));
  EXPECT_EQ(*candidates_of_this_machine(own, "", {far("a", {})}, {"eth0"}),
            (Addresses{"10.9.0.1"}));
  EXPECT_FALSE(candidates_of_this_machine(own, "", {far("a", {})}, {"ib0"}).ok());
}

TEST(CandidatesOfThisMachine, hold_loopback_only_if_all_hosts_are_this_machine) {
  const std::vector<Interface> own{{"lo", "127.0.0.1"}, {"eth1", "10.0.0.254"}};
  auto inside = far("b", {});
  inside.local_address = "127.0.0.1";
  EXPECT_EQ(*candidates_of_this_machine(own, "", {inside}, {}),
            (Addresses{"127.0.0.1", "10.0.0.254"}));
  EXPECT_EQ(*candidates_of_this_machine(own, "", {inside, far("a", {})}, {}),
            (Addresses{"10.0.0.254"}));
  EXPECT_FALSE(candidates_of_this_machine({{"lo", "127.0.0.1"}}, "", {far("a", {})}, {}).ok());
}

// ---- the probes of each host ----

AddressProblem problem_of(std::vector<HostNetwork> hosts,
                          std::vector<SocketAddress> rendezvous = {{"10.0.0.254", 80}}) {
  AddressProblem problem;
  problem.rendezvous = std::move(rendezvous);
  for (const auto& host : hosts) {
    problem.candidates.push_back(host.local ? Addresses{} : *candidates_of(host, {}));
  }
  problem.hosts = std::move(hosts);
  return problem;
}

std::vector<std::string> words(const std::vector<ProbeTask>& tasks) {
  std::vector<std::string> result;
  for (const auto& task : tasks) {
    std::string text = std::to_string(task.prober) + ":";
    for (const auto& target : task.targets) {
      text += " " + SocketAddress{target.address, target.port}.to_string();
    }
    result.push_back(text);
  }
  return result;
}

TEST(PlanProbes, lets_each_host_try_the_one_before_it_and_all_others_try_the_rendezvous) {
  const auto tasks =
      plan_probes(problem_of({far("a", {{"e", "10.0.0.1"}, {"f", "10.1.0.1"}}),
                              far("b", {{"e", "10.0.0.2"}}), far("c", {{"e", "fd00::3"}})}));
  EXPECT_EQ(words(tasks), (std::vector<std::string>{
                              "0: [fd00::3]:4000 10.0.0.254:80",
                              "1: 10.0.0.1:4000 10.1.0.1:4000 10.0.0.254:80",
                              "2: 10.0.0.2:4000 10.0.0.254:80",
                          }));
  EXPECT_EQ(tasks[0].targets[0].greeting, "I am c");
  EXPECT_EQ(tasks[0].targets[1].greeting, "");
}

TEST(PlanProbes, takes_this_machine_for_one_of_the_ring_whatever_its_names) {
  const auto tasks = plan_probes(
      problem_of({here("localhost"), far("a", {{"e", "10.0.0.1"}}), here("127.0.0.1")}));
  EXPECT_EQ(words(tasks), (std::vector<std::string>{"0: 10.0.0.1:4000", "1: 10.0.0.254:80"}));
}

TEST(PlanProbes, lets_a_single_host_try_only_the_rendezvous) {
  EXPECT_EQ(words(plan_probes(problem_of({far("a", {{"e", "10.0.0.1"}})}))),
            (std::vector<std::string>{"0: 10.0.0.254:80"}));
}

TEST(PlanProbes, leaves_out_a_host_that_does_not_listen) {
  auto deaf = far("a", {{"e", "10.0.0.1"}});
  deaf.probe_port = 0;
  const auto problem = problem_of({deaf, far("b", {{"e", "10.0.0.2"}})});
  const auto tasks = plan_probes(problem);
  EXPECT_EQ(words(tasks),
            (std::vector<std::string>{"0: 10.0.0.2:4000 10.0.0.254:80", "1: 10.0.0.254:80"}));
  const auto choice = choose_addresses(problem, tasks, {{{"", ""}, ""}, {{""}, ""}});
  EXPECT_TRUE(choice.errors.empty());
  EXPECT_EQ(choice.addresses, (Addresses{"10.0.0.1", "10.0.0.2"}));
}

// ---- the choice ----

class Choice : public testing::Test {
 protected:
  // Unreachable addresses: "host>address" for one host, or ">address" for all hosts.
  AddressChoice choose(const AddressProblem& problem, const std::set<std::string>& out_of_reach) {
    const auto tasks = plan_probes(problem);
    std::vector<ProbeAnswer> answers;
    for (const auto& task : tasks) {
      ProbeAnswer answer;
      for (const auto& target : task.targets) {
        const bool out =
            out_of_reach.count(">" + target.address) != 0 ||
            out_of_reach.count(problem.hosts[task.prober].name + ">" + target.address) != 0;
        answer.errors.push_back(out ? "Connection refused" : "");
      }
      answers.push_back(std::move(answer));
    }
    return choose_addresses(problem, tasks, answers);
  }
  const std::vector<SocketAddress> endpoints{{"10.0.0.254", 80}, {"10.1.0.254", 80}};
};

TEST_F(Choice, takes_the_first_address_that_is_reached) {
  const auto problem = problem_of(
      {far("a", {{"docker0", "172.17.0.1"}, {"e", "10.0.0.1"}}), far("b", {{"e", "10.0.0.2"}})});
  const auto choice = choose(problem, {">172.17.0.1"});
  EXPECT_TRUE(choice.errors.empty());
  EXPECT_EQ(choice.addresses, (Addresses{"10.0.0.1", "10.0.0.2"}));
  EXPECT_EQ(choice.rendezvous[1].to_string(), "10.0.0.254:80");
}

// Workers listen at one address each, and cannot connect from one family to the other.
TEST_F(Choice, gives_all_hosts_addresses_of_one_family_however_each_was_reached) {
  const auto a = far("a", {{"e", "10.0.0.1"}, {"e", "fd00::1"}}, "fd00::1");
  const auto b = far("b", {{"e", "10.0.0.2"}, {"e", "fd00::2"}}, "10.0.0.2");
  const std::vector<SocketAddress> both{{"10.0.0.254", 80}, {"fd00::fe", 80}};
  EXPECT_EQ(choose(problem_of({a, b}, both), {}).addresses, (Addresses{"fd00::1", "fd00::2"}));
  EXPECT_EQ(choose(problem_of({b, a}, both), {}).addresses, (Addresses{"10.0.0.2", "10.0.0.1"}));
  EXPECT_EQ(choose(problem_of({a, b}, both), {">fd00::2"}).addresses,
            (Addresses{"10.0.0.1", "10.0.0.2"}));
  const auto only_v4 = far("c", {{"e", "10.0.0.3"}}, "10.0.0.3");
  EXPECT_EQ(choose(problem_of({a, only_v4, b}, both), {}).addresses,
            (Addresses{"10.0.0.1", "10.0.0.3", "10.0.0.2"}));
}

TEST_F(Choice, counts_this_machine_as_a_host_of_that_family) {
  const auto a = far("a", {{"e", "10.0.0.1"}, {"e", "fd00::1"}}, "fd00::1");
  const std::vector<SocketAddress> both{{"10.0.0.254", 80}, {"fd00::fe", 80}};
  const auto choice = choose(problem_of({here(), a}, both), {});
  EXPECT_EQ(choice.addresses, (Addresses{"fd00::fe", "fd00::1"}));
  EXPECT_EQ(choice.rendezvous[1].host, "fd00::fe");
  EXPECT_EQ(choose(problem_of({here(), a}, both), {">fd00::fe"}).addresses,
            (Addresses{"10.0.0.254", "10.0.0.1"}));
  // Where there is none, each has what it has: not every program needs more.
  EXPECT_EQ(choose(problem_of({here(), a}, both), {">fd00::fe", ">10.0.0.1"}).addresses,
            (Addresses{"10.0.0.254", "fd00::1"}));
}

TEST_F(Choice, names_a_host_that_the_next_cannot_reach_and_what_was_tried) {
  const auto problem =
      problem_of({far("a", {{"e", "10.0.0.1"}, {"f", "10.1.0.1"}}), far("b", {{"e", "10.0.0.2"}})});
  const auto choice = choose(problem, {">10.0.0.1", ">10.1.0.1"});
  ASSERT_EQ(choice.errors.size(), 1U);
  EXPECT_EQ(choice.errors[0].first, 0U);
  EXPECT_EQ(choice.errors[0].second,
            "no address of it can be reached from host b: 10.0.0.1: Connection refused; 10.1.0.1: "
            "Connection refused; --network-interface, or address= in the list of hosts, choose "
            "another of its own (behind NAT it has none that others reach, unless a VPN gives it "
            "one)");
}

TEST_F(Choice, names_a_host_that_cannot_reach_this_machine) {
  const auto problem = problem_of({far("a", {{"e", "10.0.0.1"}}), far("b", {{"e", "10.0.0.2"}})});
  const auto choice = choose(problem, {"b>10.0.0.254"});
  ASSERT_EQ(choice.errors.size(), 1U);
  EXPECT_EQ(choice.errors[0].first, 1U);
  EXPECT_EQ(choice.errors[0].second,
            "this machine cannot be reached from it: 10.0.0.254: Connection refused; "
            "--network-interface or --advertise-address choose another address");
}

TEST_F(Choice, takes_one_rendezvous_for_all_if_all_reach_one) {
  const auto problem =
      problem_of({far("a", {{"e", "10.0.0.1"}}), here(), far("b", {{"e", "10.0.0.2"}})}, endpoints);
  const auto choice = choose(problem, {"a>10.0.0.254"});
  EXPECT_TRUE(choice.errors.empty());
  for (const auto& rendezvous : choice.rendezvous) EXPECT_EQ(rendezvous.host, "10.1.0.254");
  EXPECT_EQ(choice.addresses, (Addresses{"10.0.0.1", "10.1.0.254", "10.0.0.2"}));
}

TEST_F(Choice, gives_each_its_own_rendezvous_if_it_must_and_no_worker_is_here) {
  const auto problem =
      problem_of({far("a", {{"e", "10.0.0.1"}}), far("b", {{"e", "10.0.0.2"}})}, endpoints);
  const auto choice = choose(problem, {"a>10.0.0.254", "b>10.1.0.254"});
  EXPECT_TRUE(choice.errors.empty());
  EXPECT_EQ(choice.rendezvous[0].host, "10.1.0.254");
  EXPECT_EQ(choice.rendezvous[1].host, "10.0.0.254");
}

TEST_F(Choice, wants_workers_here_to_be_reached_by_all) {
  const auto problem =
      problem_of({here(), far("a", {{"e", "10.0.0.1"}}), far("b", {{"e", "10.0.0.2"}})}, endpoints);
  const auto choice = choose(problem, {"a>10.0.0.254", "b>10.1.0.254"});
  ASSERT_EQ(choice.errors.size(), 1U);
  EXPECT_EQ(choice.errors[0].first, 1U);
  EXPECT_EQ(choice.errors[0].second,
            "the workers on this machine, at 10.0.0.254, cannot be reached from it, which reaches "
            "this machine only at 10.1.0.254; --advertise-address chooses one address for all");
}

TEST_F(Choice, names_a_host_whose_agent_did_not_answer_and_does_not_judge_the_others_by_it) {
  const auto problem = problem_of({far("a", {{"e", "10.0.0.1"}}), far("b", {{"e", "10.0.0.2"}})});
  const auto tasks = plan_probes(problem);
  const auto choice = choose_addresses(problem, tasks, {{{"", ""}, ""}, {{}, "it is dumb"}});
  ASSERT_EQ(choice.errors.size(), 1U);
  EXPECT_EQ(choice.errors[0], std::make_pair(HostIndex{1}, std::string("it is dumb")));
}

TEST(InterfaceWith, finds_the_one_that_has_the_address) {
  const std::vector<Interface> interfaces{{"e", "10.0.0.1"}, {"f", "fd00::1"}};
  EXPECT_EQ(interface_with(interfaces, "fd00::1"), "f");
  EXPECT_EQ(interface_with(interfaces, "127.0.0.1"), "lo");
  EXPECT_EQ(interface_with(interfaces, "10.0.0.2"), "");
}

// ---- one more host ----

Arrival arrival(const std::string& this_machine = "") {
  Arrival arrival;
  arrival.host = far("c", {{"eth0", "10.0.0.3"}, {"ib0", "10.1.0.3"}});
  arrival.candidates = {"10.0.0.3", "10.1.0.3"};
  arrival.endpoints = {{"10.0.0.254", 5000}, {"10.1.0.254", 5000}};
  arrival.here = this_machine;
  return arrival;
}
const ProbeAnswer kAll{{"", ""}, ""};
const ProbeAnswer kFirst{{"", "refused"}, ""};
const ProbeAnswer kSecond{{"refused", ""}, ""};
const ProbeAnswer kNone{{"refused", "no answer"}, ""};
const ProbeAnswer kSilent{{}, "its agent went away"};

TEST(Arrival, takes_the_address_that_most_reach_and_the_earlier_among_equals) {
  const auto address = [](const std::vector<Try>& tries) {
    return choose_arrival(arrival(), kAll, tries)->address;
  };
  EXPECT_EQ(address({{"host a", kAll}, {"host b", kAll}}), "10.0.0.3");
  EXPECT_EQ(address({{"host a", kAll}, {"host b", kSecond}}), "10.1.0.3");
  EXPECT_EQ(address({{"host a", kFirst}, {"host b", kSecond}}), "10.0.0.3");
  // A host that reaches nothing at all may have an error of its own.
  EXPECT_EQ(address({{"host a", kNone}, {"host b", kSecond}}), "10.1.0.3");
}

TEST(Arrival, is_taken_at_its_word_where_nobody_can_try) {
  EXPECT_EQ(choose_arrival(arrival(), kAll, {})->address, "10.0.0.3");
  EXPECT_EQ(choose_arrival(arrival(), kAll, {{"host a", kSilent}})->address, "10.0.0.3");
  auto deaf = arrival();
  deaf.host.probe_port = 0;
  EXPECT_TRUE(targets_of_others(deaf).empty());
  EXPECT_EQ(choose_arrival(deaf, kAll, {})->address, "10.0.0.3");
}

TEST(Arrival, out_of_everybodys_reach_is_named_with_all_that_was_tried) {
  const auto choice = choose_arrival(arrival(), kAll, {{"host a", kNone}, {"host b", kSilent}});
  ASSERT_FALSE(choice.ok());
  EXPECT_EQ(choice.status().message(),
            "no address of it can be reached from host a: 10.0.0.3: refused; 10.1.0.3: no answer; "
            "--network-interface, or address= in the list of hosts, choose another of its own "
            "(behind NAT it has none that others reach, unless a VPN gives it one)");
}

TEST(Arrival, has_to_be_reached_by_the_host_whose_workers_had_lost_its_own) {
  const Try others{"host b", kAll};
  const auto lost = [](const ProbeAnswer& answer) { return Try{"host a", answer, true}; };
  const auto none = choose_arrival(arrival(), kAll, {others, lost(kNone)});
  ASSERT_FALSE(none.ok());
  EXPECT_TRUE(none.status().message().starts_with("no address of it can be reached from host a: "))
      << none.status().message();
  EXPECT_EQ(choose_arrival(arrival(), kAll, {others, lost(kSecond)})->address, "10.1.0.3");
  EXPECT_EQ(choose_arrival(arrival(), kAll, {others, lost(kSilent)})->address, "10.0.0.3");
  EXPECT_FALSE(is_enough(kAll, {others, lost({})}));
  EXPECT_TRUE(is_enough(kAll, {others, lost(kNone)}));
}

TEST(Arrival, comes_through_the_first_endpoint_that_it_reaches) {
  EXPECT_EQ(choose_arrival(arrival(), kAll, {})->rendezvous.host, "10.0.0.254");
  EXPECT_EQ(choose_arrival(arrival(), kSecond, {})->rendezvous.host, "10.1.0.254");
  const auto choice = choose_arrival(arrival(), kNone, {});
  ASSERT_FALSE(choice.ok());
  EXPECT_EQ(choice.status().message(),
            "this machine cannot be reached from it: 10.0.0.254: refused; 10.1.0.254: no answer; "
            "--network-interface or --advertise-address choose another address");
}

TEST(Arrival, has_to_reach_the_workers_on_this_machine_where_they_are) {
  EXPECT_EQ(choose_arrival(arrival("10.1.0.254"), kAll, {})->rendezvous.host, "10.1.0.254");
  const auto choice = choose_arrival(arrival("10.1.0.254"), kFirst, {});
  ASSERT_FALSE(choice.ok());
  EXPECT_TRUE(choice.status().message().starts_with(
      "the workers on this machine, at 10.1.0.254, cannot be reached from it: "))
      << choice.status().message();
  // Where none of the endpoints is.
  EXPECT_FALSE(choose_arrival(arrival("127.0.0.1"), kAll, {}).ok());
}

TEST(Arrival, has_an_address_of_the_family_in_use) {
  EXPECT_EQ(*of_one_family({"10.0.0.3", "fd00::3"}, ""), (Addresses{"10.0.0.3", "fd00::3"}));
  EXPECT_EQ(*of_one_family({"10.0.0.3", "fd00::3"}, "fd00::1"), (Addresses{"fd00::3"}));
  const auto none = of_one_family({"10.0.0.3", "10.1.0.3"}, "fd00::1");
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().message(),
            "it has no IPv6 address, by which the job's workers reach each other; it has 10.0.0.3, "
            "10.1.0.3");
}

TEST(Arrival, waits_for_nobody_else_once_somebody_has_reached_the_best) {
  const ProbeAnswer waiting;
  EXPECT_FALSE(is_enough(std::nullopt, {{"host a", kAll}}));
  EXPECT_TRUE(is_enough(kAll, {}));
  EXPECT_FALSE(is_enough(kAll, {{"host a", waiting}}));
  EXPECT_TRUE(is_enough(kAll, {{"host a", waiting}, {"host b", kFirst}}));
  EXPECT_FALSE(is_enough(kAll, {{"host a", waiting}, {"host b", kSecond}}));
  EXPECT_TRUE(is_enough(kAll, {{"host a", kSilent}, {"host b", kSecond}}));
}

}  // namespace
}  // namespace hvd::driver
