#include "worker/launch/launched_world.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace hvd::worker {
namespace {

Introduction at(const std::string& host, const std::vector<Interface>& interfaces) {
  return {"build", host, interfaces, "", std::string(64, 'a')};
}

std::string addresses_of(const std::vector<Introduction>& introductions) {
  const auto members = arrange(introductions);
  if (!members.ok()) return members.status().message();
  std::string text;
  for (const auto& member : *members) {
    text += cat(member.worker(), " at ", member.address, " local ", member.local_rank, "/",
                member.local_size, " cross ", member.cross_rank, "/", member.cross_size, "\n");
  }
  return text;
}

TEST(LaunchedWorld, OneHostMeetsAtItsLoopback) {
  EXPECT_EQ(addresses_of({at("a", {}), at("a", {})}),
            "a#0 at 127.0.0.1 local 0/2 cross 0/1\na#1 at 127.0.0.1 local 1/2 cross 0/1\n");
}

TEST(LaunchedWorld, HostsMeetOnTheFirstInterfaceOfAll) {
  EXPECT_EQ(addresses_of({at("a", {{"ib0", "10.1.0.1"}, {"eth0", "10.0.0.1"}}),
                          at("b", {{"eth0", "10.0.0.2"}, {"eth1", "10.2.0.2"}})}),
            "a#0 at 10.0.0.1 local 0/1 cross 0/2\nb#0 at 10.0.0.2 local 0/1 cross 1/2\n");
}

TEST(LaunchedWorld, WithoutOneTheyMeetOnTheFirstOfEach) {
  EXPECT_EQ(addresses_of({at("a", {{"eth0", "10.0.0.1"}}), at("b", {{"ens1", "10.0.0.2"}})}),
            "a#0 at 10.0.0.1 local 0/1 cross 0/2\nb#0 at 10.0.0.2 local 0/1 cross 1/2\n");
}

TEST(LaunchedWorld, RanksMayGoRoundTheHosts) {
  const std::vector<Interface> any{{"eth0", "10.0.0.1"}};
  EXPECT_EQ(addresses_of({at("a", any), at("b", any), at("a", any), at("c", any), at("b", any)}),
            "a#0 at 10.0.0.1 local 0/2 cross 0/3\nb#0 at 10.0.0.1 local 0/2 cross 1/3\n"
            "a#1 at 10.0.0.1 local 1/2 cross 0/2\nc#0 at 10.0.0.1 local 0/1 cross 2/3\n"
            "b#1 at 10.0.0.1 local 1/2 cross 1/2\n");
}

TEST(LaunchedWorld, AMismatchIsNamed) {
  EXPECT_EQ(addresses_of({at("a", {{"eth0", "10.0.0.1"}}), at("b", {})}),
            "rank 1 on b has no address at which other hosts could reach it; "
            "HVD_NETWORK_INTERFACE names interfaces");
  auto other = at("b", {});
  other.build_id = "another";
  EXPECT_EQ(addresses_of({at("a", {}), other}),
            "rank 1 on b has hvd of build another, and rank 0 on a of build build: install the "
            "same hvd on both hosts");
}

TEST(LaunchedWorld, InterfacesOfThisHostAloneDoNotCount) {
  const std::vector<Interface> all{{"lo", "127.0.0.1"},       {"docker0", "172.17.0.1"},
                                   {"eth0", "fe80::1"},       {"eth0", "fd00::1"},
                                   {"eth0", "10.0.0.1"},      {"eth1", "169.254.1.1"},
                                   {"virbr0", "192.168.1.1"}, {"ib0", "10.1.0.1"}};
  EXPECT_EQ(
      reachable_interfaces(all, ""),
      (std::vector<Interface>{{"eth0", "10.0.0.1"}, {"ib0", "10.1.0.1"}, {"eth0", "fd00::1"}}));
  EXPECT_EQ(reachable_interfaces(all, "ib0,docker0"),
            (std::vector<Interface>{{"ib0", "10.1.0.1"}, {"docker0", "172.17.0.1"}}));
  EXPECT_TRUE(reachable_interfaces(all, "nothing").empty());
}

TEST(LaunchedWorld, AnIntroductionIsReadAsItWasWritten) {
  auto one = at("h\xffost", {{"eth0", "10.0.0.1"}});
  one.wanted = "eth0";
  const auto read = Introduction::from_json(one.to_json());
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->interfaces, one.interfaces);
  EXPECT_EQ(read->token, one.token);
  EXPECT_EQ(read->wanted, "eth0");
  for (const char* const wrong :
       {"", "{", "[]", "{}", R"({"build":1})",
        R"({"build":"","host":"","token":"","wanted":"","interfaces":[1]})"}) {
    EXPECT_FALSE(Introduction::from_json(wrong).ok()) << wrong;
  }
}

// A launcher that gives these answers, whatever this process says.
class Answers : public LauncherStore {
 public:
  explicit Answers(Result<std::vector<std::string>> answers) : answers_(std::move(answers)) {}
  int rank() const override { return 0; }
  int size() const override { return 2; }
  Result<std::vector<std::string>> gather(std::string_view, TimePoint) override { return answers_; }

 private:
  Result<std::vector<std::string>> answers_;
};

TEST(LaunchedWorld, TheTokenIsThatOfRank0) {
  auto other = at("a", {});
  other.token = "not one";
  const std::string good = at("a", {}).to_json();
  Answers answers(std::vector<std::string>{good, other.to_json()});
  const auto met = meet(answers, other, kNever);
  ASSERT_TRUE(met.ok()) << met.status().to_string();
  EXPECT_EQ(to_hex(met->token.bytes()), std::string(64, 'a'));

  Answers bad(std::vector<std::string>{other.to_json(), good});
  EXPECT_NE(meet(bad, other, kNever).status().message().find("the token of rank 0"),
            std::string::npos);
  Answers broken(std::vector<std::string>{good, "?"});
  EXPECT_NE(meet(broken, other, kNever).status().message().find("rank 1"), std::string::npos);
}

}  // namespace
}  // namespace hvd::worker
