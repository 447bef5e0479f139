// The time and memory that hvdrun takes as workers and hosts become many. Each line of its table is
// one job:
//
//   hvd_growth_bench local 64 256 1024       hvdrun -np N /bin/true on this machine
//   hvd_growth_bench hosts 100x1 1000x8      agents that only pretend, HOSTSxSLOTS of them
//
// Two processes run for each local worker at the same time, so at most 1,100 workers are taken.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <vector>

#include "base/clock.h"
#include "base/machine/proc.h"
#include "base/text.h"
#include "rendezvous/standalone.h"
#include "tests/support/pretend_agents.h"
#include "tests/support/process.h"

namespace hvd {
namespace {

constexpr int kMostLocal = 1'100;
constexpr std::chrono::minutes kLongest{3};

// Kilobytes; 0 if the process is gone.
long peak_memory(pid_t pid) {
  for (const auto& line : split(read_proc_file(cat("/proc/", pid, "/status")), '\n')) {
    if (line.starts_with("VmHWM:")) return std::atol(line.c_str() + 6);
  }
  return 0;
}

pid_t first_child(pid_t pid) {
  const auto words = split(read_proc_file(cat("/proc/", pid, "/task/", pid, "/children")), ' ');
  return words.empty() ? 0 : parse_number<pid_t>(words.front()).value_or(0);
}

double seconds_since(TimePoint begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

bool measure_local(int workers) {
  const TimePoint begin = Clock::now();
  test::Process job({test::binary("hvdrun"), "-np", cat(workers), "/bin/true"});
  long driver = 0;
  long agent = 0;
  // Peaks are read while it runs, since the kernel forgets them at its end.
  const auto sample = [&] {
    // The last one seen counts: before its exec the child shows the memory of hvdrun.
    if (const pid_t child = first_child(job.pid()); child > 0) {
      if (const long peak = peak_memory(child); peak > 0) agent = peak;
    }
    driver = std::max(driver, peak_memory(job.pid()));
    return peak_memory(job.pid()) == 0;
  };
  const bool ended = test::eventually(sample, kLongest);
  const auto status = job.wait();
  std::printf("| %d | %.2f s | %.1f MB | %.1f MB |\n", workers, seconds_since(begin),
              static_cast<double>(driver) / 1e3, static_cast<double>(agent) / 1e3);
  std::fflush(stdout);
  if (!ended || status.code != 0) std::fprintf(stderr, "it failed:\n%s", status.err.c_str());
  return ended && status.code == 0;
}

bool measure_hosts(int hosts, int slots) {
  const test::TemporaryDirectory directory;
  const std::string token_file = directory.path() / "token";
  auto listener = listen_tcp({"127.0.0.1", 0});
  const SocketAddress where = *local_address(listener->get());
  listener->reset();
  test::Process job({test::binary("hvdrun"), "--join-bind", where.to_string(), "--token-file",
                     token_file, "-np", cat(hosts * slots), "--start-timeout", "150", "/bin/true"});
  if (!job.wait_for_error("waiting at")) {
    std::fprintf(stderr, "hvdrun does not begin:\n%s", job.err().c_str());
    return false;
  }
  const auto token = rendezvous::load_token(token_file);
  if (!token.ok()) return false;
  long peak = 0;
  test::PretendAgentsOptions options;
  options.where = where;
  options.hosts = hosts;
  options.slots = slots;
  options.hold = std::chrono::milliseconds(1'000);
  options.on_all_launched = [&] { peak = peak_memory(job.pid()); };
  const auto report = test::run_pretend_agents(*token, options, Clock::now() + kLongest);
  const auto status = job.wait();
  if (!report.ok() || status.code != 0) {
    std::fprintf(stderr, "%d x %d failed: %s\n%s", hosts, slots,
                 report.status().to_string().c_str(), status.err.c_str());
    return false;
  }
  std::printf("| %d x %d | %.2f s | %.2f s | %.1f MB | %.1f MB | %.2f s |\n", hosts, slots,
              report->joined_after, report->launched_after,
              static_cast<double>(report->bytes) / 1e6, static_cast<double>(peak) / 1e3,
              report->longest_gap);
  std::fflush(stdout);
  return true;
}

int usage(const char* program) {
  std::fprintf(stderr, "usage: %s local N... | hosts HOSTSxSLOTS...\n", program);
  return 1;
}

}  // namespace
}  // namespace hvd

int main(int argc, char** argv) {
  using namespace hvd;  // NOLINT(google-build-using-namespace)
  if (argc < 3) return usage(argv[0]);
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  const std::string_view mode = argv[1];
  if (mode == "local") {
    std::printf("| workers | start to end | peak of hvdrun | peak of its agent |\n");
    std::printf("| --- | --- | --- | --- |\n");
  } else if (mode == "hosts") {
    std::printf("| hosts x slots | joined | launched | sent | peak of hvdrun | longest gap |\n");
    std::printf("| --- | --- | --- | --- | --- | --- |\n");
  } else {
    return usage(argv[0]);
  }
  for (int i = 2; i < argc; ++i) {
    const auto words = split(argv[i], 'x');
    const auto first = words.empty() ? std::nullopt : parse_number<int>(words[0]);
    const auto second = words.size() == 2 ? parse_number<int>(words[1]) : std::nullopt;
    if (mode == "local" && words.size() == 1 && first && *first > 0 && *first <= kMostLocal) {
      if (!measure_local(*first)) return 1;
    } else if (mode == "hosts" && first && second && *first > 0 && *second > 0) {
      if (!measure_hosts(*first, *second)) return 1;
    } else {
      return usage(argv[0]);
    }
  }
  return 0;
}
