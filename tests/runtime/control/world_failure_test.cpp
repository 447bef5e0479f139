// Errors that the members of a world get when something goes wrong.
#include <atomic>
#include <barrier>
#include <csignal>
#include <fcntl.h>
#include <latch>
#include <set>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/security/handshake.h"
#include "base/socket.h"
#include "base/wire.h"
#include "runtime/control/introduction.h"
#include "runtime/negotiation/messages.h"
#include "tests/runtime/control/worlds.h"

namespace hvd::runtime {
namespace {

using test::kLong;
using test::mentions;
using test::outcome_of;
using test::run_world;
using test::run_world_to_end;
using test::submit;

// Every mismatch, as all ranks see it; the world goes on after each.
TEST(WorldMismatch, TheSameErrorReachesEveryRankAndTheWorldGoesOn) {
  struct Case {
    std::string said;
    std::function<void(Request&)> change;
  };
  const std::vector<Case> cases{
      {"Mismatched data types: One rank had type float32, but another rank had type int32.",
       [](Request& r) { r.type = DataType::int32; }},
      {"Mismatched allreduce tensor shapes: One rank sent a tensor of shape [6], but another rank "
       "sent a tensor of shape [2, 3].",
       [](Request& r) {
         r.shape = {2, 3};
       }},
      {"Mismatched reduce operations", [](Request& r) { r.op = ReduceOp::min; }},
      {"Mismatched collective operations", [](Request& r) { r.kind = Kind::broadcast; }},
      {"Mismatched prescale factors", [](Request& r) { r.prescale = 2; }},
      {"Mismatched postscale factors", [](Request& r) { r.postscale = 2; }},
  };
  std::mutex mutex;
  std::map<std::size_t, std::set<std::string>> messages;
  run_world_to_end(3, [&](int rank, World& world) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      std::vector<float> data(6, 1);
      auto request = test::allreduce_request("t", 6);
      if (rank == 2) cases[i].change(request);
      const auto outcome = outcome_of(submit(world, request, data.data(), data.data()));
      EXPECT_EQ(outcome.status.code(), Code::invalid_argument);
      EXPECT_FALSE(outcome.world_failed);
      EXPECT_TRUE(mentions(outcome, cases[i].said)) << outcome.status.message();
      EXPECT_TRUE(mentions(outcome, "rank 0 on h0#0") && mentions(outcome, "rank 2 on h1#0"))
          << outcome.status.message();
      {
        const std::lock_guard lock(mutex);
        messages[i].insert(outcome.status.message());
      }
      EXPECT_EQ(data, std::vector<float>(6, 1));
      ASSERT_TRUE(outcome_of(test::allreduce(world, "t", data)).ok());
      EXPECT_EQ(data, std::vector<float>(6, 3));
    }
  });
  for (const auto& [index, texts] : messages) EXPECT_EQ(texts.size(), 1U) << *texts.begin();
}

TEST(WorldMismatch, RootsThatDifferAreNamed) {
  run_world_to_end(2, [&](int rank, World& world) {
    Request request;
    request.name = "b";
    request.kind = Kind::broadcast;
    request.root = rank;
    request.shape = {1};
    std::uint8_t data = 0;
    const auto outcome = outcome_of(submit(world, request, &data, &data));
    EXPECT_TRUE(mentions(outcome,
                         "Mismatched broadcast root ranks: One rank specified root rank 0, but "
                         "another rank specified root rank 1."))
        << outcome.status.message();
  });
}

