// Collectives of ranks in the memory that they share: how the ranks wait, and how that ends.
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <future>
#include <gtest/gtest.h>
#include <random>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>

#include "base/machine/proc.h"
#include "base/text.h"
#include "runtime/core/affinity.h"
#include "runtime/core/threads.h"
#include "runtime/ops/layout.h"
#include "tests/runtime/shm/shm_groups.h"

namespace hvd::test {
namespace {

using runtime::ShmCollective;
using runtime::ShmGroup;
using runtime::ShmLayout;

// Each rank writes a number into its chunk and reads those of all others, round after round.
void exchange_often(ShmGroup& host, int set, const std::vector<int>& ranks, int rank, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    ShmCollective collective(host, set, ranks, rank);
    ASSERT_TRUE(collective.open().ok());
    for (int step = 0; step < 1 + round % 3; ++step) {
      const auto number = [&](int of) { return set * 1'000'003 + round * 1009 + step * 101 + of; };
      const int own = number(rank);
      std::memcpy(collective.chunk(rank), &own, sizeof(own));
      const Status met = collective.sync();
      ASSERT_TRUE(met.ok()) << met.to_string();
      for (int other = 0; other < collective.size(); ++other) {
        int there = 0;
        std::memcpy(&there, collective.chunk(other), sizeof(there));
        ASSERT_EQ(there, number(other)) << "round " << round << " step " << step;
      }
      collective.next_chunk();
    }
    collective.end();
  }
}

TEST(ShmGroup, ASleepingRankIsAlwaysWokenWithManyMoreRanksThanCores) {
  on_groups(16, kSleepy, [](int rank, ShmGroup& host) {
    const auto all = first_ranks(16);
    ASSERT_TRUE(host.serves(0, all));
    exchange_often(host, 0, all, rank, 500);
  });
}

TEST(ShmGroup, SpinningAndSleepingAreTheSame) {
  for (const bool own_core : {true, false}) {
    on_groups(3, {kLong, own_core}, [](int rank, ShmGroup& host) {
      ASSERT_TRUE(host.serves(0, first_ranks(3)));
      exchange_often(host, 0, first_ranks(3), rank, 500);
    });
  }
}

TEST(ShmGroup, TheOthersSeeThatARankHasFailed) {
  on_groups(2, kSleepy, [](int rank, ShmGroup& host) {
    const auto all = first_ranks(2);
    ASSERT_TRUE(host.serves(0, all));
    std::optional<ShmCollective> collective(std::in_place, host, 0, all, rank);
    ASSERT_TRUE(collective->open().ok());
    ASSERT_TRUE(collective->sync().ok());
    EXPECT_TRUE(collective->check_none_failed().ok());
    ASSERT_TRUE(collective->sync().ok());
    if (rank == 0) return;  // without an end: its tensors are the program's again

    while (collective->check_none_failed().ok()) std::this_thread::yield();
    EXPECT_EQ(collective->check_none_failed().code(), Code::aborted);
    collective->end();
  });
}

// Where the thread ran last, as /proc says; -1: it is not asleep.
int core_of_sleeper(pid_t thread) {
  const auto stat = read_proc_file(cat("/proc/self/task/", thread, "/stat"));
  const auto fields = split(stat.substr(std::min(stat.size(), stat.rfind(')') + 2)), ' ');
  constexpr std::size_t kProcessor = 36;  // of the fields after the name, as in proc(5)
  if (fields.size() <= kProcessor || fields.front() != "S") return -1;
  return parse_number<int>(fields[kProcessor]).value_or(-1);
}

// The first of two ranks that are on one core comes to a step. Returns the core on which it sleeps
// there; -1: it does not sleep.
int core_of_first_comer(const std::vector<int>& cores) {
  std::atomic<pid_t> thread_of_first = 0;
  int asleep_on = -1;
  on_groups(2, {kLong, true}, [&](int rank, ShmGroup& host) {
    ASSERT_TRUE(host.serves(0, first_ranks(2)));
    ShmCollective collective(host, 0, first_ranks(2), rank);
    std::optional<runtime::PinnedThread> on_first(std::in_place);
    EXPECT_TRUE(on_first->pin(cores.front()).ok());
    ASSERT_TRUE(collective.sync().ok());

    if (rank == 0) {
      // From here on it may run anywhere, and is where the other one is.
      on_first.reset();
      thread_of_first = ::gettid();
      ASSERT_TRUE(collective.sync().ok());
      EXPECT_EQ(runtime::usable_cores(), cores);
    } else {
      const auto deadline = Clock::now() + kLong / 2;
      while (asleep_on < 0 && Clock::now() < deadline) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (thread_of_first != 0) asleep_on = core_of_sleeper(thread_of_first);
      }
      ASSERT_TRUE(collective.sync().ok());
    }
    collective.end();
  });
  return asleep_on;
}

