// Memory that is shared, how ranks meet in it, how they wait, and how that ends.
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <future>
#include <gtest/gtest.h>
#include <random>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/machine/proc.h"
#include "base/text.h"
#include "runtime/core/affinity.h"
#include "runtime/core/threads.h"
#include "runtime/ops/layout.h"
#include "tests/runtime/shm/shm_ranks.h"

namespace hvd::test {
namespace {

using runtime::Segment;
using runtime::ShmCollective;
using runtime::ShmGroup;
using runtime::ShmLayout;

constexpr ShmGroup::Options kSleepy{kLong, false};
constexpr std::atomic<bool> kYes = true;
constexpr ShmGroup::Options kCrowded{kLong, false, &kYes};
constexpr std::size_t kLittle = 4096;

std::vector<int> first_ranks(int size) {
  std::vector<int> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(rank);
  return ranks;
}

void on_hosts(int size, const ShmGroup::Options& options,
              const std::function<void(int rank, ShmGroup& host)>& body) {
  auto memory = ShmLayout::create(size, kLittle);
  ASSERT_TRUE(memory.ok()) << memory.status().to_string();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] { body(rank, *host_of(*memory, size, rank, options)); });
  }
  for (auto& thread : threads) thread.join();
}

// --- memory -------------------------------------------------------------------------------------

TEST(ShmSegment, IsTheSameMemoryForWhoeverAdoptsIt) {
  auto made = Segment::create(1 << 20);
  ASSERT_TRUE(made.ok());
  ASSERT_TRUE((*made)->reserve(0, 8192).ok());
  (*made)->data()[5000] = std::byte{7};
  auto adopted = Segment::adopt(UniqueFd(::dup((*made)->fd())), 1 << 20);
  ASSERT_TRUE(adopted.ok()) << adopted.status().to_string();
  EXPECT_EQ((*adopted)->data()[5000], std::byte{7});
}

TEST(ShmSegment, OfAnotherSizeIsRefused) {
  auto made = Segment::create(1 << 20);
  ASSERT_TRUE(made.ok());
  const auto adopted = Segment::adopt(UniqueFd(::dup((*made)->fd())), 2 << 20);
  EXPECT_EQ(adopted.status().code(), Code::failed_precondition);
  EXPECT_EQ(adopted.status().message(), "the shared memory has 1048576 bytes, not 2097152");
}

TEST(ShmSegment, ThatSomebodyCouldCutOffIsRefused) {
  UniqueFd fd(::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(fd.get(), 4096), 0);
  const auto adopted = Segment::adopt(std::move(fd), 4096);
  EXPECT_EQ(adopted.status().message(), "the size of the shared memory is not sealed");
}

TEST(ShmSegment, ThatIsNoMemoryIsRefused) {
  EXPECT_FALSE(Segment::adopt(UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC)), 4096).ok());
  EXPECT_FALSE(Segment::adopt(UniqueFd(), 4096).ok());
}

TEST(ShmSegment, WhatCannotBeReservedIsAnErrorAndNoSignal) {
  auto made = Segment::create(1 << 20);
  ASSERT_TRUE(made.ok());
  const Status reserved = (*made)->reserve(1 << 20, 4096);
  EXPECT_EQ(reserved.code(), Code::resource_exhausted) << reserved.to_string();
}

TEST(ShmSegment, BeyondTheLimitOfTheSizeOfFilesIsAnErrorAndNoSignal) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit little{1 << 20, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &little), 0);
  EXPECT_TRUE(Segment::create(1 << 20).ok());
  const Status beyond = Segment::create(2 << 20).status();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(beyond.code(), Code::resource_exhausted);
  EXPECT_EQ(
      beyond.message(),
      "shared memory of 2097152 bytes is beyond the limit of the size of files, 1048576 bytes "
      "(ulimit -f)");
}

