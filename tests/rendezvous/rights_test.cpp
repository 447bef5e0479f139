// Who may write what: the table, and a server that has workers.
#include "rendezvous/rights.h"

#include <atomic>
#include <gtest/gtest.h>
#include <map>
#include <thread>

#include "base/protocol/credentials.h"
#include "base/text.h"
#include "rendezvous/client.h"
#include "tests/rendezvous/server_fixture.h"
#include "tests/support/process.h"

namespace hvd::rendezvous {
namespace {

constexpr Incarnation kLeader = 7;    // rank 0 of generation 3 and 4
constexpr Incarnation kSecond = 8;    // rank 1 of generation 3
constexpr Incarnation kNewcomer = 9;  // rank 1 of generation 4

Rights rights() {
  Rights rights;
  rights.set_members(3, {kLeader, kSecond}, true);
  rights.set_members(4, {kLeader, kNewcomer}, false);
  return rights;
}

struct Case {
  Incarnation worker;
  const char* scope;
  const char* key;
  const char* value;
  const char* refusal;  // empty: it may
};

TEST(Rights, AreThoseOfTheTable) {
  const Case cases[] = {
      // hvdrun, or the holder of a token file
      {0, "world", "current", "{}", ""},
      {0, "world.9.1", "rank-5", "x", ""},
      {0, "elastic", "committed", "9.1", ""},
      // the world
      {kLeader, "world", "current", "{}", "only hvdrun"},
      {kLeader, "world", "proposed", "{}", "only hvdrun"},
      {kLeader, "world", "anything", "", "only hvdrun"},
      // the entries of a world
      {kSecond, "world.3.1", "rank-1", "x", ""},
      {kSecond, "world.3.17", "rank-1", "", ""},
      {kSecond, "world.3.1", "given-up", "rank 1 on a#1", ""},
      {kSecond, "world.3.1", "rank-0", "x", "does not belong to rank 1"},
      {kSecond, "world.3.1", "rank-01", "x", "does not belong to rank 1"},
      {kSecond, "world.3.1", "sets", "x", "does not belong to rank 1"},
      {kSecond, "world.3.1", "other", "x", "does not belong to rank 1"},
      {kLeader, "world.3.1", "sets", "x", ""},
      {kLeader, "world.3.1", "rank-1", "x", "does not belong to rank 0"},
      {kSecond, "world.4.1", "rank-1", "x", "no member of generation 4"},
      {kNewcomer, "world.4.1", "rank-1", "x", ""},
      {kNewcomer, "world.3.1", "rank-1", "x", "no member of generation 3"},
      {kLeader, "world.5.1", "rank-0", "x", "no world of generation \"5\""},
      {kLeader, "world.", "rank-0", "x", "no world of generation \"\""},
      {kLeader, "world.x.1", "rank-0", "x", "no world of generation \"x\""},
      // commits
      {kLeader, "elastic", "committed", "3.1", ""},
      {kLeader, "elastic", "committed", "4.17.2", ""},
      {kSecond, "elastic", "committed", "3.1", "only rank 0 of generation \"3\""},
      {kNewcomer, "elastic", "committed", "4.1", "only rank 0 of generation \"4\""},
      {kLeader, "elastic", "committed", "5.1", "only rank 0 of generation \"5\""},
      {kLeader, "elastic", "committed", "", "only rank 0"},
      {kLeader, "elastic", "committed", "nonsense", "only rank 0"},
      {kLeader, "elastic", "committed", "3.junk", "\"3.junk\" is not a commit"},
      {kLeader, "elastic", "committed", "3", "\"3\" is not a commit"},
      {kLeader, "elastic", "other", "3.1", "nothing there but its commits"},
      // the program's own
      {kSecond, "mine", "rank-0", "x", ""},
      {kSecond, "worlds", "current", "x", ""},
      {kSecond, "elastic.mine", "committed", "x", ""},
      {kSecond, "global", "size", "x", ""},
  };
  for (const auto& one : cases) {
    const Status right = rights().check_write(one.worker, one.scope, one.key, one.value, "");
    const std::string what = cat(one.worker, " ", one.scope, "/", one.key, "=", one.value);
    EXPECT_EQ(right.ok(), *one.refusal == '\0') << what << ": " << right.to_string();
    EXPECT_NE(right.message().find(one.refusal), std::string::npos)
        << what << ": " << right.message();
  }
}

// Of a world that nobody leaves for long more and more others are proposed.
TEST(Rights, InAWorldInForceOutliveAnyNumberOfProposals) {
  Rights rights;
  const std::vector<Incarnation> many(Rights::kMembers / Rights::kWorlds, kLeader);
  rights.set_members(1, many, false);
  rights.set_members(2, many, true);
  const auto last = std::uint64_t{Rights::kWorlds} + 10;
  for (std::uint64_t generation = 3; generation <= last; ++generation) {
    rights.set_members(generation, many, false);
  }
  const auto may_write = [&](std::uint64_t generation) {
    return rights.check_write(kLeader, cat("world.", generation, ".1"), "rank-0", "x", "").ok();
  };
  EXPECT_TRUE(may_write(2));
  EXPECT_TRUE(rights.check_write(kLeader, "elastic", "committed", "2.1", "1.9").ok());
  EXPECT_TRUE(may_write(last));
  EXPECT_FALSE(may_write(1)) << "their memory is bounded";
  EXPECT_FALSE(may_write(3)) << "their memory is bounded";
}

TEST(Rights, ManySmallWorldsAreRemembered) {
  Rights rights;
  rights.set_members(1, {kLeader}, true);
  for (std::uint64_t generation = 2; generation <= 10'000; ++generation) {
    rights.set_members(generation, {kLeader}, false);
  }
  EXPECT_TRUE(rights.check_write(kLeader, "world.2.1", "rank-0", "x", "").ok());
}

TEST(Rights, NoWorldCommitsOnceANewerOneIsInForceOrHasCommitted) {
  Rights both = rights();
  const auto commit = [&both](const char* value, const char* current) {
    return both.check_write(kLeader, "elastic", "committed", value, current);
  };
  EXPECT_TRUE(commit("3.2", "3.1").ok());
  EXPECT_TRUE(commit("4.1", "3.9").ok());
  EXPECT_TRUE(commit("4.1.1", "4.7").ok());
  EXPECT_NE(commit("3.2", "4.1").message().find("generation 3 is over"), std::string::npos);
  both.set_members(4, {kLeader, kNewcomer}, true);
  EXPECT_NE(commit("3.2", "3.1").message().find("generation 3 is over"), std::string::npos);
  EXPECT_TRUE(commit("4.1", "3.1").ok());
}

// A job of two workers, of which one has ended.
class WorkersOfAJob : public ::testing::Test {
 protected:
  WorkersOfAJob() : server_(options()) {
    server_.on_its_thread([](Server& server) {
      server.set_members(3, {kLeader, kSecond}, true);
      server.put("world", "current", "the world");
    });
  }