// The rank that it waits for cannot come while it spins there.
TEST(ShmGroup, ARankDoesNotWaitOnTheCoreOfOneThatIsYetToCome) {
  const auto cores = runtime::usable_cores();
  if (cores.size() < 2) GTEST_SKIP() << "there is only one core";
  constexpr int kTries = 12;
  int elsewhere = 0;
  for (int i = 0; i < kTries; ++i) {
    const int core = core_of_first_comer(cores);
    ASSERT_GE(core, 0);
    elsewhere += core == cores.front() ? 0 : 1;
  }
  // On a busy machine the scheduler may move it back before it sleeps.
  EXPECT_GT(elsewhere, kTries / 2);
}

// Sets that overlap, and a world from which some ranks are missing now and then: a chunk must not
// be written while another rank still reads it in the collective before.
TEST(ShmGroup, OverlappingSetsDoNotOverwriteChunksThatAreStillRead) {
  // Chunks become large and small on the way.
  std::atomic<bool> crowded = false;
  on_groups(4, {kLong, false, &crowded}, [&crowded](int rank, ShmGroup& host) {
    std::mt19937 same_everywhere(5);
    const std::vector<std::vector<int>> sets{{0, 1, 2, 3}, {0, 1}, {1, 2, 3}, {0, 3}, {2, 3}};
    for (int set = 0; set < 5; ++set) {
      ASSERT_TRUE(host.serves(set, sets[static_cast<std::size_t>(set)]));
    }
    for (int i = 0; i < 1500; ++i) {
      const int set = static_cast<int>(same_everywhere() % 5);
      auto ranks = sets[static_cast<std::size_t>(set)];
      if (rank == 0) crowded = i % 100 < 60;
      const int operations = i % 3 == 0 ? 1 : 2;
      // Somebody has joined.
      const auto gone = same_everywhere() % 5;
      if (ranks.size() > 2 && gone < ranks.size()) {
        if (rank == ranks[gone]) {
          for (int done = 0; done < operations; ++done) host.skip(set);
          continue;
        }
        ranks.erase(ranks.begin() + static_cast<std::ptrdiff_t>(gone));
      }
      const auto self = std::find(ranks.begin(), ranks.end(), rank);
      if (self == ranks.end()) continue;
      const int position = static_cast<int>(self - ranks.begin());
      if (operations == 1) {
        // A barrier: nothing is written.
        ShmCollective collective(host, set, ranks, position);
        ASSERT_TRUE(collective.sync().ok());
        collective.end();
      } else {
        exchange_often(host, set, ranks, position, operations);
      }
      if (::testing::Test::HasFatalFailure()) return;
    }
  });
}

TEST(ShmGroup, EveryByteOfEveryChunkIsTheRanksOwn) {
  on_groups(3, kSleepy, [](int rank, ShmGroup& host) {
    ASSERT_TRUE(host.serves(0, first_ranks(3)));
    EXPECT_EQ(exchange_chunks(host, 3, rank, 7), kLittle);
  });
}

TEST(ShmGroup, SetsBeyondTheLimitAreNotServedOnAnyRank) {
  on_groups(2, kSleepy, [](int /*rank*/, ShmGroup& host) {
    int served = 0;
    for (int set = 0; set < 300; ++set) served += host.serves(set, first_ranks(2)) ? 1 : 0;
    EXPECT_EQ(served, 256);
    EXPECT_TRUE(host.serves(0, first_ranks(2)));
    EXPECT_FALSE(host.serves(299, first_ranks(2)));
  });
}

