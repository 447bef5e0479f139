// A worker as users write them, for worker_test.cpp: `worker_program SCENARIO`. It prints what it
// found; anything unexpected ends it with 1.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <unistd.h>
#include <vector>

#include <hvd/hvd.h>

namespace {

int entries_of(const char* directory) {
  int count = 0;
  for ([[maybe_unused]] const auto& item : std::filesystem::directory_iterator(directory)) ++count;
  return count;
}

float sum_of_ranks() {
  std::vector<float> values{static_cast<float>(hvd::rank() + 1)};
  hvd::allreduce(values, {.name = "ranks", .op = hvd::Sum});
  return values[0];
}

void place() {
  std::printf("rank %d of %d, local %d of %d, cross %d of %d, %s, sum %g\n", hvd::rank(),
              hvd::size(), hvd::local_rank(), hvd::local_size(), hvd::cross_rank(),
              hvd::cross_size(), hvd::is_homogeneous() ? "homogeneous" : "heterogeneous",
              static_cast<double>(sum_of_ranks()));
  std::fflush(stdout);
}

volatile std::sig_atomic_t signals_of_our_own = 0;

// Whatever is called after the world has failed, and after it has been left.
bool same_cause_from_now_on(const std::string& cause) {
  std::vector<float> data(3);
  const std::function<void()> calls[] = {
      [&] { hvd::allreduce(data, {.name = "later"}); },
      [&] { hvd::allgather(data); },
      [&] { hvd::broadcast_object("object"); },
      [&] { hvd::barrier(); },
      [&] {
        hvd::add_process_set({0, 2});
      },
  };
  for (const auto& call : calls) {
    try {
      call();
      return false;
    } catch (const hvd::CollectiveError& error) {
      if (error.what() != cause) return false;
    }
  }
  hvd::shutdown();
  try {
    hvd::barrier();
  } catch (const hvd::NotInitializedError& error) {
    return std::string(error.what()).find(cause) != std::string::npos;
  }
  return false;
}

int run(const std::string& scenario) {
  if (scenario == "own-signal") std::signal(SIGUSR1, [](int) { signals_of_our_own = 1; });
  hvd::init({.dynamic_process_sets = scenario == "loss"});
  if (scenario == "place") {
    place();
    hvd::shutdown();
    return 0;
  }
  if (scenario == "no-shutdown") {  // the library says goodbye by itself
    place();
    return 0;
  }
  if (scenario == "rounds") {
    hvd::shutdown();
    hvd::init();
    sum_of_ranks();
    hvd::shutdown();
    const int descriptors = entries_of("/proc/self/fd");
    const int threads = entries_of("/proc/self/task");
    for (int round = 0; round < 100; ++round) {
      hvd::init();
      const int expected = hvd::size() * (hvd::size() + 1) / 2;
      if (sum_of_ranks() != static_cast<float>(expected)) return 1;
      hvd::shutdown();
    }
    std::printf("%d descriptors and %d threads more\n", entries_of("/proc/self/fd") - descriptors,
                entries_of("/proc/self/task") - threads);
    return 0;
  }
  if (scenario == "threads") {  // which core each of the library's runs on
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::ifstream status(task.path() / "status");
      std::string name;
      for (std::string line; std::getline(status, line);) {
        if (line.rfind("Name:", 0) == 0) name = line.substr(6);
        if (line.rfind("Cpus_allowed_list:", 0) == 0 && name.rfind("hvd-", 0) == 0) {
          std::printf("%s on %s\n", name.c_str(), line.substr(19).c_str());
        }
      }
    }
    hvd::shutdown();
    return 0;
  }
  if (scenario == "timeline") {  // started and stopped by rank 0; calls of others change nothing
    sum_of_ranks();
    if (hvd::rank() != 0) hvd::stop_timeline();
    hvd::start_timeline(std::getenv("TIMELINE_OF_TEST"), true);
    for (int step = 0; step < 20; ++step) sum_of_ranks();
    hvd::stop_timeline();
    sum_of_ranks();
    if (hvd::rank() != 0) return 0;
    for (const char* const path : {"/dev/null", "/no/such/directory/t.json"}) {
      try {
        hvd::start_timeline(path);
        return 1;
      } catch (const hvd::InvalidArgumentError& error) {
        std::printf("%s\n", error.what());
      }
    }
    try {
      hvd::stop_timeline();
    } catch (const hvd::InvalidArgumentError& error) {
      std::printf("%s\n", error.what());
    }
    return 0;
  }
  if (scenario == "own-signal") {  // a program that uses SIGUSR1 itself
    std::raise(SIGUSR1);
    return signals_of_our_own == 1 ? 0 : 1;
  }
  if (scenario == "memory") {  // whether it shares some with others of its host
    std::ifstream maps("/proc/self/maps");
    bool shares = false;
    for (std::string line; std::getline(maps, line);) {
      shares = shares || line.find("/memfd:hvd") != std::string::npos;
    }
    std::printf("%s, sum %g\n", shares ? "shares memory" : "shares none", sum_of_ranks());
    hvd::shutdown();
    return 0;
  }
  if (scenario == "wait") {  // until somebody else ends it
    place();
    for (;;) ::pause();
  }
  if (scenario == "loss") {  // rank 1 dies in the midst, the others say what they were told
    try {
      for (int step = 0;; ++step) {
        if (hvd::rank() == 1 && step == 10) ::_exit(9);
        sum_of_ranks();
      }
    } catch (const hvd::CollectiveError& error) {
      std::printf("lost rank %d on host %s: %s\n", error.rank(), error.host().c_str(),
                  error.what());
      return same_cause_from_now_on(error.what()) ? 0 : 1;
    }
    return 1;
  }
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return argc == 2 ? run(argv[1]) : 2;
  } catch (const hvd::InitError& error) {
    std::fprintf(stderr, "InitError: %s\n", error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return 1;
}
