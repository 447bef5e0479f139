// The cost of each fault: when it is detected and by which part, and when the remaining workers
// have committed their next step. Real hvdrun, real workers, pretend hosts (tests/testbed); needs
// root.
//
//   hvd_faults_bench [--rounds 20] [--state 100000000] [--frozen 0] [--step 10000] [--rate 1gbit]
//                    [--only WORDS]
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <functional>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/text.h"
#include "bench/faults/rows.h"

namespace hvd::bench {
namespace {

constexpr const char* kUsage =
    "hvd_faults_bench [--rounds N] [--state BYTES] [--frozen BYTES] [--step MICROSECONDS]\n"
    "                 [--rate RATE] [--only WORDS]\n"
    "Injects each fault N times (20) into jobs of elastic_steps and prints how long it took until "
    "it\n"
    "was noticed and until all who were left had committed their next step. --state is that of "
    "the\n"
    "rows that measure with much state (100000000), --frozen that of weights beside it that never\n"
    "change, where a host is added; --step how long a step lasts beside what hvd does (10000).\n"
    "--rate limits the links of the hosts (1gbit). --only runs the rows whose names hold these "
    "words.\n";

std::string times(std::vector<double> values) {
  if (values.empty()) return "-";
  std::sort(values.begin(), values.end());
  char text[64];
  std::snprintf(text, sizeof(text), "%7.0f %7.0f %7.0f", values.front(), median(values),
                values.back());
  return text;
}

void print(const Row& row, const Times& seen) {
  std::printf("%-44s %-12s %-24s %-24s %s\n", row.name.c_str(), row.noticed_by.c_str(),
              times(seen.noticed).c_str(), times(seen.recovered).c_str(),
              seen.step > 0 ? cat("step ", static_cast<long>(seen.step), " ms").c_str() : "");
  for (const auto& [phase, values] : seen.phases) {
    std::printf("  %-55s %-24s %s\n", phase.c_str(), "", times(values).c_str());
  }
  std::fflush(stdout);
}

int main_of(const std::vector<std::string>& words) {
  BenchOptions options;
  std::string only;
  for (std::size_t at = 0; at < words.size(); ++at) {
    if (words[at] == "--help" || words[at] == "-h") {
      std::cout << kUsage;
      return 0;
    }
    if (at + 1 == words.size())
      throw std::runtime_error(words[at] + " is unknown, or needs a value");
    const std::string& value = words[at + 1];
    if (words[at] == "--only") {
      only = value;
    } else if (words[at] == "--rate") {
      options.rate = value;
    } else {
      const auto number = parse_number<long>(value);
      if (!number || *number < 1) {
        throw std::runtime_error(cat(words[at], " ", value, ": must be a whole number above 0"));
      }
      if (words[at] == "--rounds") {
        options.rounds = static_cast<int>(*number);
      } else if (words[at] == "--state") {
        options.state = *number;
      } else if (words[at] == "--frozen") {
        options.frozen = *number;
      } else if (words[at] == "--step") {
        options.step_us = *number;
      } else {
        throw std::runtime_error(words[at] + " is unknown; --help names all");
      }
    }
    ++at;
  }
  if (const auto reason = test::HostBed::why_impossible()) throw std::runtime_error(*reason);
  std::printf("milliseconds: min, median, max of %d\n%-44s %-12s %-24s %-24s\n", options.rounds,
              "fault", "noticed by", "noticed within", "next committed step");
  bool all_well = true;
  for (const auto& row : rows(options)) {
    if (row.name.find(only) == std::string::npos) continue;
    try {
      print(row, measure(row, options));
    } catch (const std::exception& error) {
      all_well = false;
      std::printf("%-44s FAILED: %s\n", row.name.c_str(), error.what());
      std::fflush(stdout);
    }
  }
  return all_well ? 0 : 1;
}

}  // namespace
}  // namespace hvd::bench

int main(int argc, char** argv) {
  try {
    return hvd::bench::main_of({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << "hvd_faults_bench: " << error.what() << "\n";
    return 1;
  }
}