TEST(ShmGroup, ASetWithARankOfAnotherHostIsNotServed) {
  auto memory = ShmLayout::create(2, kLittle);
  ASSERT_TRUE(memory.ok());
  ShmGroup host(*memory, {2, 5}, 0, kSleepy);
  EXPECT_TRUE(host.serves(1, std::vector<int>{2, 5}));
  EXPECT_FALSE(host.serves(2, std::vector<int>{2, 3}));
  EXPECT_FALSE(host.serves(3, std::vector<int>{2, 5, 6}));
}

TEST(ShmGroup, OfASetOfSeveralHostsThePartOnThisHostIsServedIfItHasTwoRanks) {
  auto memory = ShmLayout::create(2, kLittle);
  ASSERT_TRUE(memory.ok());
  ShmGroup host(*memory, {2, 5}, 0, kSleepy);
  EXPECT_TRUE(host.serves_part(1, std::vector<int>{2, 5, 6}));
  EXPECT_FALSE(host.serves(1, std::vector<int>{2, 5, 6}));
  EXPECT_FALSE(host.serves_part(2, std::vector<int>{2, 6}));
  EXPECT_TRUE(host.serves_part(3, std::vector<int>{2, 5}));
}

// --- how it ends --------------------------------------------------------------------------------

TEST(ShmGroup, AMissingRankIsNamedAtTheDeadline) {
  on_groups(3, {std::chrono::milliseconds(50), false}, [](int rank, ShmGroup& host) {
    if (rank == 2) return;
    ASSERT_TRUE(host.serves(0, first_ranks(3)));
    ShmCollective collective(host, 0, first_ranks(3), rank);
    const Status met = collective.sync();
    EXPECT_EQ(met.code(), Code::deadline_exceeded);
    EXPECT_EQ(met.message().substr(0, 40), "shared memory: nothing came from rank 2 ")
        << met.message();
  });
}

TEST(ShmGroup, ARankIsWaitedForAsLongAsItMovesBytesElsewhere) {
  constexpr std::chrono::milliseconds kSilence{500};
  on_groups(2, {kSilence, false}, [&](int rank, ShmGroup& host) {
    ASSERT_TRUE(host.serves(0, first_ranks(2)));
    const TimePoint begin = Clock::now();
    while (rank == 1 && Clock::now() < begin + 3 * kSilence) {
      host.note_moved(1);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ShmCollective collective(host, 0, first_ranks(2), rank);
    const Status met = collective.sync();
    EXPECT_TRUE(met.ok()) << met.to_string();
    collective.end();
  });
}

TEST(ShmGroup, AnAbortEndsThisRanksWaitAtOnceAndEveryLaterOne) {
  on_groups(2, kSleepy, [](int rank, ShmGroup& host) {
    if (rank == 1) return;
    ASSERT_TRUE(host.serves(0, first_ranks(2)));
    std::thread aborter([&] { host.abort(); });
    ShmCollective collective(host, 0, first_ranks(2), rank);
    EXPECT_EQ(collective.sync().code(), Code::aborted);
    EXPECT_EQ(collective.sync().code(), Code::aborted);
    aborter.join();
    EXPECT_EQ(collective.open().code(), Code::aborted);
  });
}

// Else the others would read what it has not written, and call it a result.
TEST(ShmGroup, ARankThatGivesUpDoesNotCountAsDone) {
  on_groups(2, {std::chrono::milliseconds(50), false}, [](int rank, ShmGroup& host) {
    ASSERT_TRUE(host.serves(0, first_ranks(2)));
    {
      ShmCollective collective(host, 0, first_ranks(2), rank);
      ASSERT_TRUE(collective.open().ok());
      ASSERT_TRUE(collective.sync().ok());
      if (rank == 1) {
        EXPECT_EQ(collective.sync().code(), Code::deadline_exceeded);
      }
    }
    if (rank == 1) return;
    host.abort();
    ShmCollective later(host, 0, first_ranks(2), rank);
    EXPECT_EQ(later.sync().code(), Code::aborted);
  });
}

// A thread of the program that drives the progress of its world must hand it over while it sleeps.
TEST(ShmGroup, ADrivingCallerIsNotifiedBeforeItSleepsAndOnlyThen) {
  std::promise<void> told;
  auto sleeps = told.get_future();
  on_groups(2, kSleepy, [&](int rank, ShmGroup& host) {
    ASSERT_TRUE(host.serves(0, first_ranks(2)));
    int times = 0;
    const runtime::CallerProgressScope caller([&] {
      if (++times == 1 && rank == 0) told.set_value();
    });
    // Rank 0 comes early and sleeps; when rank 1 comes, all are there.
    if (rank == 1) {
      EXPECT_EQ(sleeps.wait_for(kLong / 2), std::future_status::ready);
    }
    ShmCollective collective(host, 0, first_ranks(2), rank);
    ASSERT_TRUE(collective.sync().ok());
    EXPECT_EQ(times, rank == 0 ? 1 : 0) << "rank " << rank;
    collective.end();
  });
}

std::size_t files_open() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

TEST(ShmGroup, AbortsDuringCollectivesLeaveNothingBehind) {
  const auto files = files_open();
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    const int victim = static_cast<int>(random() % 8);
    const int after = static_cast<int>(random() % 60);
    std::atomic<int> steps = 0;
    auto memory = ShmLayout::create(8, kLittle);
    ASSERT_TRUE(memory.ok()) << memory.status().to_string();
    std::vector<std::shared_ptr<ShmGroup>> hosts;
    for (int rank = 0; rank < 8; ++rank) hosts.push_back(host_of(*memory, 8, rank, kSleepy));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 8; ++rank) {
      threads.emplace_back([&, rank] {
        ShmGroup& host = *hosts[static_cast<std::size_t>(rank)];
        ASSERT_TRUE(host.serves(0, first_ranks(8)));
        for (Status met; met.ok();) {
          ShmCollective collective(host, 0, first_ranks(8), rank);
          met = collective.open();
          if (met.ok()) met = collective.sync();
          collective.next_chunk();
          if (met.ok()) collective.end();
          // A rank that fails tells nobody: the world does, by aborting the others.
          if (++steps > after && rank == victim) {
            for (auto& other : hosts) other->abort();
          }
          EXPECT_TRUE(met.ok() || met.code() == Code::aborted) << met.to_string();
        }
      });
    }
    for (auto& thread : threads) thread.join();
  }
  EXPECT_EQ(files_open(), files);
  EXPECT_EQ(segments_mapped(), 0U);
}

