// hvd_kill_bench [RANKS [ROUNDS [MB]]]: how long after the death of a rank the last call of all
// others has returned with an error. In each round new processes form a world and reduce a tensor
// of so many MB, until one of them is killed: in the middle of it, by shared memory or by TCP, or
// as soon as it has asked for its first tensor, before it has connected to anybody. A rank that has
// heard of the death stays alive, so that nobody learns of it from the end of a third. ms.
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "base/text.h"
#include "bench/arguments.h"
#include "bench/collectives/worlds.h"
#include "bench/times.h"
#include "runtime/core/threads.h"

namespace hvd::bench {
namespace {

struct When {
  const char* name;
  bool shared_memory;
  bool at_first_tensor;
};
constexpr std::array kWhens{When{"in shared memory", true, false}, When{"over TCP", false, false},
                            When{"over TCP, before it has connected", false, true}};

constexpr int kMaxRanks = 64;

// Of the clock that processes of one machine share; 0: not yet.
struct Times {
  std::atomic<std::int64_t> death = 0;
  std::array<std::atomic<std::int64_t>, kMaxRanks> returns = {};
};

std::int64_t now() { return Clock::now().time_since_epoch().count(); }

[[noreturn]] void die(Times& times) {
  times.death = now();
  std::raise(SIGKILL);
  std::abort();
}

// In a process of its own, and in those that it forks.
[[noreturn]] void be_ranks(Times& times, const When& when, int size, int round,
                           std::size_t floats) {
  ::setpgid(0, 0);
  Ranks ranks(size);
  ::prctl(PR_SET_PDEATHSIG, 0);  // rank 0 may be the one that dies
  const runtime::SignalShield shield;
  runtime::Config config;
  config.shared_memory = when.shared_memory;
  auto world = form_world(ranks, 1, config);
  std::vector<float> data(floats, 1.0F);
  std::mt19937 chance(static_cast<unsigned>(round));  // the same on all ranks
  const bool dies = ranks.rank() == static_cast<int>(chance() % static_cast<unsigned>(size));
  const std::chrono::microseconds after(chance() % 20'000);
  ranks.meet();
  std::thread killer;
  if (dies && when.at_first_tensor) {
    (void)start_allreduce(*world, data);
    die(times);
  } else if (dies) {
    killer = std::thread([&] {
      std::this_thread::sleep_for(after);
      die(times);
    });
  }
  while (allreduce(*world, data).ok()) {
  }
  if (!dies) times.returns[static_cast<std::size_t>(ranks.rank())] = now();
  for (;;) ::pause();
}

// The last return after the death, in ms.
double round_of(const When& when, int size, int round, std::size_t floats) {
  void* const memory =
      ::mmap(nullptr, sizeof(Times), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("no memory to share");
    std::exit(1);
  }
  Times& times = *new (memory) Times;
  const pid_t first = ::fork();
  if (first == 0) be_ranks(times, when, size, round, floats);
  ::setpgid(first, first);
  int returned = 0;
  for (const auto deadline = Clock::now() + std::chrono::seconds(60);
       returned < size - 1 && Clock::now() < deadline; ::usleep(200)) {
    returned = 0;
    for (const auto& time : times.returns) returned += time != 0 ? 1 : 0;
  }
  ::kill(-first, SIGKILL);
  while (::wait(nullptr) > 0) {
  }
  if (returned < size - 1) {
    std::fprintf(stderr, "%s, round %d: only %d of %d calls have returned within 60 s\n", when.name,
                 round, returned, size - 1);
    std::exit(1);
  }
  std::int64_t last = 0;
  for (const auto& time : times.returns) last = std::max(last, time.load());
  const double ms = static_cast<double>(last - times.death) / 1e6;
  ::munmap(memory, sizeof(Times));
  return ms;
}

int run(int size, int rounds, std::size_t megabytes) {
  if (size < 2 || size > kMaxRanks || rounds < 1) {
    std::fprintf(stderr, "hvd_kill_bench: 2 to %d ranks, at least a round\n", kMaxRanks);
    return 2;
  }
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // for those whose rank 0 has died
  print_tail_header(cat(size, " processes, ", rounds, " kills; ms"), 20);
  for (const When& when : kWhens) {
    std::vector<double> times;
    for (int round = 0; round < rounds; ++round) {
      times.push_back(round_of(when, size, round, (megabytes << 20) / sizeof(float)));
    }
    print_tail(when.name, std::move(times), 20);
  }
  return 0;
}

}  // namespace
}  // namespace hvd::bench

int main(int argc, char** argv) {
  using hvd::bench::number_argument;
  return hvd::bench::run(number_argument(argc, argv, 1, 8), number_argument(argc, argv, 2, 100),
                         static_cast<std::size_t>(number_argument(argc, argv, 3, 4)));
}
