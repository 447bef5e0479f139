// How ranks come to share memory, which processes may not, and how ranks do without.
#include "runtime/shm/shm_rendezvous.h"

#include <array>
#include <fstream>
#include <future>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

#include "base/log.h"
#include "base/security/handshake.h"
#include "base/socket.h"
#include "base/text.h"
#include "base/wire.h"
#include "runtime/net/member_connector.h"
#include "tests/runtime/control/worlds.h"

namespace hvd::test {
namespace {

using runtime::LocalRank;
using runtime::ShmRendezvous;

constexpr std::size_t kLittleMemory = 4096;

// Ranks that are threads. `before` is called in each before its rendezvous is opened, `meanwhile`
// once when all are open and nobody has come yet.
std::vector<Result<ShmRendezvous::Shared>> form(
    int size, const std::function<void(int rank)>& before = [](int) {},
    const std::function<void(std::vector<LocalRank>&)>& meanwhile = [](auto&) {},
    std::chrono::milliseconds handshake_timeout = kLong,
    TimePoint deadline = Clock::now() + kLong) {
  std::vector<Result<ShmRendezvous::Shared>> results;
  for (int rank = 0; rank < size; ++rank) results.emplace_back(Status(Code::internal, "no result"));
  Hub hub(size);
  std::mutex mutex;
  std::vector<LocalRank> names;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      before(rank);
      ShmRendezvous rendezvous(test_token, rank, 7, handshake_timeout);
      ASSERT_TRUE(rendezvous.open().ok());
      const auto all = hub.exchange(rank, rendezvous.name(), Clock::now() + kLong);
      ASSERT_TRUE(all.ok());
      std::vector<LocalRank> ranks;
      {
        const std::lock_guard lock(mutex);
        if (names.empty()) {
          for (int other = 0; other < size; ++other) {
            names.push_back({other, (*all)[static_cast<std::size_t>(other)]});
          }
          meanwhile(names);
        }
        ranks = names;
      }
      results[static_cast<std::size_t>(rank)] = rendezvous.form(ranks, kLittleMemory, deadline);
    });
  }
  for (auto& thread : threads) thread.join();
  return results;
}

void expect_all_share(const std::vector<Result<ShmRendezvous::Shared>>& results) {
  for (const auto& result : results) {
    ASSERT_TRUE(result.ok()) << result.status().to_string();
    ASSERT_TRUE(result->memory.has_value()) << result->why_not.to_string();
    const bool have_heaps = results.size() <= ShmRendezvous::kMostHeaps;
    EXPECT_EQ(result->heaps.size(), have_heaps ? results.size() : 0);
    for (const auto& heap : result->heaps) EXPECT_TRUE(heap);
  }
  results.front()->memory->chunk(0, 0)[100] = std::byte{42};
  for (const auto& result : results) {
    EXPECT_EQ(result->memory->chunk(0, 0)[100], std::byte{42});
  }
}

void expect_all_do_without(const std::vector<Result<ShmRendezvous::Shared>>& results) {
  for (const auto& result : results) {
    ASSERT_TRUE(result.ok()) << result.status().to_string();
    EXPECT_FALSE(result->memory.has_value());
    EXPECT_FALSE(result->why_not.ok());
  }
}

struct UnixAddress {
  sockaddr_un address{};
  socklen_t size = 0;
};

UnixAddress address_of(const std::string& name) {
  UnixAddress where;
  where.address.sun_family = AF_UNIX;
  name.copy(where.address.sun_path + 1, name.size());
  where.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return where;
}

UniqueFd stranger_at(const std::string& name) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto where = address_of(name);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&where.address), where.size), 0);
  return fd;
}

TEST(ShmRendezvous, RanksOfOneHostShareOneMemory) {
  for (const int size : {2, 3, 8, 64, 65}) expect_all_share(form(size));
}

TEST(ShmRendezvous, StrangersThatConnectHarmNoRank) {
  std::vector<UniqueFd> strangers;
  expect_all_share(form(
      4, [](int) {},
      [&](std::vector<LocalRank>& ranks) {
        for (const auto& rank : ranks) {
          strangers.push_back(stranger_at(rank.name));  // silent
          strangers.push_back(stranger_at(rank.name));
          const std::string garbage(3000, '\xFF');
          EXPECT_TRUE(send_all(strangers.back().get(), garbage, Clock::now() + kLong).ok());
          strangers.push_back(stranger_at(rank.name));
          strangers.back().reset();  // gone again
        }
      }));
}