// Once all addresses are exchanged, the process can open only so many descriptors more.
class ExchangeThatTakesDescriptors final : public Exchange {
 public:
  ExchangeThatTakesDescriptors(Exchange& inner, rlim_t left) : inner_(inner), left_(left) {}
  Result<std::vector<std::string>> exchange(std::string_view blob, TimePoint deadline) override {
    auto blobs = inner_.exchange(blob, deadline);
    const UniqueFd lowest_free(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    rlimit limit{};
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = static_cast<rlim_t>(lowest_free.get()) + left_;
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
    return blobs;
  }

 private:
  Exchange& inner_;
  rlim_t left_;
};

// Rank 1 connects to rank 0, and rank 2 to rank 1.
TEST(WorldForming, ARankThatCannotAcceptFailsForThatReasonAndTheOthersForItsSake) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer needs descriptors itself";
#endif
  for (const int without : {0, 1}) {
    test::on_ranks(test::RanksAs::processes, 3, [without](int rank, Exchange& exchange) {
      auto spec = test::spec_of(rank, 3);
      spec.members[1].host = spec.members[2].host;
      spec.config.shared_memory = false;
      ExchangeThatTakesDescriptors taken(exchange, without == 0 ? 0 : 1);
      const auto begun = Clock::now();
      const auto world = World::create(spec, rank == without ? taken : exchange);
      ASSERT_FALSE(world.ok()) << rank;
      const Status why = world.status();
      EXPECT_LT(Clock::now() - begun, kLong / 2) << why.to_string();
      // Its port is free by then, and a rank of another world may have taken it.
      const bool is_another = rank > without && why.code() == Code::unauthenticated;
      const Code expected = rank == without ? Code::resource_exhausted : Code::unavailable;
      EXPECT_TRUE(why.code() == expected || is_another) << why.to_string();
      if (rank > without) return;  // it only sees that it is not accepted
      const auto said = cat("rank ", without, " on h0#", without, ": accept: Too many open files");
      EXPECT_NE(why.message().find(said), std::string::npos) << why.message();
    });
  }
}

TEST(WorldAbort, EndsCollectivesInFlightOnEveryRankWithTheReasonGiven) {
  for (int aborter = 0; aborter < 4; ++aborter) {
    std::barrier all_have_it(4);
    run_world(4, [&](int rank, World& world) {
      std::vector<float> first(1000, 1);
      ASSERT_TRUE(outcome_of(test::allreduce(world, "first", first)).ok());
      all_have_it.arrive_and_wait();
      // "second" never becomes complete: the aborter does not ask for it.
      std::vector<float> second(1000, 1);
      std::future<Failure> pending;
      if (rank != aborter) {
        pending = test::allreduce(world, "second", second);
      } else {
        std::thread([&] {
          world.abort({Status(Code::aborted, "a new world is coming"), -1, {}});
        }).join();
        pending = test::allreduce(world, "third", second);
      }
      const auto outcome = outcome_of(std::move(pending));
      EXPECT_TRUE(mentions(outcome, "a new world is coming")) << outcome.status.message();
      EXPECT_TRUE(outcome.world_failed);
      const auto later = outcome_of(test::allreduce(world, "later", first));
      EXPECT_TRUE(mentions(later, "a new world is coming")) << later.status.message();
      EXPECT_FALSE(world.shutdown(Clock::now() + kLong).ok());
    });
  }
}

TEST(WorldAbort, WakesCollectivesThatAreMovingBytes) {
  std::atomic<int> running = 0;
  run_world(3, [&](int rank, World& world) {
    std::vector<float> data(1 << 20, 1);
    std::thread aborter;
    if (rank == 1) {
      aborter = std::thread([&] {
        while (running < 30) std::this_thread::yield();
        world.abort({Status(Code::aborted, "enough"), -1, {}});
      });
    }
    Failure outcome;
    while (outcome.ok()) {
      ++running;
      outcome = outcome_of(test::allreduce(world, "x", data));
    }
    EXPECT_TRUE(mentions(outcome, "enough")) << outcome.status.message();
    if (aborter.joinable()) aborter.join();
  });
}

