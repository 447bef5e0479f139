// Hosts of an elastic job that lose each other: the agents of both are asked, and one of them
// rests.
#include "driver/agents/address_book.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"

namespace hvd::driver {
namespace {

class AddressBookTest : public testing::Test {
 protected:
  // Hosts "h0", "h1", ... with these indices, which all reach each other.
  void SetUp() override {
    for (HostIndex host = 0; host < kHosts; ++host) {
      HostNetwork network;
      network.name = name_of(host);
      network.interfaces = {{"lo", "127.0.0.1"}};
      network.peer_address = network.local_address = network.advertise_address = "127.0.0.1";
      network.probe_port = static_cast<std::uint16_t>(40'000 + host);
      book_.find(host, network);
      answer();
    }
    ASSERT_EQ(found_, kHosts);
  }
  static std::string name_of(HostIndex host) { return cat("h", host); }

  // `from` does not reach `to`.
  void lose(HostIndex from, HostIndex to) {
    lost_.emplace_back(from, static_cast<std::uint16_t>(40'000 + to));
  }
  void check(HostIndex from, HostIndex to) { book_.check(from, name_of(to)); }
  // Of all probes that were sent, except to agents that are dead.
  void answer() {
    while (!sent_.empty()) {
      const auto [host, probe] = sent_.front();
      sent_.pop_front();
      if (host == dead_) continue;
      agent_link::Probed probed;
      probed.id = probe.id;
      for (const auto& target : probe.targets) {
        const bool is_lost =
            std::find(lost_.begin(), lost_.end(), std::pair(host, target.port)) != lost_.end();
        probed.errors.emplace_back(is_lost ? "no answer within 2 s" : "");
      }
      EXPECT_TRUE(book_.on_probed(host, probed).ok());
    }
  }
  void kill(HostIndex host) { dead_ = host; }

  using Errors = std::vector<std::pair<HostIndex, std::string>>;
  const Errors& errors() const { return errors_; }
  AddressBook& book() { return book_; }

 private:
  static constexpr HostIndex kHosts = 5;
  boost::asio::io_context io_;
  rendezvous::Server server_{io_, Token::random(), {}};
  std::deque<std::pair<HostIndex, agent_link::Probe>> sent_;
  std::vector<std::pair<HostIndex, std::uint16_t>> lost_;
  HostIndex dead_ = kHosts;
  HostIndex found_ = 0;
  Errors errors_;
  AddressBook book_{
      io_,
      server_,
      {.advertise_address = "127.0.0.1"},
      false,
      {.send = [this](HostIndex host,
                      const agent_link::Probe& probe) { sent_.emplace_back(host, probe); },
       .on_found = [this](HostIndex, const ArrivalChoice&) { ++found_; },
       .on_error = [this](HostIndex host,
                          const std::string& why) { errors_.emplace_back(host, why); }}};
};

TEST_F(AddressBookTest, AHostThatIsReachedAfterAllMakesNobodyRest) {
  check(2, 1);
  check(1, 2);
  answer();
  EXPECT_EQ(errors(), Errors());
}

TEST_F(AddressBookTest, TheNewerOfTwoHostsThatLoseEachOtherRests) {
  const std::string late = " any more: no answer within 2 s";
  lose(2, 1);
  check(2, 1);
  answer();
  EXPECT_EQ(errors(), (Errors{{2, "host h1 cannot be reached from it" + late}}));

  lose(0, 3);  // one way is enough, and it is the older host that reports it
  check(0, 3);
  answer();
  ASSERT_EQ(errors().size(), 2U);
  EXPECT_EQ(errors().back(), std::pair(HostIndex{3}, "it cannot be reached from host h0" + late));
}

TEST_F(AddressBookTest, OfTwoHostsThatBothReportItOneRests) {
  lose(2, 1);
  lose(1, 2);
  check(1, 2);
  check(2, 1);
  check(2, 1);  // by another worker
  answer();
  ASSERT_EQ(errors().size(), 1U);
  EXPECT_EQ(errors().front().first, HostIndex{2});
}

TEST_F(AddressBookTest, AHostThatLosesSeveralOthersRestsAlone) {
  for (const HostIndex other : {1, 2, 3, 4}) {
    lose(0, other);
    lose(other, 0);
    check(other, 0);
  }
  check(0, 1);
  answer();
  ASSERT_EQ(errors().size(), 1U);
  EXPECT_EQ(errors().front().first, HostIndex{0});
}

TEST_F(AddressBookTest, NobodyRestsBecauseOfAHostThatIsDead) {
  for (const HostIndex other : {0, 2, 3}) {
    lose(other, 1);
    check(other, 1);
  }
  kill(1);
  answer();
  EXPECT_EQ(errors(), Errors());
  book().forget(1);
  check(3, 2);
  answer();
  EXPECT_EQ(errors(), Errors());
}

}  // namespace
}  // namespace hvd::driver