// Listens where the first rank looks for rank 1. True if the first rank leaves without a byte when
// it is welcomed without a proof.
bool is_left_alone(int listener) {
  const auto is_readable = [](int fd) { return wait_for(fd, POLLIN, Clock::now() + kLong).ok(); };
  if (!is_readable(listener)) return false;
  const UniqueFd first(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  const HandshakeAcceptor handshake(Token::random(), "shared memory", {"rank 1", 7});
  const std::string welcome =
      encode_frame(static_cast<std::uint16_t>(HandshakeFrame::welcome),
                   WireWriter().str(std::string(sizeof(Digest), 'x')).bytes());
  if (!send_all(first.get(), handshake.challenge(), Clock::now() + kLong).ok()) return false;
  if (!is_readable(first.get())) return false;

  std::array<char, 4096> bytes{};
  const bool has_proof = ::recv(first.get(), bytes.data(), bytes.size(), 0) > 0;
  return has_proof && send_all(first.get(), welcome, Clock::now() + kLong).ok() &&
         is_readable(first.get()) && ::recv(first.get(), bytes.data(), bytes.size(), 0) == 0;
}

TEST(ShmRendezvous, AStrangerAtThePlaceOfARankGetsNoMemory) {
  const std::string name = cat("hvd-stranger-", ::getpid());
  const auto where = address_of(name);
  const UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&where.address), where.size),
            0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  auto left_alone =
      std::async(std::launch::async, [&listener] { return is_left_alone(listener.get()); });
  expect_all_do_without(form(
      2, [](int) {}, [&](std::vector<LocalRank>& ranks) { ranks[1].name = name; }));
  EXPECT_TRUE(left_alone.get());
}

// What rank 1 says to one who claims to be rank 0.
Status claim_to_be_first(const UniqueFd& connection, const Token& token) {
  return runtime::authenticate(connection.get(), token, "shared memory", {"rank 0", 7},
                               {"rank 1", 7}, Clock::now() + kLong)
      .status();
}

// The result of form() on rank 1 when rank 0 proves its identity and then calls `then` with its
// connection. `before` gets the name where rank 1 listens.
ShmRendezvous::Shared shared_with(
    const std::function<void(UniqueFd& connection)>& then, TimePoint deadline,
    const std::function<void(const std::string& name)>& before = [](const auto&) {}) {
  ShmRendezvous first(test_token, 0, 7, kLong);
  ShmRendezvous second(test_token, 1, 7, kLong);
  EXPECT_TRUE(first.open().ok());
  EXPECT_TRUE(second.open().ok());
  const std::vector<LocalRank> ranks{{0, first.name()}, {1, second.name()}};
  auto formed =
      std::async(std::launch::async, [&] { return second.form(ranks, kLittleMemory, deadline); });
  before(second.name());
  auto connection = stranger_at(second.name());
  EXPECT_TRUE(claim_to_be_first(connection, test_token).ok());
  then(connection);
  auto shared = formed.get();
  EXPECT_TRUE(shared.ok()) << shared.status().to_string();
  return shared.ok() ? std::move(*shared) : ShmRendezvous::Shared();
}

// Rank 1 waits on for rank 0, which comes after it.
TEST(ShmRendezvous, AStrangerGivesNoRankItsMemory) {
  shared_with([](UniqueFd& connection) { connection.reset(); }, Clock::now() + kLong,
              [](const std::string& name) {
                const auto stranger = stranger_at(name);
                EXPECT_EQ(claim_to_be_first(stranger, Token::random()).code(),
                          Code::unauthenticated);
              });
}

