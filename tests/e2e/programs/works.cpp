// A worker that initialises hvd, reduces, and then does as it is told. Says "PID working RANK."
// after its first allreduce.
//
//   (nothing)      reduces for ever
//   --steps N      ends in order after N steps
//   --tensors N    reduces N tensors in each step, asked for at once
//   --pause MS     rests for so long after each step
//   --leave        ends the process with _exit(0), without calling hvd::shutdown()
//   --fail R CODE  rank R writes 30 lines to stderr and ends with CODE after its first step
//   --late MS      ... so much later, when the others wait for it
//   --return       ... by returning CODE from main(), not by _exit()
//   --catch CODE   what a collective throws ends the process with CODE, at once
//   --patient      ... is waited out: it ignores SIGTERM, calls shutdown(), and ends with 7
//   --print        prints in each step, to standard streams that are closed
//   --close        closes them after hvd::init()
//   --fork         a child of it calls hvd::init() after the first step, and says what came of it
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <hvd/hvd.h>

#include "tests/e2e/programs/closed_streams.h"

namespace {

// A forked child has the memory of the worker, but neither its threads nor its place.
void init_in_child() {
  if (const pid_t child = ::fork(); child != 0) {
    ::waitpid(child, nullptr, 0);
    return;
  }
  try {
    hvd::init();
    std::printf("the child is rank %d\n", hvd::rank());
  } catch (const std::exception& error) {
    std::printf("the child heard: %s\n", error.what());
  }
  std::fflush(stdout);
  ::_exit(0);
}

struct Options {
  long steps = -1;
  std::size_t tensors = 1;
  int pause_ms = 0;
  bool leave = false;
  bool fork = false;
  bool print = false;
  bool close = false;
  bool by_return = false;
  int late_ms = 0;
  bool patient = false;
  int failing_rank = -1;
  int code = 0;
  int code_when_caught = -1;
};

int work(const Options& options) {
  hvd::init();
  if (options.close) hvd::test::close_standard_streams();
  std::vector<std::vector<float>> tensors(options.tensors, std::vector<float>(256));
  for (long step = 0; step != options.steps; ++step) {
    if (options.print) hvd::test::print_to_closed_streams();
    std::vector<hvd::Handle> handles;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      for (auto& value : tensors[i]) value = static_cast<float>(hvd::rank() + 1);
      handles.push_back(
          hvd::allreduce_async(tensors[i], {.name = "values" + std::to_string(i), .op = hvd::Sum}));
    }
    for (const auto& handle : handles) handle.wait();
    const int sum = hvd::size() * (hvd::size() + 1) / 2;
    const auto expected = static_cast<float>(sum);
    for (const auto& values : tensors) {
      for (const float value : values) {
        if (value == expected) continue;
        std::fprintf(stderr, "rank %d, step %ld: %g is not %g\n", hvd::rank(), step,
                     static_cast<double>(value), static_cast<double>(expected));
        return 20;
      }
    }
    if (options.pause_ms > 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(options.pause_ms));
    }
    if (step != 0) continue;
    std::printf("%d working %d.\n", static_cast<int>(::getpid()), hvd::rank());
    std::fflush(stdout);
    if (options.fork) init_in_child();
    if (options.leave) ::_exit(0);
    if (hvd::rank() == options.failing_rank) {
      std::this_thread::sleep_for(std::chrono::milliseconds(options.late_ms));
      for (int line = 1; line <= 30; ++line) std::fprintf(stderr, "last words %d.\n", line);
      std::fflush(stderr);
      if (options.by_return) return options.code;
      ::_exit(options.code);
    }
  }
  hvd::shutdown();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--steps") {
      options.steps = std::atol(argv[++i]);
    } else if (argument == "--tensors") {
      options.tensors = static_cast<std::size_t>(std::atol(argv[++i]));
    } else if (argument == "--leave") {
      options.leave = true;
    } else if (argument == "--fork") {
      options.fork = true;
    } else if (argument == "--print") {
      options.print = true;
    } else if (argument == "--close") {
      options.close = true;
    } else if (argument == "--pause") {
      options.pause_ms = std::atoi(argv[++i]);
    } else if (argument == "--late") {
      options.late_ms = std::atoi(argv[++i]);
    } else if (argument == "--patient") {
      options.patient = true;
    } else if (argument == "--return") {
      options.by_return = true;
    } else if (argument == "--catch") {
      options.code_when_caught = std::atoi(argv[++i]);
    } else if (argument == "--fail") {
      options.failing_rank = std::atoi(argv[++i]);
      options.code = std::atoi(argv[++i]);
    }
  }
  if (options.patient) std::signal(SIGTERM, SIG_IGN);
  if (options.code_when_caught < 0 && !options.patient) return work(options);
  try {
    return work(options);
  } catch (const std::exception& error) {
    if (!options.patient) ::_exit(options.code_when_caught);
    hvd::shutdown();
    return 7;
  }
}
