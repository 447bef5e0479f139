// hvd_abort_bench [RANKS [ROUNDS [MB]]]: how long abort() takes. In each round a world is formed,
// all ranks reduce a tensor of so many MB again and again, and after a while one of them aborts,
// from another thread. Each rank is a process, which all rounds share: what it has after the last
// round (descriptors, threads, memory) beside what it had after the tenth shows whether rounds
// leave something behind. Times are from the call of abort() until a rank's call has returned: its
// own, and the last of all ranks.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <unistd.h>

#include "base/text.h"
#include "base/wire.h"
#include "bench/arguments.h"
#include "bench/collectives/worlds.h"
#include "runtime/core/threads.h"

namespace hvd::bench {
namespace {

constexpr int kLateMs = 10;

struct Belongings {
  std::size_t descriptors = 0;
  std::size_t threads = 0;
  double megabytes = 0;
};

std::size_t files_in(const char* directory) {
  const std::filesystem::directory_iterator all(directory);
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

Belongings belongings() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return {files_in("/proc/self/fd"), files_in("/proc/self/task"),
          static_cast<double>(pages) * static_cast<double>(::getpagesize()) / 1e6};
}

class AbortRounds {
 public:
  AbortRounds(Ranks& ranks, std::size_t megabytes)
      : ranks_(ranks), data_((megabytes << 20) / sizeof(float), 1.0F) {}

  void run(int round) {
    auto world = form_world(ranks_, ++generation_);
    // The same on all ranks.
    std::mt19937 chance(static_cast<unsigned>(round));
    const int culprit = static_cast<int>(chance() % static_cast<unsigned>(ranks_.size()));
    const std::chrono::microseconds after(chance() % 20'000);
    TimePoint aborted{};
    std::thread aborter;
    ranks_.meet();
    if (culprit == ranks_.rank()) {
      aborter = std::thread([&] {
        std::this_thread::sleep_for(after);
        aborted = Clock::now();
        world->abort({Status(Code::aborted, "the benchmark aborts"), culprit, "localhost"});
      });
    }
    while (allreduce(*world, data_).ok()) {
    }
    const auto returned = Clock::now();
    if (aborter.joinable()) aborter.join();
    note(culprit, aborted, returned);
    world.reset();
  }

  const std::vector<double>& own() const { return own_; }
  const std::vector<double>& last() const { return last_; }

 private:
  // Processes of one machine share the clock.
  void note(int culprit, TimePoint aborted, TimePoint returned) {
    const auto count = [](TimePoint time) { return time.time_since_epoch().count(); };
    const auto all =
        ranks_.exchange(WireWriter().i64(count(aborted)).i64(count(returned)).take(), kNever);
    check(all.status());
    const auto abort = WireReader((*all)[static_cast<std::size_t>(culprit)]).i64();
    std::vector<double> times;
    for (const auto& blob : *all) {
      WireReader in(blob);
      in.i64();
      times.push_back(static_cast<double>(in.i64() - abort) / 1e6);
    }
    own_.push_back(times[static_cast<std::size_t>(culprit)]);
    last_.push_back(*std::max_element(times.begin(), times.end()));
  }

  Ranks& ranks_;
  std::uint64_t generation_ = 0;
  std::vector<float> data_;
  std::vector<double> own_;
  std::vector<double> last_;
};

int run(int size, int rounds, std::size_t megabytes) {
  Ranks ranks(size);
  const runtime::SignalShield shield;
  AbortRounds all(ranks, megabytes);
  Belongings before;
  for (int round = 0; round < rounds; ++round) {
    if (round == 10) before = belongings();
    all.run(round);
  }
  const auto after = belongings();
  for (int rank = 0; rank < size; ++rank) {
    ranks.meet();
    if (rank != ranks.rank()) continue;
    if (rank == 0) {
      print_tail_header(cat(size, " processes, ", rounds, " aborts; ms"), kLateMs);
      print_tail("the call of the rank that aborts", all.own(), kLateMs);
      print_tail("the last call of all ranks", all.last(), kLateMs);
    }
    std::printf("rank %d: descriptors %zu, then %zu; threads %zu, then %zu; MB %.1f, then %.1f\n",
                rank, before.descriptors, after.descriptors, before.threads, after.threads,
                before.megabytes, after.megabytes);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace hvd::bench

int main(int argc, char** argv) {
  using hvd::bench::number_argument;
  return hvd::bench::run(number_argument(argc, argv, 1, 8), number_argument(argc, argv, 2, 200),
                         static_cast<std::size_t>(number_argument(argc, argv, 3, 4)));
}