  Client client_of(Incarnation worker, const std::string& name) {
    auto options = server_.client_options();
    options.worker = worker;
    return {options, worker_credential(server_.token(), name, worker)};
  }
  void end(Incarnation worker) {
    server_.on_its_thread([&](Server&) { workers_[worker].has_ended = true; });
  }

  // For the thread of the server.
  std::map<Incarnation, KnownWorker> workers_{{kLeader, {"a#0", false}}, {kSecond, {"b#0", false}}};
  int lookups_ = 0;  // likewise
  test::RunningServer server_;

 private:
  ServerOptions options() {
    ServerOptions options;
    options.find_worker = [this](Incarnation worker) -> std::optional<KnownWorker> {
      ++lookups_;
      const auto found = workers_.find(worker);
      return found == workers_.end() ? std::nullopt : std::optional(found->second);
    };
    return options;
  }
};

TEST_F(WorkersOfAJob, WriteWhatIsTheirsAndReadAll) {
  auto leader = client_of(kLeader, "a#0");
  auto second = client_of(kSecond, "b#0");
  EXPECT_EQ(leader.get("world", "current")->value, "the world");
  EXPECT_TRUE(leader.put("world.3.1", "rank-0", "here").ok());
  EXPECT_TRUE(second.put_many("world.3.1", {{"rank-1", "there"}}).ok());
  EXPECT_EQ(second.get("world.3.1", "rank-0")->value, "here");
  EXPECT_TRUE(leader.compare_and_set("elastic", "committed", "3.1", 0).ok());
  EXPECT_TRUE(second.put("mine", "k", "v").ok());
  EXPECT_TRUE(second.erase("mine", "k").ok());
}

TEST_F(WorkersOfAJob, AreToldWhyTheyMayNotWrite) {
  auto second = client_of(kSecond, "b#0");
  const auto refused = [](const Status& status) {
    EXPECT_EQ(status.code(), Code::failed_precondition) << status.to_string();
    EXPECT_NE(status.message().find("status 403"), std::string::npos) << status.to_string();
  };
  refused(second.put("world", "current", "mine").status());
  refused(second.compare_and_set("world", "proposed", "mine", 0).status());
  refused(second.erase("world", "current"));
  refused(second.put("world.3.1", "rank-0", "mine").status());
  refused(second.put_many("world.3.1", {{"rank-1", "right"}, {"rank-0", "wrong"}}));
  refused(second.compare_and_set("elastic", "committed", "3.1", 0).status());

  auto job = server_.client();
  EXPECT_EQ(job->get("world", "current")->value, "the world");
  EXPECT_EQ(job->get("world.3.1", "rank-1").status().code(), Code::not_found);
  EXPECT_EQ(job->get("elastic", "committed").status().code(), Code::not_found);
}

TEST_F(WorkersOfAJob, CannotPassForEachOtherOrForHvdrun) {
  auto options = server_.client_options();
  const Token own = worker_credential(server_.token(), "b#0", kSecond);
  for (const Incarnation claimed : {Incarnation{0}, kLeader, kNewcomer}) {
    options.worker = claimed;
    const auto put = Client(options, own).put("mine", "k", "v");
    EXPECT_EQ(put.status().code(), Code::unauthenticated) << claimed;
  }
  // Another slot, as if the worker stood elsewhere.
  EXPECT_EQ(client_of(kSecond, "a#0").get("world", "current").status().code(),
            Code::unauthenticated);
}

TEST_F(WorkersOfAJob, HaveNoCredentialAfterTheirEnd) {
  auto second = client_of(kSecond, "b#0");
  EXPECT_TRUE(second.put("mine", "k", "v").ok());
  end(kSecond);
  for (int time = 0; time < 2; ++time) {
    const auto put = second.put("mine", "k", "late");
    EXPECT_EQ(put.status().code(), Code::failed_precondition) << put.status().to_string();
    EXPECT_NE(put.status().message().find(
                  "the credential of worker b#0, incarnation 8, has ended with that worker"),
              std::string::npos)
        << put.status().to_string();
    EXPECT_FALSE(client_of(kSecond, "b#0").get("world", "current").ok());
  }
  EXPECT_EQ(client_of(kLeader, "a#0").get("mine", "k")->value, "v");
}

TEST_F(WorkersOfAJob, HearNothingAfterTheirEndForWhichTheyHadWaited) {
  std::atomic<bool> has_answer = false;
  Status answer;
  std::thread waiting([&] {
    auto second = client_of(kSecond, "b#0");
    answer = second.wait("mine", "late", Clock::now() + hvd::test::kGenerous).status();
    has_answer = true;
  });
  // A request is looked at and begins to wait in one turn of the server's thread.
  EXPECT_TRUE(hvd::test::eventually([&] {
    bool waits = false;
    server_.on_its_thread([&](Server&) { waits = lookups_ > 0; });
    return waits;
  }));
  EXPECT_FALSE(has_answer);

  end(kSecond);
  server_.on_its_thread([](Server& server) { server.put("mine", "late", "v"); });
  waiting.join();
  EXPECT_EQ(answer.code(), Code::failed_precondition) << answer.to_string();
  EXPECT_NE(answer.message().find("has ended with that worker"), std::string::npos)
      << answer.to_string();
}

// Numbers of clients can be seen on the wire.
TEST_F(WorkersOfAJob, DoNotUseUpTheCountersOfOthersClients) {
  Signer leader(worker_credential(server_.token(), "a#0", kLeader), 1, kLeader);
  Signer second(worker_credential(server_.token(), "b#0", kSecond), 1, kSecond);
  test::RawConnection connection(server_.address());
  for (int i = 0; i < 70; ++i) {
    connection.send(test::signed_request(second, "GET", "/world/current"));
    ASSERT_EQ(connection.receive().status, 200);
  }
  connection.send(test::signed_request(leader, "GET", "/world/current"));
  EXPECT_EQ(connection.receive().status, 200);
}

TEST_F(WorkersOfAJob, AMalformedNameOfAWorkerIsRefused) {
  const std::string good = "worker-8 0000000000000001 1 1 - ";
  for (const char* const name : {"worker-", "worker-0", "worker--8", "worker-8x", "worker-08 x"}) {
    test::RawConnection connection(server_.address());
    connection.send(cat("GET /world/current HTTP/1.1\r\nAuthorization: HVD1 ", name,
                        good.substr(good.find(' ')), std::string(64, '0'), "\r\n\r\n"));
    EXPECT_EQ(connection.receive().status, 401) << name;
  }
}

}  // namespace
}  // namespace hvd::rendezvous
