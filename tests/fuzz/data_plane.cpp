// Random collectives in random worlds, compared element for element with a simple reference
// computation.
#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "tests/fuzz/expected.h"
#include "tests/fuzz/plan.h"
#include "tests/fuzz/run.h"
#include "tests/fuzz/shrink.h"

namespace hvd::fuzz {
namespace {

constexpr const char* kUsage =
    "hvd_data_plane_fuzz [--seed N] [--minutes M | --worlds N] [--verbose]\n"
    "Forms worlds of 1 to 8 ranks on 1 to 4 hosts and runs collectives of all kinds, types and\n"
    "sizes in them, several at a time; compares what comes out with a plain computation. The seed\n"
    "of the first world is N (1), that of the next one N + 1, until the minutes are over (1).\n"
    "--worlds 1 runs that of one seed again. The first finding ends it with exit code 1, and is\n"
    "told with its seed and the smallest plan that shows it.\n";

constexpr std::chrono::minutes kShrinking{2};

struct Options {
  std::uint64_t seed = 1;
  double minutes = 1;
  std::optional<std::uint64_t> worlds;
  bool verbose = false;
};

template <typename Number>
Number number_of(const std::string& flag, const std::string& text) {
  const auto value = parse_number<Number>(text);
  if (!value || *value < 0) throw std::runtime_error(cat(flag, " ", text, ": must be a number"));
  return *value;
}

Options options_of(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--verbose") {
      options.verbose = true;
      continue;
    }
    if (flag != "--seed" && flag != "--minutes" && flag != "--worlds") {
      throw std::runtime_error(cat("unknown argument ", flag, "; --help names all"));
    }
    if (i + 1 == argc) throw std::runtime_error(cat(flag, ": a value is missing"));
    const std::string value = argv[++i];
    if (flag == "--seed") options.seed = number_of<std::uint64_t>(flag, value);
    if (flag == "--minutes") options.minutes = number_of<double>(flag, value);
    if (flag == "--worlds") options.worlds = number_of<std::uint64_t>(flag, value);
  }
  return options;
}

// --- if the fuzzer itself dies
// ---------------------------------------------------------------------

char dying_words[100];