// Ranks are processes; one is killed while it holds up the others, another while it sleeps.
TEST(ShmGroup, AKilledProcessDelaysNoRankOnceTheOthersAreAborted) {
  auto memory = ShmLayout::create(4, kLittle);
  ASSERT_TRUE(memory.ok());
  std::vector<int> at_work(2);
  ASSERT_EQ(::pipe2(at_work.data(), O_CLOEXEC), 0);
  std::vector<pid_t> children;
  for (int rank = 1; rank < 4; ++rank) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    // A child has no mapping of what its parent mapped: as in a world, it gets the descriptor.
    auto own = ShmLayout::adopt(UniqueFd(::dup(memory->fd())), 4, kLittle);
    if (!own.ok()) ::_exit(3);
    ShmGroup host(*own, first_ranks(4), rank, kSleepy);
    if (!host.serves(0, first_ranks(4))) ::_exit(4);
    for (int round = 0;; ++round) {
      if (rank == 3 && round == 20) {
        [[maybe_unused]] const auto told = ::write(at_work[1], "x", 1);
        ::pause();
      }
      ShmCollective collective(host, 0, first_ranks(4), rank);
      if (!collective.sync().ok()) ::_exit(5);
    }
  }
  ShmGroup host(*memory, first_ranks(4), 0, kSleepy);
  ASSERT_TRUE(host.serves(0, first_ranks(4)));
  std::thread world([&] {
    char byte = 0;
    ASSERT_EQ(::read(at_work[0], &byte, 1), 1);
    for (const pid_t child : children) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
    host.abort();
  });
  Status met;
  int rounds = 0;
  for (; met.ok(); ++rounds) {
    ShmCollective collective(host, 0, first_ranks(4), 0);
    met = collective.sync();
  }
  EXPECT_EQ(met.code(), Code::aborted);
  EXPECT_EQ(rounds, 21);
  world.join();
  ::close(at_work[0]);
  ::close(at_work[1]);
}

}  // namespace
}  // namespace hvd::test