TEST(WorldLoss, AMemberThatIsDestroyedIsNamedToAllOthers) {
  for (int victim = 0; victim < 4; ++victim) {
    std::barrier all_have_it(4);
    run_world(4, [&](int rank, World& world) {
      std::vector<float> data(100, 1);
      ASSERT_TRUE(outcome_of(test::allreduce(world, "first", data)).ok());
      all_have_it.arrive_and_wait();
      if (rank == victim) return;
      const auto outcome = outcome_of(test::allreduce(world, "second", data));
      EXPECT_EQ(outcome.rank, victim) << outcome.status.message();
      EXPECT_EQ(outcome.host, cat("h", victim / 2));
      EXPECT_TRUE(mentions(outcome, cat("rank ", victim, " on h", victim / 2, "#", victim % 2)))
          << outcome.status.message();
    });
  }
}

// Ranks as processes, which can be killed. They exchange addresses through the test: each sends its
// blob on a socket and gets those of all ranks.
class KilledRank : public ::testing::TestWithParam<int> {
 protected:
  static constexpr int kSize = 4;

  // An input that is never ready: all have agreed to run the collective, and wait for this rank.
  class Never final : public ReadyEvent {
   public:
    explicit Never(int fd) : fd_(fd) {}
    bool ready() const override { return false; }
    void wait() override {
      (void)send_all(fd_, encode_frame(2, {}), kNever);
      for (;;) ::pause();
    }

   private:
    int fd_;
  };

