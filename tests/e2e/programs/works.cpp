// A worker that initialises hvd, reduces, and then does as it is told. Says "PID working RANK."
// after its first allreduce.
//
//   (nothing)      reduces for ever
//   --steps N      ends in order after N steps
//   --leave        ends the process with _exit(0), without a word to anybody
//   --fail R CODE  rank R writes 30 lines to stderr and ends with CODE after its first step
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unistd.h>
#include <vector>

#include <hvd/hvd.h>

int main(int argc, char** argv) {
  long steps = -1;
  bool leave = false;
  int failing_rank = -1;
  int code = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--steps") {
      steps = std::atol(argv[++i]);
    } else if (argument == "--leave") {
      leave = true;
    } else if (argument == "--fail") {
      failing_rank = std::atoi(argv[++i]);
      code = std::atoi(argv[++i]);
    }
  }
  hvd::init();
  std::vector<float> values(256);
  for (long step = 0; step != steps; ++step) {
    for (auto& value : values) value = static_cast<float>(hvd::rank() + 1);
    hvd::allreduce(values, {.name = "values", .op = hvd::Sum});
    const int sum = hvd::size() * (hvd::size() + 1) / 2;
    const auto expected = static_cast<float>(sum);
    for (const float value : values) {
      if (value != expected) {
        std::fprintf(stderr, "rank %d, step %ld: %g is not %g\n", hvd::rank(), step,
                     static_cast<double>(value), static_cast<double>(expected));
        return 20;
      }
    }
    if (step != 0) continue;
    std::printf("%d working %d.\n", static_cast<int>(::getpid()), hvd::rank());
    std::fflush(stdout);
    if (leave) ::_exit(0);
    if (hvd::rank() == failing_rank) {
      for (int line = 1; line <= 30; ++line) std::fprintf(stderr, "last words %d.\n", line);
      std::fflush(stderr);
      ::_exit(code);
    }
  }
  hvd::shutdown();
  return 0;
}
