// The cost of State::commit() and check_host_updates(), for states of several sizes, with and
// without copies. Rank 0 prints the median, and the 90th percentile, of so many calls.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include <hvd/hvd.h>

namespace {

using hvd::elastic::CommitMode;
using hvd::elastic::State;

double milliseconds_of(const std::function<void()>& call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

void measure(const char* what, std::size_t megabytes, CommitMode mode, bool looks, int calls) {
  std::vector<std::byte> memory(megabytes << 20);
  State state({.mode = mode});
  state.add("memory", memory);
  std::vector<double> times;
  hvd::elastic::run(state, [&] {
    times.clear();
    for (int i = 0; i < calls + 3; ++i) {
      if (mode == CommitMode::mark) state.mutate([] {});
      hvd::barrier();
      const double time =
          milliseconds_of([&] { looks ? state.check_host_updates() : state.commit(); });
      if (i >= 3) times.push_back(time);
    }
  });
  if (hvd::rank() != 0) return;
  std::sort(times.begin(), times.end());
  std::printf("%-28s %4zu MB  median %8.3f ms  90%% %8.3f ms\n", what, megabytes,
              times[times.size() / 2], times[times.size() * 9 / 10]);
  std::fflush(stdout);
}

}  // namespace

int main() {
  try {
    hvd::init();
    measure("check_host_updates", 0, CommitMode::copy, true, 500);
    measure("commit", 0, CommitMode::copy, false, 500);
    measure("commit", 1, CommitMode::copy, false, 300);
    measure("commit", 100, CommitMode::copy, false, 30);
    measure("commit, CommitMode::mark", 100, CommitMode::mark, false, 500);
    hvd::shutdown();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "commit_bench: %s\n", error.what());
    return 1;
  }
}
