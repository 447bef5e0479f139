// Hosts of an elastic job that lose each other: the agents of both are asked, and one of them
// rests.
#include "driver/agents/address_book.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "driver/core/timers.h"

namespace hvd::driver {
namespace {

class AddressBookTest : public testing::Test {
 protected:
  // A host that does not answer for so long counts as dead.
  explicit AddressBookTest(Duration answers = std::chrono::hours(1)) : answers_(answers) {}

  // Hosts "h0", "h1", ... with these indices, which all reach each other.
  void SetUp() override {
    for (HostIndex host = 0; host < kHosts; ++host) {
      book_.find(host, network_of(host));
      answer();
    }
    ASSERT_EQ(found_, kHosts);
  }
  static HostNetwork network_of(HostIndex host) {
    HostNetwork network;
    network.name = name_of(host);
    network.interfaces = {{"lo", "127.0.0.1"}};
    network.peer_address = network.local_address = network.advertise_address = "127.0.0.1";
    network.probe_port = port_of(host);
    return network;
  }
  // Its agent has held workers, which listen there. Nothing: it reaches no listener.
  std::optional<ArrivalChoice> find_again(HostIndex host, const std::string& address) {
    choice_ = {};
    book_.find_again(host, network_of(host), address);
    EXPECT_EQ(sent_.size(), 1U) << "nobody tries to reach it";
    answer();
    return choice_.address.empty() ? std::nullopt : std::optional(choice_);
  }
  // `host` reaches no listener of this process.
  void lose_listeners(HostIndex host) { lost_here_ = host; }
  static std::string name_of(HostIndex host) { return cat("h", host); }

  // `from` does not reach `to`.
  void lose(HostIndex from, HostIndex to) { lost_.emplace(from, port_of(to)); }
  void heal(HostIndex from, HostIndex to) { lost_.erase({from, port_of(to)}); }
  void check(HostIndex from, HostIndex to) { book_.check(from, name_of(to)); }
  // All probes that were sent, except to an agent that is silent. Returns how many.
  int answer() {
    int answered = 0;
    for (const auto& [host, probe] : std::exchange(sent_, {})) {
      if (host == silent_) {
        sent_.emplace_back(host, probe);
        continue;
      }
      agent_link::Probed probed;
      probed.id = probe.id;
      for (const auto& target : probe.targets) {
        const bool is_lost = lost_.contains(std::pair(host, target.port)) || lost_here_ == host;
        probed.errors.emplace_back(is_lost ? "no answer within 2 s" : "");
      }
      EXPECT_TRUE(book_.on_probed(host, probed).ok());
      ++answered;
    }
    return answered;
  }
  void silence(HostIndex host) { silent_ = host; }
  void end_silence() { silent_ = kHosts; }
  void forget(HostIndex host) {
    std::erase_if(sent_, [host](const auto& sent) { return sent.first == host; });
    book_.forget(host);
  }
  // Until the book waits for nothing any more.
  void finish() {
    timers_.restart();
    timers_.run_for(std::chrono::seconds(30));
    EXPECT_TRUE(timers_.stopped());
  }
  // Until the time for reports is over: this timer has the same limit, and begins later.
  void end_reports() {
    bool is_over = false;
    OwnTimer timer(timers_);
    timer.begin(kReports, [&is_over] { is_over = true; });
    while (!is_over) timers_.run_one();
  }

  using Errors = std::vector<std::pair<HostIndex, std::string>>;
  const Errors& errors() const { return errors_; }
  using Hosts = std::vector<HostIndex>;
  Hosts hosts_that_rest() const {
    Hosts hosts;
    for (const auto& [host, why] : errors_) hosts.push_back(host);
    return hosts;
  }
  std::function<void()> at_error_ = [] {};