TEST(ShmRendezvous, AFirstRankThatSaysNothingIsGivenUpAtTheDeadline) {
  const auto shared =
      shared_with([](UniqueFd&) {}, Clock::now() + std::chrono::milliseconds(1'000));
  EXPECT_FALSE(shared.memory.has_value());
  EXPECT_EQ(shared.why_not.code(), Code::deadline_exceeded) << shared.why_not.to_string();
}

TEST(ShmRendezvous, AFirstRankThatIsGoneIsGivenUpAtOnce) {
  const auto shared =
      shared_with([](UniqueFd& connection) { connection.reset(); }, Clock::now() + kLong);
  EXPECT_FALSE(shared.memory.has_value());
  EXPECT_NE(shared.why_not.message().find("the other side closed the connection"),
            std::string::npos)
      << shared.why_not.to_string();
}

// It has connected to nobody when it stops listening.
TEST(ShmRendezvous, AFirstRankThatDoesNotReachThisOneIsGivenUpAtOnce) {
  const std::string name = cat("hvd-test-", ::getpid());
  const auto where = address_of(name);
  UniqueFd first(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(first.get(), reinterpret_cast<const sockaddr*>(&where.address), where.size), 0);
  ASSERT_EQ(::listen(first.get(), 1), 0);
  ShmRendezvous second(test_token, 1, 7, kLong);
  ASSERT_TRUE(second.open().ok());
  const auto deadline = Clock::now() + kLong;
  auto formed = std::async(std::launch::async, [&] {
    return second.form({{0, name}, {1, second.name()}}, kLittleMemory, deadline);
  });
  EXPECT_TRUE(wait_for(first.get(), POLLIN, deadline).ok());  // it has come
  first.reset();
  const auto shared = formed.get();
  ASSERT_TRUE(shared.ok()) << shared.status().to_string();
  EXPECT_FALSE(shared->memory.has_value());
  EXPECT_EQ(shared->why_not.message(), "rank 0: it does not connect to this rank");
}

// A process without the token, of another generation, or of another rank gets no memory.
TEST(ShmRendezvous, OnlyTheFirstRankOfThisGenerationIsAccepted) {
  ShmRendezvous first(test_token, 0, 7, kLong);
  ShmRendezvous second(test_token, 1, 7, kLong);
  ASSERT_TRUE(first.open().ok());
  ASSERT_TRUE(second.open().ok());
  const std::vector<LocalRank> ranks{{0, first.name()}, {1, second.name()}};
  auto others = std::async(std::launch::async,
                           [&] { return second.form(ranks, kLittleMemory, Clock::now() + kLong); });
  const auto prove = [&](const UniqueFd& fd, const Token& token, const std::string& name,
                         std::uint64_t generation) {
    return runtime::authenticate(fd.get(), token, "shared memory", {name, generation},
                                 {"rank 1", 7}, Clock::now() + kLong)
        .status();
  };
  const auto stranger = stranger_at(second.name());
  EXPECT_EQ(prove(stranger, Token::random(), "rank 0", 7).code(), Code::unauthenticated);
  const auto stale = stranger_at(second.name());
  EXPECT_EQ(prove(stale, test_token, "rank 0", 6).code(), Code::failed_precondition);
  const auto another = stranger_at(second.name());
  EXPECT_TRUE(prove(another, test_token, "rank 2", 7).ok());
  FrameDecoder decoder;
  EXPECT_EQ(receive_frame(another.get(), decoder, Clock::now() + kLong).status().code(),
            Code::unavailable)
      << "it was not disconnected";
  std::vector<Result<ShmRendezvous::Shared>> results;
  results.push_back(first.form(ranks, kLittleMemory, Clock::now() + kLong));
  results.push_back(others.get());
  expect_all_share(results);
}

TEST(ShmRendezvous, WhereOneRankDoesWithoutAllDo) {
  const auto results = form(
      3, [](int) {}, [](std::vector<LocalRank>& ranks) { ranks[2].name.clear(); });
  expect_all_do_without(results);
  EXPECT_EQ(results[0]->why_not.message(),
            "rank 2 does without, or may not listen on Unix sockets");
}

// Containers with networks of their own have the same host name, and are different hosts.
TEST(ShmRendezvous, ARankInAnotherNetworkNamespaceMakesAllDoWithout) {
  for (const int elsewhere : {0, 2}) {
    std::atomic<bool> possible = true;
    const auto results = form(3, [&](int rank) {
      if (rank == elsewhere && ::unshare(CLONE_NEWNET) != 0) possible = false;
    });
    if (!possible) GTEST_SKIP() << "this user may not make network namespaces";
    expect_all_do_without(results);
    EXPECT_NE(results[0]->why_not.message().find("Connection refused"), std::string::npos)
        << results[0]->why_not.to_string();
  }
}

TEST(ShmRendezvous, ARankThatHasGoneMakesTheOthersDoWithout) {
  Hub hub(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      std::optional<ShmRendezvous> rendezvous;
      rendezvous.emplace(test_token, rank, 7, kLong);
      ASSERT_TRUE(rendezvous->open().ok());
      const auto all = hub.exchange(rank, rendezvous->name(), Clock::now() + kLong);
      if (rank == 1) return;
      const auto shared = rendezvous->form({{0, (*all)[0]}, {1, (*all)[1]}, {2, (*all)[2]}},
                                           kLittleMemory, Clock::now() + kLong);
      ASSERT_TRUE(shared.ok()) << shared.status().to_string();
      EXPECT_FALSE(shared->memory.has_value());
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(ShmRendezvous, ARankThatIsWaitedForInVainIsAnErrorAtTheDeadline) {
  ShmRendezvous first(test_token, 0, 7, kLong);
  ShmRendezvous second(test_token, 1, 7, kLong);
  ASSERT_TRUE(first.open().ok());
  ASSERT_TRUE(second.open().ok());
  const auto shared = second.form({{0, first.name()}, {1, second.name()}}, kLittleMemory,
                                  Clock::now() + std::chrono::milliseconds(50));
  ASSERT_TRUE(shared.ok());
  EXPECT_EQ(shared->why_not.message(), "rank 0: rank 0 did not come");
}

TEST(ShmRendezvous, AnAbortEndsTheWaitForTheFirstRank) {
  ShmRendezvous first(test_token, 0, 7, kLong);
  ShmRendezvous second(test_token, 1, 7, kLong);
  ASSERT_TRUE(first.open().ok());
  ASSERT_TRUE(second.open().ok());
  std::thread aborter([&] { second.abort(); });
  const auto shared =
      second.form({{0, first.name()}, {1, second.name()}}, kLittleMemory, Clock::now() + kLong);
  EXPECT_FALSE(shared.ok() && shared->memory.has_value());
  aborter.join();
}

}  // namespace
}  // namespace hvd::test
