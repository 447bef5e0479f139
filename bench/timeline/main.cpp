// hvd_timeline_bench [RANKS [INTERVALS [STEPS]]]: what recording a timeline costs. The same steps
// with and without it, in turns, in intervals of STEPS; each rank is a process, times are those of
// rank 0. A recorded interval begins when all ranks record, and what its file still lacks at its
// end is written before the next one: it is no part of either, and is shown beside.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <unistd.h>

#include "base/text.h"
#include "bench/arguments.h"
#include "bench/collectives/ranks.h"
#include "bench/collectives/resnet50.h"
#include "bench/collectives/tensors.h"
#include "bench/times.h"
#include "runtime/core/threads.h"

namespace hvd::bench {
namespace {

void check(const Status& status) {
  if (!status.ok()) give_up(status);
}

void compare(runtime::World& world, const char* what, const std::vector<std::size_t>& sizes,
             int intervals, int steps) {
  Tensors tensors(world, what, sizes);
  const std::string path = cat("/tmp/hvd-timeline-bench.", ::getpid(), ".json");
  const bool is_root = world.rank() == 0;
  std::vector<double> plain;
  std::vector<double> recorded;
  std::vector<double> rest;
  for (int i = 0; i < 5; ++i) tensors.allreduce();  // fills caches of all kinds
  for (int interval = 0; interval < 2 * intervals; ++interval) {
    // Which of the two is first changes, too.
    const bool records = (interval % 4 == 1) || (interval % 4 == 2);
    if (records && is_root) check(world.start_timeline(path, false));
    tensors.allreduce();
    for (int step = 0; step < steps; ++step) {
      const auto begin = Clock::now();
      tensors.allreduce();
      (records ? recorded : plain).push_back(milliseconds_since(begin));
    }
    const auto end = Clock::now();
    if (records && is_root) check(world.stop_timeline(end + std::chrono::seconds(60)));
    if (records) rest.push_back(milliseconds_since(end));
    tensors.allreduce();
  }
  if (!is_root) return;
  const double ratio = median(recorded) / median(plain);
  std::printf("%-36s %9.3f %9.3f %8.3f %8.1f MB %9.1f  %s\n", what, median(plain), median(recorded),
              ratio, static_cast<double>(std::filesystem::file_size(path)) / 1e6, median(rest),
              ratio <= 1.02 ? "" : "<-- more than 1.02");
  std::fflush(stdout);
  std::filesystem::remove(path);
}

int run(int size, int intervals, int steps) {
  Ranks ranks(size);
  const runtime::SignalShield shield;
  std::vector<runtime::Member> members;
  for (int rank = 0; rank < size; ++rank) {
    members.push_back({cat("localhost#", rank), "localhost", "127.0.0.1"});
  }
  // All processes derive the same token; there are no other users to keep out.
  const auto token = Token::from_hex(std::string(64, '5'));
  check(token.status());
  auto world = runtime::World::create({ranks.rank(), members, 1, *token}, ranks);
  check(world.status());
  if (ranks.rank() == 0) {
    std::printf("%d ranks, milliseconds a step, medians of %d steps\n", size, intervals * steps);
    std::printf("%-36s %9s %9s %8s %11s %9s\n", "", "plain", "recorded", "ratio", "file", "rest");
  }
  compare(**world, "161 tensors of ResNet-50, 102 MB", resnet50_sizes(), intervals, steps);
  compare(**world, "1,000 tensors of 1 KB", std::vector<std::size_t>(1000, 256), intervals,
          10 * steps);
  compare(**world, "one tensor of 4 KB", {1024}, intervals, 20 * steps);
  const auto left = (*world)->shutdown(Clock::now() + std::chrono::seconds(60));
  check(left.status);
  return 0;
}

}  // namespace
}  // namespace hvd::bench

int main(int argc, char** argv) {
  using hvd::bench::number_argument;
  return hvd::bench::run(number_argument(argc, argv, 1, 4), number_argument(argc, argv, 2, 10),
                         number_argument(argc, argv, 3, 10));
}