 private:
  static constexpr HostIndex kHosts = 5;
  static constexpr std::chrono::milliseconds kReports{1};
  static std::uint16_t port_of(HostIndex host) { return static_cast<std::uint16_t>(40'000 + host); }

  const Duration answers_;
  boost::asio::io_context timers_;
  boost::asio::io_context io_of_server_;
  rendezvous::Server server_{io_of_server_, Token::random(), {}};
  std::vector<std::pair<HostIndex, agent_link::Probe>> sent_;
  std::set<std::pair<HostIndex, std::uint16_t>> lost_;
  HostIndex silent_ = kHosts;
  HostIndex lost_here_ = kHosts;
  HostIndex found_ = 0;
  ArrivalChoice choice_;  // the newest
  Errors errors_;
  AddressBook book_{
      timers_,
      server_,
      {.advertise_address = "127.0.0.1", .network_interfaces = {}},
      false,
      {.send = [this](HostIndex host,
                      const agent_link::Probe& probe) { sent_.emplace_back(host, probe); },
       .on_found =
           [this](HostIndex, const ArrivalChoice& choice) {
             ++found_;
             choice_ = choice;
           },
       .on_error =
           [this](HostIndex host, const std::string& why) {
             errors_.emplace_back(host, why);
             at_error_();
           }},
      {.reports = kReports, .answers = answers_}};
};

TEST_F(AddressBookTest, WorkersThatAreHeldKeepTheirAddressAndReachTheServiceAtAnother) {
  const auto choice = find_again(2, "127.0.0.7");
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->address, "127.0.0.7");
  EXPECT_EQ(choice->rendezvous.host, "127.0.0.1");
  EXPECT_NE(choice->rendezvous.port, 0);

  lose_listeners(3);
  EXPECT_FALSE(find_again(3, "127.0.0.7"));
  ASSERT_EQ(errors().size(), 1U);
  EXPECT_EQ(errors().front().first, HostIndex{3});
  EXPECT_NE(errors().front().second.find("this machine cannot be reached from it"),
            std::string::npos)
      << errors().front().second;
}

TEST_F(AddressBookTest, AHostThatIsReachedAfterAllMakesNobodyRest) {
  check(2, 1);
  check(1, 2);
  answer();
  finish();
  EXPECT_EQ(errors(), Errors());
}

TEST_F(AddressBookTest, TheNewerOfTwoHostsThatLoseEachOtherRests) {
  const std::string late = " any more: no answer within 2 s";
  lose(2, 1);
  check(2, 1);
  answer();
  finish();
  EXPECT_EQ(errors(), (Errors{{2, "host h1 cannot be reached from it" + late}}));

  lose(0, 3);  // one way is enough, and it is the older host that reports it
  check(0, 3);
  answer();
  finish();
  ASSERT_EQ(errors().size(), 2U);
  EXPECT_EQ(errors().back(), std::pair(HostIndex{3}, "it cannot be reached from host h0" + late));
}

TEST_F(AddressBookTest, OfTwoHostsThatBothReportItOneRests) {
  lose(2, 1);
  lose(1, 2);
  check(1, 2);
  check(2, 1);
  answer();
  finish();
  EXPECT_EQ(hosts_that_rest(), Hosts{2});
}

TEST_F(AddressBookTest, WorkersOfOneHostShareACheck) {
  check(2, 1);
  EXPECT_EQ(answer(), 2);
  check(2, 1);
  EXPECT_EQ(answer(), 0);
  finish();

  check(2, 1);
  EXPECT_EQ(answer(), 2);
}

// A network that prohibits the connection answers at once, so that each report is settled before
// the next one comes.
TEST_F(AddressBookTest, AHostThatLosesSeveralOthersRestsAlone) {
  for (const HostIndex other : {1, 2, 3, 4}) {
    lose(0, other);
    lose(other, 0);
    check(other, 0);
    answer();
  }
  check(0, 1);
  answer();
  finish();
  EXPECT_EQ(hosts_that_rest(), Hosts{0});
}

TEST_F(AddressBookTest, NobodyRestsBecauseOfAHostThatIsDead) {
  for (const HostIndex other : {0, 2, 3}) {
    lose(other, 1);
    check(other, 1);
  }
  silence(1);
  answer();
  forget(1);
  finish();
  check(3, 2);
  answer();
  finish();
  EXPECT_EQ(errors(), Errors());
}

TEST_F(AddressBookTest, AChoiceThatWaitsForAHostAloneIsMadeWhenTheHostIsForgotten) {
  lose(2, 1);
  lose(2, 3);
  check(2, 1);
  check(2, 3);
  silence(3);
  answer();
  end_reports();
  forget(3);
  finish();
  EXPECT_EQ(hosts_that_rest(), Hosts{2});
}

TEST_F(AddressBookTest, AHostThatIsForgottenDuringTheChoiceDoesNotRest) {
  lose(2, 1);
  lose(4, 3);
  check(2, 1);
  check(4, 3);
  at_error_ = [this] { forget(2); };
  answer();
  finish();
  EXPECT_EQ(hosts_that_rest(), Hosts{4});
}

// Without heartbeats a silent host is never forgotten.
class SilentHostTest : public AddressBookTest {
 protected:
  SilentHostTest() : AddressBookTest(std::chrono::milliseconds(2)) {}
};

TEST_F(SilentHostTest, ASilentHostHoldsUpNoChoice) {
  lose(2, 1);
  lose(4, 3);
  check(2, 1);
  check(4, 3);
  silence(1);
  answer();
  finish();
  EXPECT_EQ(hosts_that_rest(), Hosts{4});
}

TEST_F(SilentHostTest, NothingOfAnEarlierFailureCountsInALaterOne) {
  lose(2, 1);
  check(2, 1);
  silence(1);
  answer();
  finish();

  end_silence();
  EXPECT_EQ(answer(), 1);  // too late
  heal(2, 1);
  check(2, 1);
  answer();
  finish();
  EXPECT_EQ(errors(), Errors());
}

}  // namespace
}  // namespace hvd::driver