void tell_seed_and_die(int signal) {
  [[maybe_unused]] const auto put = ::write(2, dying_words, std::strlen(dying_words));
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

void note_seed(std::uint64_t seed) {
  std::snprintf(dying_words, sizeof(dying_words),
                "hvd_data_plane_fuzz: died in the world of seed %llu\n",
                static_cast<unsigned long long>(seed));
}

// --- what was run -------------------------------------------------------------------------------

// How often each code path was taken, by its category.
class Coverage {
 public:
  void add(const Plan& plan) {
    const WorldPlan& world = plan.world;
    ++worlds_;
    count("ranks", cat(world.size));
    count("ranks are", world.processes ? "processes" : "threads");
    count("transport", world.transport == runtime::Transport::gloo_tcp
                           ? std::string("gloo-tcp")
                           : cat("hvd, sockets ", world.sockets));
    count("protection", std::string(name_of(world.protection)));
    count("hosts", cat(1 + *std::max_element(world.host.begin(), world.host.end())));
    const auto sharing = std::count(world.shares.begin(), world.shares.end(), true);
    count("shared memory", sharing == 0            ? "no rank"
                           : sharing == world.size ? "all ranks"
                                                   : "some ranks");
    count("allreduce by hosts", choice(world.hierarchical_allreduce));
    count("allgather by hosts", choice(world.hierarchical_allgather));
    count("links", links_text(world.links));
    count("process sets", cat(plan.sets.size() - 1));
    for (const auto& window : plan.windows) {
      if (!window.joined.empty()) count("windows", "some have joined");
      count("windows", cat(window.calls.size(), " at once"));
      for (const auto& call : window.calls) add(call);
    }
  }
  std::uint64_t worlds() const { return worlds_; }
  std::string text() const {
    std::string text = cat(worlds_, " worlds, ", with_thousands(calls_), " collectives, ",
                           with_thousands(bytes_ >> 20), " MB of all ranks' inputs\n");
    for (const auto& [what, ways] : ways_) {
      std::vector<std::string> texts;
      for (const auto& [way, times] : ways) texts.push_back(cat(way, " ", times));
      text += cat("  ", what, ": ", join(texts, "; "), "\n");
    }
    return text;
  }

 private:
  static std::string choice(const std::optional<bool>& value) {
    return !value ? "unset" : *value ? "on" : "off";
  }
  void add(const CallPlan& call) {
    ++calls_;
    count("kinds", std::string(kind_name(call.kind)));
    if (call.kind == runtime::Kind::barrier) return;
    count("types", std::string(runtime::type_name(call.type)));
    if (call.reduces()) count("operations", std::string(runtime::op_name(call.op)));
    if (call.prescale != 1 || call.postscale != 1) count("options", "factors");
    if (call.compression != Compression::none) count("options", "compression");
    if (call.in_place) count("options", "in place");
    if (call.in_heap == InHeap::most) count("options", "most in the heap");
    if (call.in_heap == InHeap::all) count("options", "in the heap");
    if (call.allocated) count("options", "allocated");
    if (call.set != 0) count("options", "in a process set");
    if (call.tensors.size() > 1) count("options", "grouped");
    for (const auto& tensor : call.tensors) {
      if (!tensor.splits.empty()) count("options", "splits");
      std::uint64_t bytes = 0;
      for (const auto rows : tensor.rows) bytes += static_cast<std::uint64_t>(rows);
      bytes *= static_cast<std::uint64_t>(elements_of(tensor.row)) * size_of(call.type);
      bytes_ += bytes;
      const std::uint64_t each = bytes / tensor.rows.size();
      count("bytes of a tensor", each == 0          ? "0"
                                 : each < 1 << 10   ? "1 to 1 KB"
                                 : each < 64 << 10  ? "1 to 64 KB"
                                 : each < 256 << 10 ? "64 to 256 KB"
                                 : each < 1 << 20   ? "256 KB to 1 MB"
                                                    : "1 to 8 MB");
    }
  }
  void count(const std::string& what, const std::string& way) { ++ways_[what][way]; }

  std::uint64_t worlds_ = 0;
  std::uint64_t calls_ = 0;
  std::uint64_t bytes_ = 0;
  std::map<std::string, std::map<std::string, std::uint64_t>> ways_;
};

void tell(const Plan& plan, const Finding& finding) {
  std::cout << "FOUND with seed " << plan.seed << ", window " << finding.window << ", call "
            << finding.call << ": " << finding.text << "\n"
            << "Again: hvd_data_plane_fuzz --seed " << plan.seed << " --worlds 1\n"
            << text_of(plan) << "Looking for a smaller plan ..." << std::endl;
  const Shrunk smallest = shrink(plan, finding, Clock::now() + kShrinking);
  std::cout << "The smallest of " << smallest.runs << " runs: " << smallest.finding.text << "\n"
            << text_of(smallest.plan) << std::flush;
}

int fuzz(const Options& options) {
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
    ::signal(signal, &tell_seed_and_die);
  }
  LogOptions log;
  log.level = LogLevel::error;
  set_log_options(log);
  const auto begin = Clock::now();
  const std::chrono::duration<double> longest = std::chrono::duration<double>(options.minutes * 60);
  Coverage coverage;
  for (std::uint64_t seed = options.seed;; ++seed) {
    if (options.worlds ? coverage.worlds() == *options.worlds : Clock::now() - begin >= longest)
      break;
    const Plan plan = plan_of(seed);
    note_seed(seed);
    if (options.verbose) std::cout << "seed " << seed << ": " << text_of(plan) << std::flush;
    coverage.add(plan);
    if (const auto finding = run(plan)) {
      tell(plan, *finding);
      return 1;
    }
    if (coverage.worlds() % 1'000 == 0)
      std::cout << "seed " << seed << ": " << coverage.text() << std::flush;
  }
  const std::chrono::duration<double> took = Clock::now() - begin;
  std::cout << "Nothing was found from seed " << options.seed << " on in "
            << static_cast<int>(took.count()) << " s: " << coverage.text();
  return 0;
}

}  // namespace
}  // namespace hvd::fuzz

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--help") == 0) {
    std::cout << hvd::fuzz::kUsage;
    return 0;
  }
  try {
    return hvd::fuzz::fuzz(hvd::fuzz::options_of(argc, argv));
  } catch (const std::exception& error) {
    std::cerr << "hvd_data_plane_fuzz: " << error.what() << "\n";
    return 2;
  }
}