TEST(ShmSegment, MoreThanAnyMachineHasIsAnError) {
  EXPECT_FALSE(Segment::create(std::size_t{1} << 62).ok());
}

// --- collective
// ------------------------------------------------------------------------------------

// Everybody writes a number into its chunk and reads those of all others, round after round.
void meet_often(ShmGroup& host, int set, const std::vector<int>& ranks, int rank, int rounds) {
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

TEST(ShmMeeting, NobodyIsForgottenInHisSleepWithManyMoreRanksThanCores) {
  on_hosts(16, kSleepy, [](int rank, ShmGroup& host) {
    const auto all = first_ranks(16);
    ASSERT_TRUE(host.serves(0, all));
    meet_often(host, 0, all, rank, 500);
  });
}

TEST(ShmMeeting, SpinningAndSleepingAreTheSame) {
  for (const bool own_core : {true, false}) {
    on_hosts(3, {kLong, own_core}, [](int rank, ShmGroup& host) {
      ASSERT_TRUE(host.serves(0, first_ranks(3)));
      meet_often(host, 0, first_ranks(3), rank, 500);
    });
  }
}

TEST(ShmMeeting, TheOthersSeeThatARankHasFailed) {
  on_hosts(2, kSleepy, [](int rank, ShmGroup& host) {
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

// Of two ranks that are on one core the first comes to a step. Where it sleeps then; -1: it does
// not.
int core_of_first_comer(const std::vector<int>& cores) {
  std::atomic<pid_t> thread_of_first = 0;
  int asleep_on = -1;
  on_hosts(2, {kLong, true}, [&](int rank, ShmGroup& host) {
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
TEST(ShmMeeting, ARankDoesNotWaitOnTheCoreOfOneThatIsYetToCome) {
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
// be written while somebody still reads it in the collective before.
TEST(ShmMeeting, DifferentTeamsDoNotWriteOverWhatOthersStillRead) {
  // Chunks become large and small on the way.
  std::atomic<bool> crowded = false;
  on_hosts(4, {kLong, false, &crowded}, [&crowded](int rank, ShmGroup& host) {
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
        meet_often(host, set, ranks, position, operations);
      }
      if (::testing::Test::HasFatalFailure()) return;
    }
  });
}

// Fills whole chunks, and reads those of the others. Returns how large they were.
std::size_t exchange_chunks(ShmGroup& host, int size, int rank, int syncs) {
  ShmCollective collective(host, 0, first_ranks(size), rank);
  const std::size_t bytes = collective.capacity();
  EXPECT_TRUE(collective.open().ok());
  for (int chunk = 0; chunk < syncs; ++chunk) {
    std::memset(collective.chunk(rank), 10 * chunk + rank, bytes);
    EXPECT_TRUE(collective.sync().ok());
    for (int other = 0; other < size; ++other) {
      const std::vector<std::byte> wanted(bytes, std::byte(10 * chunk + other));
      EXPECT_EQ(std::memcmp(collective.chunk(other), wanted.data(), bytes), 0)
          << "chunk " << chunk << " of rank " << other;
    }
    collective.next_chunk();
  }
  collective.end();
  return bytes;
}

TEST(ShmMeeting, AllRanksHaveLargeChunksIfOneIsShortOfCores) {
  auto memory = ShmLayout::create(3, kLittle);
  ASSERT_TRUE(memory.ok()) << memory.status().to_string();
  std::atomic<bool> crowded = true;
  std::array<std::vector<std::size_t>, 3> sizes;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      const auto options = rank == 1 ? ShmGroup::Options{kLong, false, &crowded} : kSleepy;
      const auto host = host_of(*memory, 3, rank, options);
      ASSERT_TRUE(host->serves(0, first_ranks(3)));
      for (const int syncs : {1, 2, 1, 3, 1, 5, 2, 7, 0, 2, 3, 1}) {
        if (syncs == 0 && rank == 1) crowded = false;
        if (syncs == 0) continue;
        sizes.at(static_cast<std::size_t>(rank)).push_back(exchange_chunks(*host, 3, rank, syncs));
      }
    });
  }
  for (auto& thread : threads) thread.join();

  // In the first collective of two steps all hear of it, in the second one that all have memory.
  const std::size_t large = memory->large_chunk_bytes();
  EXPECT_EQ(large, 8 * kLittle);
  const std::vector<std::size_t> wanted{kLittle, kLittle, kLittle, kLittle, large,  large,
                                        large,   large,   large,   kLittle, kLittle};
  for (const auto& seen : sizes) EXPECT_EQ(seen, wanted);
}

// Collectives that fit into one large chunk tell nothing, and could have many steps in small ones.
TEST(ShmMeeting, LargeChunksAreGivenUpWhereAllCollectivesHaveOneStep) {
  on_hosts(2, kCrowded, [](int rank, ShmGroup& host) {
    ASSERT_TRUE(host.serves(0, first_ranks(2)));
    exchange_chunks(host, 2, rank, 2);
    exchange_chunks(host, 2, rank, 2);
    int large = 0;
    while (exchange_chunks(host, 2, rank, 1) > kLittle && large < 1'000) ++large;
    EXPECT_EQ(large, 65);
    exchange_chunks(host, 2, rank, 2);
    EXPECT_GT(exchange_chunks(host, 2, rank, 2), kLittle);
  });
}

TEST(ShmMeeting, ThereAreNoLargeChunksForMoreThan64Ranks) {
  EXPECT_EQ(ShmLayout::create(64, kLittle)->large_chunk_bytes(), 2 * kLittle);
  EXPECT_EQ(ShmLayout::create(65, kLittle)->large_chunk_bytes(), kLittle);
}

TEST(ShmMeeting, ChunksBecomeLargeBesideProgramsThatTakeTheCores) {
  if (!time_without_core()) GTEST_SKIP() << "this kernel does not count waits for cores";
  // All on one core, which threads inherit.
  runtime::PinnedThread here;
  ASSERT_TRUE(here.pin(runtime::usable_cores().back()).ok());
  std::atomic<bool> over = false;
  std::vector<std::thread> programs;
  for (int i = 0; i < 6; ++i) {
    programs.emplace_back([&over] {
      while (!over) {
      }
    });
  }
  on_hosts(2, kSleepy, [](int rank, ShmGroup& host) {
    ASSERT_TRUE(host.serves(0, first_ranks(2)));
    const auto deadline = Clock::now() + kLong / 2;
    std::size_t bytes = kLittle;
    bool is_late = false;
    while (bytes == kLittle && !is_late) {
      // Both give up in the same round.
      ShmCollective collective(host, 0, first_ranks(2), rank);
      *collective.chunk(rank) = std::byte(Clock::now() > deadline ? 1 : 0);
      ASSERT_TRUE(collective.sync().ok());
      is_late = collective.chunk(0)[0] == std::byte{1};
      collective.next_chunk();
      collective.end();
      bytes = exchange_chunks(host, 2, rank, 20);
    }
    EXPECT_GT(bytes, kLittle);
  });
  over = true;
  for (auto& program : programs) program.join();
}

TEST(ShmMeeting, EveryByteOfEveryWindowIsTheRanksOwn) {
  on_hosts(3, kSleepy, [](int rank, ShmGroup& host) {
    ASSERT_TRUE(host.serves(0, first_ranks(3)));
    ShmCollective collective(host, 0, first_ranks(3), rank);
    ASSERT_EQ(collective.capacity(), kLittle);
    for (int chunk = 0; chunk < 7; ++chunk) {
      std::memset(collective.chunk(rank), 10 * chunk + rank, kLittle);
      ASSERT_TRUE(collective.sync().ok());
      for (int other = 0; other < 3; ++other) {
        const std::vector<std::byte> wanted(kLittle, std::byte(10 * chunk + other));
        EXPECT_EQ(std::memcmp(collective.chunk(other), wanted.data(), kLittle), 0);
      }
      collective.next_chunk();
    }
  });
}

TEST(ShmMeeting, SetsBeyondTheirPlacesAreLeftToOthersByAllRanks) {
  on_hosts(2, kSleepy, [](int /*rank*/, ShmGroup& host) {
    int served = 0;
    for (int set = 0; set < 300; ++set) served += host.serves(set, first_ranks(2)) ? 1 : 0;
    EXPECT_EQ(served, 256);
    EXPECT_TRUE(host.serves(0, first_ranks(2)));
    EXPECT_FALSE(host.serves(299, first_ranks(2)));
  });
}

TEST(ShmMeeting, ASetWithARankOfAnotherHostIsLeftToOthers) {
  auto memory = ShmLayout::create(2, kLittle);
  ASSERT_TRUE(memory.ok());
  ShmGroup host(*memory, {2, 5}, 0, kSleepy);
  EXPECT_TRUE(host.serves(1, std::vector<int>{2, 5}));
  EXPECT_FALSE(host.serves(2, std::vector<int>{2, 3}));
  EXPECT_FALSE(host.serves(3, std::vector<int>{2, 5, 6}));
}

TEST(ShmMeeting, OfASetOfSeveralHostsThoseOfOneMeetIfThereAreTwo) {
  auto memory = ShmLayout::create(2, kLittle);
  ASSERT_TRUE(memory.ok());
  ShmGroup host(*memory, {2, 5}, 0, kSleepy);
  EXPECT_TRUE(host.serves_part(1, std::vector<int>{2, 5, 6}));
  EXPECT_FALSE(host.serves(1, std::vector<int>{2, 5, 6}));
  EXPECT_FALSE(host.serves_part(2, std::vector<int>{2, 6}));
  EXPECT_TRUE(host.serves_part(3, std::vector<int>{2, 5}));
}

// --- how it ends --------------------------------------------------------------------------------

TEST(ShmMeeting, WhoeverDoesNotComeIsNamedAtTheDeadline) {
  on_hosts(3, {std::chrono::milliseconds(50), false}, [](int rank, ShmGroup& host) {
    if (rank == 2) return;
    ASSERT_TRUE(host.serves(0, first_ranks(3)));
    ShmCollective collective(host, 0, first_ranks(3), rank);
    const Status met = collective.sync();
    EXPECT_EQ(met.code(), Code::deadline_exceeded);
    EXPECT_EQ(met.message().substr(0, 40), "shared memory: nothing came from rank 2 ")
        << met.message();
  });
}

TEST(ShmMeeting, AnAbortEndsTheOwnWaitAtOnceAndEveryLaterOne) {
  on_hosts(2, kSleepy, [](int rank, ShmGroup& host) {
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
TEST(ShmMeeting, WhoeverGivesUpInTheMidstIsNotTakenForOneThatHasDoneItsPart) {
  on_hosts(2, {std::chrono::milliseconds(50), false}, [](int rank, ShmGroup& host) {
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

// A thread of the program that does the work of its world must not keep it while it sleeps.
TEST(ShmMeeting, AHelperIsToldBeforeItSleepsAndOnlyThen) {
  std::promise<void> told;
  auto sleeps = told.get_future();
  on_hosts(2, kSleepy, [&](int rank, ShmGroup& host) {
    ASSERT_TRUE(host.serves(0, first_ranks(2)));
    int times = 0;
    const runtime::CallerProgressScope helper([&] {
      if (++times == 1 && rank == 0) told.set_value();
    });
    // The one comes early and sleeps, for the other one all are there.
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

TEST(ShmMeeting, AbortsInTheMidstLeaveNothingBehind) {
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
TEST(ShmMeeting, AKilledProcessHoldsUpNobodyOnceTheOthersAreAborted) {
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
