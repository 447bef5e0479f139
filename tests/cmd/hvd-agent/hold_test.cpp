// hvdrun has died, and its agent holds the workers until the next one comes.
#include <atomic>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <gtest/gtest.h>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "base/frame.h"
#include "base/machine/proc.h"
#include "base/protocol/worker_link.h"
#include "base/socket.h"
#include "base/text.h"
#include "base/versions.h"
#include "cmd/hvd-agent/host_claim.h"
#include "cmd/hvd-agent/link_handover.h"
#include "tests/cmd/hvd-agent/agent_under_test.h"
#include "tests/support/other_user.h"

namespace hvd::test {
namespace {

AgentOptions of_driver(std::uint64_t epoch, const std::string& host = "held",
                       std::uint32_t hold_ms = 60'000) {
  AgentOptions options;
  // Names of agents are known in the whole machine, and other tests run beside this one.
  options.hello.host = cat(host, "-", ::getpid());
  options.hello.epoch = epoch;
  options.hello.hold_ms = hold_ms;
  options.hello.takes_over = epoch > 1;
  options.hello.lease_ms = 400;
  options.hello.elastic = true;
  return options;
}

// As a driver does when its job is over; else the agent would hold its workers once more.
void shut_down(AgentUnderTest& agent) {
  agent.send(agent_link::Shutdown{}.encode());
  agent.until_closed();
  EXPECT_EQ(agent.wait_for_exit(), 0);
}

bool ticks(AgentUnderTest& agent, agent_link::Incarnation worker) {
  return agent.until_beating([&] { return agent.of(worker).out.find('\n') != std::string::npos; });
}

TEST(AgentHolds, WorkersRunOnAndTheNextDriverHearsAllThatWasSaid) {
  AgentUnderTest older(of_driver(1));
  older.launch_mode(1, {"tick"});
  ASSERT_TRUE(ticks(older, 1));
  older.launch(2, {"/bin/sh", "-c", "read line < \"$0\"; exit 7", older.directory().path() / "go"});
  ASSERT_EQ(::mkfifo((older.directory().path() / "go").c_str(), 0600), 0);
  ASSERT_TRUE(older.until_beating([&] { return older.of(2).pid > 0; }));
  const pid_t ticking = older.of(1).pid;
  const pid_t waiting = older.of(2).pid;
  older.close_link();

  // A second worker ends while nobody is there to hear of it.
  {
    const UniqueFd go(::open((older.directory().path() / "go").c_str(), O_WRONLY | O_CLOEXEC));
    ASSERT_TRUE(go);
  }
  ASSERT_TRUE(eventually([&] { return is_gone(waiting); }));
  ASSERT_NE(state_of(ticking), 'T');

  AgentUnderTest newer(of_driver(2));
  ASSERT_TRUE(newer.ready);
  EXPECT_TRUE(newer.ready->was_held);
  EXPECT_EQ(newer.ready->pid, older.pid());
  ASSERT_TRUE(newer.until_beating([&] { return newer.of(2).exited && newer.of(1).pid > 0; }));
  EXPECT_EQ(newer.of(1).pid, ticking);
  EXPECT_EQ(newer.of(2).exited->exit_code, 7);
  ASSERT_TRUE(ticks(newer, 1)) << "its output comes again";
  EXPECT_EQ(state_of(ticking) == 'T', false);

  newer.send(agent_link::Shutdown{3}.encode());
  EXPECT_EQ(newer.wait_for_exit(), 3);
  EXPECT_EQ(older.wait_for_exit(), 3);
  EXPECT_TRUE(is_gone(ticking));
}

// The lease of workers that nobody may have given up does not run out.
TEST(AgentHolds, TheLeaseStandsStillWhileThereIsNoDriver) {
  AgentUnderTest older(of_driver(1, "lease"));
  older.launch_mode(1, {"tick"});
  ASSERT_TRUE(ticks(older, 1));
  const pid_t worker = older.of(1).pid;
  older.close_link();
  const TimePoint until = Clock::now() + std::chrono::milliseconds(1'200);
  while (Clock::now() < until) ASSERT_NE(state_of(worker), 'T');

  AgentUnderTest newer(of_driver(2, "lease"));
  ASSERT_TRUE(newer.ready);
  EXPECT_TRUE(newer.ready->was_held);
  // From now on it runs as ever.
  EXPECT_TRUE(eventually([&] { return state_of(worker) == 'T'; }));
  EXPECT_TRUE(ticks(newer, 1));
  shut_down(newer);
}

// They may have been given up while their driver was silent, before it died.
TEST(AgentHolds, WorkersThatWereFrozenStayFrozenUntilADriverComes) {
  AgentUnderTest older(of_driver(1, "frozen"));
  older.launch_mode(1, {"tick"});
  ASSERT_TRUE(ticks(older, 1));
  const pid_t worker = older.of(1).pid;
  ASSERT_TRUE(eventually([&] { return state_of(worker) == 'T'; }));
  older.close_link();

  AgentUnderTest newer(of_driver(2, "frozen"));
  ASSERT_TRUE(newer.ready);
  EXPECT_TRUE(newer.ready->was_held);
  EXPECT_TRUE(newer.until_beating([&] { return state_of(worker) != 'T'; }));
  shut_down(newer);
}

TEST(AgentHolds, AllEndsIfNoDriverComes) {
  AgentUnderTest agent(of_driver(1, "nobody", 300));
  agent.launch_mode(1, {"daemon"});
  ASSERT_TRUE(ticks(agent, 1));
  const pid_t worker = agent.of(1).pid;
  agent.close_link();
  EXPECT_EQ(agent.wait_for_exit(), 1);
  EXPECT_TRUE(is_gone(worker));
}

TEST(AgentHolds, WithoutATimeForItWorkersEndWithTheLink) {
  AgentUnderTest agent(of_driver(1, "none", 0));
  agent.launch_mode(1, {"tick"});
  ASSERT_TRUE(ticks(agent, 1));
  const pid_t worker = agent.of(1).pid;
  agent.close_link();
  EXPECT_EQ(agent.wait_for_exit(), 1);
  EXPECT_TRUE(is_gone(worker));
}

// Else they would look for it where its predecessor was.
TEST(AgentHolds, WorkersHearOfADriverAtAnotherAddressWhenThatIsKnown) {
  AgentUnderTest older(of_driver(1, "moves"));
  older.launch_mode(1, {"read-channel"});
  ASSERT_TRUE(older.until_beating([&] { return older.of(1).pid > 0; }));
  older.close_link();

  auto options = of_driver(2, "moves");
  options.hello.rendezvous_follows = true;
  AgentUnderTest newer(options);
  ASSERT_TRUE(newer.ready);
  // The worker says of each frame how long it is.
  const auto has_read = [&](const std::string& frame) {
    FrameDecoder decoder;
    decoder.feed(frame);
    const auto read = decoder.next();
    const auto line = cat("kind ", (*read)->kind, " of ", (*read)->payload.size(), " bytes");
    return newer.of(1).out.find(line) != std::string::npos;
  };
  const auto comes_back = worker_link::DriverGone{false, "10.0.0.9", 4000}.encode();
  newer.send(agent_link::World{7, true, "newest"}.encode());
  ASSERT_TRUE(newer.until_beating([&] {
    return has_read(worker_link::World{7, true, "newest"}.encode());
  })) << newer.of(1).out;
  EXPECT_FALSE(has_read(comes_back)) << newer.of(1).out;
  newer.send(agent_link::Rendezvous{"10.0.0.9", 4000}.encode());
  EXPECT_TRUE(newer.until_beating([&] { return has_read(comes_back); })) << newer.of(1).out;
  shut_down(newer);
}

// One that was held up for long, and comes back beside its successor.
TEST(AgentHolds, AnOlderDriverIsNotObeyed) {
  AgentUnderTest first(of_driver(2, "fence"));
  first.launch_mode(1, {"tick"});
  ASSERT_TRUE(ticks(first, 1));
  const pid_t worker = first.of(1).pid;
  first.close_link();

  auto late = of_driver(2, "fence");
  late.greet = false;
  AgentUnderTest older(late);
  late.hello.build_id = std::string(build_id());
  late.hello.job_id = "test";
  older.send(late.hello.encode());
  older.until_closed();
  EXPECT_FALSE(older.ready);
  EXPECT_FALSE(is_gone(worker));

  AgentUnderTest third(of_driver(3, "fence"));
  ASSERT_TRUE(third.ready);
  EXPECT_TRUE(third.ready->was_held);
  EXPECT_TRUE(ticks(third, 1));
  shut_down(third);
}

// As the driver kills an agent that it drops: what it has started there is only a messenger.
TEST(AgentHolds, AKilledMessengerEndsTheAgent) {
  AgentUnderTest older(of_driver(1, "messenger"));
  older.launch_mode(1, {"tick"});
  ASSERT_TRUE(ticks(older, 1));
  const pid_t worker = older.of(1).pid;
  older.close_link();
  AgentUnderTest newer(of_driver(2, "messenger"));
  ASSERT_TRUE(newer.ready);
  ASSERT_EQ(::kill(newer.pid(), SIGKILL), 0);
  EXPECT_EQ(older.wait_for_exit(), 1);
  EXPECT_TRUE(is_gone(worker));
}

// Where an agent of this user and this job takes links.
AbstractAddress handover_of(const AgentOptions& options) {
  return AbstractAddress(agent::handover_name(agent::claim_name("test", options.hello.host)));
}

// Any user may connect there.
TEST(AgentHolds, AnotherUserHandsNoLinkOver) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  AgentUnderTest older(of_driver(1, "stranger"));
  older.launch_mode(1, {"tick"});
  ASSERT_TRUE(ticks(older, 1));
  const pid_t worker = older.of(1).pid;
  older.close_link();
  const AbstractAddress where = handover_of(of_driver(1, "stranger"));
  EXPECT_TRUE(as_other_user({}, [&where] {
    const auto connection = connect_unix(where.get(), where.size, Clock::now() + kGenerous);
    char byte = 0;
    return connection.ok() && wait_for(connection->get(), POLLIN, Clock::now() + kGenerous).ok() &&
           ::recv(connection->get(), &byte, 1, 0) == 0;
  })) << "the agent waits for its link";
  EXPECT_FALSE(is_gone(worker));

  AgentUnderTest newer(of_driver(2, "stranger"));
  ASSERT_TRUE(newer.ready);
  EXPECT_TRUE(newer.ready->was_held);
  EXPECT_TRUE(ticks(newer, 1));
  shut_down(newer);
}

// Another user has taken the name, and waits for a link.
TEST(AgentHolds, NoLinkIsHandedToAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const auto options = of_driver(2, "squatter");
  const AbstractAddress where = handover_of(options);
  auto listening = socket_pair();
  ASSERT_TRUE(listening.ok());
  std::atomic<bool> got_nothing = false;
  std::thread other_user([&] {
    got_nothing = as_other_user({}, [&] {
      const UniqueFd name(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (::bind(name.get(), where.get(), where.size) != 0 || ::listen(name.get(), 1) != 0 ||
          ::send(listening->second.get(), "x", 1, MSG_NOSIGNAL) != 1) {
        return false;
      }
      const UniqueFd messenger(::accept4(name.get(), nullptr, nullptr, SOCK_CLOEXEC));
      char byte = 0;
      return ::recv(messenger.get(), &byte, 1, 0) == 0;
    });
  });
  ASSERT_TRUE(wait_for(listening->first.get(), POLLIN, Clock::now() + kGenerous).ok());
  AgentUnderTest agent(options);
  other_user.join();
  EXPECT_TRUE(got_nothing) << "something of the link is passed on";
  ASSERT_TRUE(agent.ready);
  EXPECT_FALSE(agent.ready->was_held);
  agent.launch_mode(1, {"tick"});
  EXPECT_TRUE(ticks(agent, 1));
  shut_down(agent);
}

// A chain of drivers leaves one agent and one messenger.
TEST(AgentHolds, OneDriverAfterTheOther) {
  AgentUnderTest first(of_driver(1, "chain"));
  first.launch_mode(1, {"tick"});
  ASSERT_TRUE(ticks(first, 1));
  const pid_t worker = first.of(1).pid;
  first.close_link();
  for (std::uint64_t epoch = 2; epoch < 6; ++epoch) {
    AgentUnderTest next(of_driver(epoch, "chain"));
    ASSERT_TRUE(next.ready);
    EXPECT_TRUE(next.ready->was_held);
    EXPECT_TRUE(ticks(next, 1));
    next.close_link();
    EXPECT_EQ(next.wait_for_exit(), 0) << "the messenger is released";
    EXPECT_FALSE(is_gone(worker));
  }
  AgentUnderTest last(of_driver(6, "chain"));
  shut_down(last);
}

// The process that is told to end is the messenger; the older agent does what it is told.
TEST(AgentHolds, TheMessengerPassesSignalsOn) {
  AgentUnderTest older(of_driver(1, "signals"));
  older.launch_mode(1, {"tick"});
  ASSERT_TRUE(ticks(older, 1));
  older.close_link();
  AgentUnderTest newer(of_driver(2, "signals"));
  ASSERT_TRUE(newer.ready);
  ASSERT_EQ(::kill(newer.pid(), SIGTERM), 0);
  EXPECT_TRUE(newer.until_beating([&] { return newer.host_leaves > 0; }));
  shut_down(newer);
}

// Nobody holds anything there: the agent is one like any other.
TEST(AgentHolds, AnAgentThatFindsNoOlderOneServesItsLinkItself) {
  AgentUnderTest agent(of_driver(5, "fresh"));
  ASSERT_TRUE(agent.ready);
  EXPECT_FALSE(agent.ready->was_held);
  agent.launch_mode(1, {"tick"});
  EXPECT_TRUE(ticks(agent, 1));
  shut_down(agent);
}

TEST(AgentHolds, TheNextDriverGetsWhatWorkersHaveSaidInTheMeantimeInItsOrder) {
  AgentUnderTest older(of_driver(1, "words"));
  const std::string go = older.directory().path() / "go";
  ASSERT_EQ(::mkfifo(go.c_str(), 0600), 0);
  older.launch(1, {"/bin/sh", "-c",
                   "echo first; read line < \"$0\"; echo second; echo third >&2; exit 7", go});
  older.launch_mode(2, {"tick"});
  ASSERT_TRUE(older.until_beating([&] { return older.of(1).out == "first\n" && ticks(older, 2); }));
  const pid_t waiting = older.of(1).pid;
  older.close_link();
  // By then it has seen the end of the link.
  const std::string log = cat("/proc/", older.pid(), "/fd/2");
  ASSERT_TRUE(eventually([&] { return std::filesystem::read_symlink(log) == "/dev/null"; }));
  { const UniqueFd opened(::open(go.c_str(), O_WRONLY | O_CLOEXEC)); }
  ASSERT_TRUE(eventually([&] { return is_gone(waiting); }));

  AgentUnderTest newer(of_driver(2, "words"));
  ASSERT_TRUE(newer.until_beating([&] { return newer.of(1).exited.has_value(); }));
  EXPECT_EQ(newer.of(1).out, "second\n");
  EXPECT_EQ(newer.of(1).err, "third\n");
  shut_down(newer);
}

TEST(AgentHolds, OfMuchOutputThatNobodyTookTheNewestIsKeptAndTheWorkerIsNotHeldUp) {
  AgentUnderTest older(of_driver(1, "output"));
  const std::string done = older.directory().path() / "done";
  older.launch(1,
               {"/bin/sh", "-c", "head -c 5000000 /dev/zero; touch \"$0\"; exec sleep 1000", done});
  older.gives_credit = false;
  ASSERT_TRUE(older.until_beating([&] { return older.of(1).pid > 0; }));
  older.close_link();
  ASSERT_TRUE(eventually([&] { return ::access(done.c_str(), F_OK) == 0; }));

  AgentUnderTest newer(of_driver(2, "output"));
  ASSERT_TRUE(newer.until_beating([&] { return !newer.problems.empty(); }));
  const auto lost = number_after(newer.problems.front(), "up to ");
  const auto kept = [&] { return static_cast<std::int64_t>(newer.of(1).out.size()); };
  EXPECT_TRUE(newer.until_beating([&] { return kept() + lost >= 5'000'000; }))
      << newer.problems.front() << "; " << kept();
  EXPECT_EQ(kept() + lost, 5'000'000) << newer.problems.front();
  EXPECT_GE(kept(), 150'000) << newer.problems.front();
  EXPECT_LE(kept(), 400'000) << "with what is in the pipe";
  shut_down(newer);
}

}  // namespace
}  // namespace hvd::test
