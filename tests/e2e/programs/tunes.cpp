// A worker that reduces until the autotuner's log, its argument, says that a search has ended, and
// checks every result. Ends with 3 if that takes longer than a minute.
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <hvd/hvd.h>

namespace {

bool has_settled(const char* path) {
  std::ostringstream content;
  content << std::ifstream(path).rdbuf();
  return content.str().find("settled") != std::string::npos;
}

int work(const char* log) {
  hvd::init();
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  std::vector<float> values(200'000);
  for (long step = 0;; ++step) {
    for (auto& value : values) value = static_cast<float>(hvd::rank() + step % 10);
    hvd::allreduce(values, {.name = "values", .op = hvd::Sum});
    const float ranks = static_cast<float>(hvd::size() * (hvd::size() - 1)) / 2;
    const float expected = ranks + static_cast<float>(hvd::size() * (step % 10));
    for (const float value : values) {
      if (value == expected) continue;
      std::fprintf(stderr, "step %ld: %g is not %g\n", step, static_cast<double>(value),
                   static_cast<double>(expected));
      return 1;
    }
    const bool late = std::chrono::steady_clock::now() > until;
    const bool stop = hvd::rank() == 0 && step % 50 == 0 && (late || has_settled(log));
    std::vector<float> votes{stop ? 1.0F : 0.0F};
    hvd::allreduce(votes, {.name = "stop", .op = hvd::Sum});
    if (votes.front() > 0) break;
  }
  const bool settled = hvd::rank() != 0 || has_settled(log);
  hvd::shutdown();
  return settled ? 0 : 3;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    return work(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
