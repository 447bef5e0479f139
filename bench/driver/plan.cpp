// How long it takes to decide about a large world: 10,000 hosts of 8 slots lose 100 of them.
//
//     hvd_plan_bench [HOSTS [SLOTS [LOST]]]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/text.h"
#include "bench/times.h"
#include "driver/job/staffing.h"
#include "driver/job/worlds.h"

namespace {

using namespace hvd::driver;  // NOLINT(google-build-using-namespace)
using hvd::cat;
using hvd::Clock;
using hvd::bench::milliseconds_since;

constexpr int kRounds = 21;

void print(const char* what, std::vector<double> times) {
  std::sort(times.begin(), times.end());
  std::printf("%-44s min %6.1f ms, median %6.1f ms, max %6.1f ms\n", what, times.front(),
              times[times.size() / 2], times.back());
}

}  // namespace

int main(int argc, char** argv) {
  const int hosts = argc > 1 ? std::atoi(argv[1]) : 10'000;
  const int slots = argc > 2 ? std::atoi(argv[2]) : 8;
  const int lost = argc > 3 ? std::atoi(argv[3]) : 100;
  if (hosts < 1 || slots < 1 || lost < 0 || lost > hosts) {
    std::fprintf(stderr, "usage: hvd_plan_bench [HOSTS [SLOTS [LOST]]]\n");
    return 2;
  }
  std::vector<Room> rooms;
  std::vector<Newcomer> first;
  Incarnation last = 0;
  for (int host = 0; host < hosts; ++host) {
    rooms.push_back({cat("node-", host, ".cluster"), slots});
    for (int slot = 0; slot < slots; ++slot) {
      first.push_back({rooms.back().host, slot, ++last, cat("10.0.", host / 256, ".", host % 256)});
    }
  }
  const auto world = plan_world({}, {}, first);
  std::printf("%d hosts of %d slots, %d hosts are lost\n", hosts, slots, lost);
  std::vector<double> loss;
  std::vector<double> staffing_times;
  std::vector<double> replacement;
  for (int round = 0; round < kRounds; ++round) {
    // Spread over the world, with rank 0 among them.
    std::vector<Incarnation> gone;
    std::vector<Occupant> left;
    for (const auto& member : world) {
      const int host = (member.rank / slots);
      const bool is_lost = lost > 0 && host % (hosts / lost) == 0 && host / (hosts / lost) < lost;
      if (is_lost) {
        gone.push_back(member.incarnation);
      } else {
        left.push_back({member.host, member.slot, member.incarnation, true});
      }
    }
    auto begin = Clock::now();
    const auto without = plan_world(world, gone, {});
    loss.push_back(milliseconds_since(begin));
    begin = Clock::now();
    const Staffing staffing = staff(rooms, left, {});
    staffing_times.push_back(milliseconds_since(begin));
    std::vector<Newcomer> newcomers;
    for (const auto& place : staffing.launch)
      newcomers.push_back({place.host, place.slot, ++last, ""});
    begin = Clock::now();
    const auto again = plan_world(without, {}, newcomers);
    replacement.push_back(milliseconds_since(begin));
    if (again.size() != world.size()) return 1;
  }
  print("the world without them", loss);
  print("who is to be started", staffing_times);
  print("the world with their replacements", replacement);
}