  // In a child: reduces for ever; the outcome of the last round goes to the test. `never_begins`:
  // this rank holds up the very first round, before it has connected to anybody.
  [[noreturn]] static void work(int rank, int fd, bool all_begin, bool never_begins) {
    ::alarm(120);  // never outlive the test
    auto spec = test::spec_of(rank, kSize);
    test::SocketExchange exchange(fd);
    auto world = World::create(spec, exchange);
    if (!world.ok()) ::_exit(3);
    std::vector<float> data(200'000, 1);
    Failure outcome;
    for (int round = 0; outcome.ok(); ++round) {
      if (round == (all_begin ? 5 : 0) && !never_begins) {
        (void)send_all(fd, encode_frame(2, {}), kNever);
      }
      runtime::Entry entry;
      entry.request = test::allreduce_request("x", static_cast<std::int64_t>(data.size()));
      entry.input = entry.output = data.data();
      if (never_begins) entry.ready = std::make_shared<Never>(fd);
      outcome = outcome_of(submit(**world, std::move(entry))).failure;
    }
    (void)send_all(fd, encode_failure(Message::abort, outcome), kNever);
    world->reset();
    ::_exit(0);
  }

  static void kill_and_check(int victim, bool all_begin);
};

void KilledRank::kill_and_check(int victim, bool all_begin) {
  std::vector<UniqueFd> ends;
  std::vector<pid_t> pids;
  for (int rank = 0; rank < kSize; ++rank) {
    auto pair = socket_pair();
    ASSERT_TRUE(pair.ok());
    const pid_t pid = ::fork();
    if (pid == 0) {
      ends.clear();
      pair->first.reset();
      work(rank, pair->second.get(), all_begin, !all_begin && rank == victim);
    }
    pids.push_back(pid);
    ends.push_back(std::move(pair->first));
  }
  const auto deadline = Clock::now() + kLong;
  std::vector<FrameDecoder> decoders(kSize);
  const auto next = [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    return receive_frame(ends[r].get(), decoders[r], deadline);
  };
  std::vector<std::string> blobs;
  blobs.reserve(kSize);
  for (int rank = 0; rank < kSize; ++rank) blobs.push_back(next(rank).value().payload);
  for (const auto& end : ends) {
    ASSERT_TRUE(
        send_all(end.get(), encode_frame(1, WireWriter().strings(blobs).bytes()), deadline).ok());
  }
  for (int rank = 0; rank < kSize; ++rank) ASSERT_EQ(next(rank).value().kind, 2);
  const auto killed_at = Clock::now();
  ::kill(pids[static_cast<std::size_t>(victim)], SIGKILL);
  for (int rank = 0; rank < kSize; ++rank) {
    if (rank == victim) continue;
    const auto failure = decode_failure(next(rank).value().payload);
    ASSERT_TRUE(failure.ok());
    EXPECT_EQ(failure->rank, victim) << failure->status.message();
    EXPECT_TRUE(mentions(*failure, "is gone")) << failure->status.message();
  }
  std::printf("rank %d killed: all others had their error after %.2f ms\n", victim,
              std::chrono::duration<double, std::milli>(Clock::now() - killed_at).count());
  for (int rank = 0; rank < kSize; ++rank) {
    int status = 0;
    ASSERT_EQ(::waitpid(pids[static_cast<std::size_t>(rank)], &status, 0),
              pids[static_cast<std::size_t>(rank)]);
    if (rank == victim) continue;
    EXPECT_TRUE(WIFEXITED(status)) << "rank " << rank << " died of signal " << WTERMSIG(status);
  }
}

TEST_P(KilledRank, IsNamedToAllOthersDuringTheirTransfers) { kill_and_check(GetParam(), true); }

// Of two ranks the higher one connects: the lower ones would wait for that until their timeout.
TEST_P(KilledRank, IsNamedToRanksThatWaitForItsFirstConnection) {
  kill_and_check(GetParam(), false);
}

INSTANTIATE_TEST_SUITE_P(Victims, KilledRank, ::testing::Range(0, 4));

// Strangers find the coordinator's port before the members do.
class StrangerExchange final : public Exchange {
 public:
  StrangerExchange(test::Hub& hub, int rank) : hub_(hub), rank_(rank) {}
  Result<std::vector<std::string>> exchange(std::string_view blob, TimePoint deadline) override {
    if (rank_ == 0) {
      WireReader in(blob);
      (void)in.u32();  // version
      (void)in.str();  // build
      const auto port = parse_number<std::uint16_t>(in.str());
      EXPECT_TRUE(port.has_value());
      const std::string garbage(70'000, '\xA5');
      for (int i = 0; i < 20; ++i) {
        auto fd = connect_tcp({"127.0.0.1", *port}, Clock::now() + kLong);
        if (!fd.ok()) continue;
        switch (i % 4) {
          case 0:  // garbage
            (void)::send(fd->get(), garbage.data(), garbage.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
            break;
          case 1:  // a frame of 4 GB
            (void)::send(fd->get(), "\xFF\xFF\xFF\xFF", 4, MSG_NOSIGNAL);
            break;
          case 2: {  // a correct handshake without the token
            const auto frame = encode_frame(static_cast<std::uint16_t>(HandshakeFrame::proof),
                                            WireWriter()
                                                .str(std::string(16, 'n'))
                                                .str("rank 1")
                                                .u64(1)
                                                .str(std::string(32, 'm'))
                                                .bytes());
            (void)::send(fd->get(), frame.data(), frame.size(), MSG_NOSIGNAL);
            break;
          }
          default:  // silence
            break;
        }
        strangers_.push_back(std::move(*fd));
      }
    }
    return hub_.exchange(rank_, blob, deadline);
  }

 private:
  test::Hub& hub_;
  int rank_;
  std::vector<UniqueFd> strangers_;
};

TEST(WorldStrangers, OnTheCoordinatorsPortHarmNothing) {
  constexpr int kSize = 3;
  test::Hub hub(kSize);
  std::vector<std::thread> threads;
  threads.reserve(kSize);
  for (int rank = 0; rank < kSize; ++rank) {
    threads.emplace_back([&hub, rank] {
      StrangerExchange exchange(hub, rank);
      auto world = World::create(test::spec_of(rank, kSize), exchange);
      ASSERT_TRUE(world.ok()) << world.status().to_string();
      std::vector<float> data(10, 1);
      EXPECT_TRUE(outcome_of(test::allreduce(**world, "x", data)).ok());
      EXPECT_EQ(data, std::vector<float>(10, kSize));
      EXPECT_TRUE((*world)->shutdown(Clock::now() + kLong).ok());
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(WorldForming, SaysWhichRankIsMissing) {
  test::Hub hub(2);
  auto spec = test::spec_of(0, 2);
  spec.config.rendezvous_timeout = std::chrono::milliseconds(50);
  test::HubExchange exchange(hub, 0);
  const auto world = World::create(spec, exchange);
  ASSERT_FALSE(world.ok());
  EXPECT_NE(world.status().message().find("rank 1"), std::string::npos)
      << world.status().to_string();
}

TEST(WorldForming, AMemberOfAnotherJobOrGenerationIsRefusedByName) {
  for (const bool other_job : {true, false}) {
    test::Hub hub(2);
    std::vector<Status> outcomes(2);
    std::vector<std::thread> threads;
    threads.reserve(2);
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        auto spec = test::spec_of(rank, 2);
        spec.config.connect_timeout = std::chrono::milliseconds(500);
        if (rank == 1 && other_job) spec.token = Token::random();
        if (rank == 1 && !other_job) spec.generation = 7;
        test::HubExchange exchange(hub, rank);
        outcomes[static_cast<std::size_t>(rank)] = World::create(spec, exchange).status();
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(outcomes[1].code(), other_job ? Code::unauthenticated : Code::failed_precondition)
        << outcomes[1].to_string();
    EXPECT_NE(outcomes[1].message().find("rank 0"), std::string::npos) << outcomes[1].to_string();
    EXPECT_FALSE(outcomes[0].ok());
  }
}

// A process answers at rank 0's address, and sends nothing.
TEST(WorldInterrupt, EndsAWorldThatIsBeingFormed) {
  auto listener = listen_tcp({"127.0.0.1", 0});
  ASSERT_TRUE(listener.ok());
  const auto port = cat(local_address(listener->get())->port);
  test::Hub hub(2);
  auto spec = test::spec_of(1, 2);
  spec.config.shared_memory = false;
  spec.interrupt = std::make_shared<Interrupt>();
  std::thread other([&] {
    Introduction introduction;
    introduction.control = introduction.data = port;
    introduction.sets = "no process sets, and dynamic ones";
    (void)hub.exchange(0, introduction.encode(), Clock::now() + kLong);
    auto caller = accept_tcp(listener->get(), Clock::now() + kLong);
    ASSERT_TRUE(caller.ok());
    spec.interrupt->raise(Status(Code::aborted, "a newer world is known"));
    char byte = 0;
    EXPECT_EQ(::recv(caller->get(), &byte, 1, 0), 0) << "it has not let go";
  });
  test::HubExchange exchange(hub, 1);
  const auto world = World::create(spec, exchange);
  other.join();
  ASSERT_FALSE(world.ok());
  EXPECT_EQ(world.status().code(), Code::aborted) << world.status().to_string();
}

TEST(WorldInterrupt, EndsCollectivesInFlightOnAllRanksForItsReason) {
  std::vector<std::shared_ptr<Interrupt>> interrupts(3);
  for (auto& interrupt : interrupts) interrupt = std::make_shared<Interrupt>();
  std::latch all_are_here(3);
  run_world(
      3,
      [&](int rank, World& world) {
        std::vector<float> data(10);
        EXPECT_TRUE(outcome_of(test::allreduce(world, "all are here", data)).ok());
        all_are_here.arrive_and_wait();
        auto outcome = test::allreduce(world, cat("asked for by rank ", rank, " alone"), data);
        if (rank == 1) {
          interrupts[1]->raise({Status(Code::aborted, "a newer world is known"), 2, "h1"});
        }
        const auto failure = outcome_of(std::move(outcome));
        EXPECT_TRUE(failure.world_failed);
        EXPECT_TRUE(mentions(failure, "a newer world is known")) << failure.status.to_string();
        EXPECT_EQ(failure.rank, 2);
        EXPECT_TRUE(world.wait_idle(Clock::now() + kLong));
      },
      [&](WorldSpec& spec) {
        spec.interrupt = interrupts[static_cast<std::size_t>(spec.rank)];
        spec.config.stall_warning = std::chrono::milliseconds(0);
      });
}

}  // namespace
}  // namespace hvd::runtime
