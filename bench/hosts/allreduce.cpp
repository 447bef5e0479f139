// hvdrun -H h1:2,h2:2 ./hvd_hosts_bench [ROUNDS [ROW [COLUMN,...]]]: allreduce of float32 between
// hosts through the whole pipeline, side by side with stock Gloo's own flat allreduce of the same
// bytes. All take turns in the same processes, so that all see the same weather; medians of what
// rank 0 sees. Columns: hvd (as it comes), by size (whatever the links), flat (not by hosts),
// messages (by hosts, without shared memory), clear and encrypted
// (as it comes, with that protection of data instead of integrity alone), gloo. ROW: only those
// whose names contain it.
#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <list>
#include <netdb.h>
#include <unistd.h>

#include <hvd/hvd.h>

#include "base/text.h"
#include "bench/collectives/resnet50.h"
#include "bench/collectives/stock_gloo.h"
#include "bench/collectives/tensors.h"
#include "bench/times.h"
#include "runtime/core/threads.h"

namespace hvd::bench {
namespace {

// The job's exchange, with which the benchmark's own worlds are made.
class JobExchange final : public runtime::Exchange {
 public:
  Result<std::vector<std::string>> exchange(std::string_view blob,
                                            TimePoint /*deadline*/) override {
    return allgather_object(blob);
  }
};

std::string own_host() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) std::perror("gethostname");
  return name.data();
}

std::string ipv4_of(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) {
    give_up({Code::not_found, cat(host, " has no IPv4 address")});
  }
  std::array<char, INET_ADDRSTRLEN> text{};
  const auto* const address = reinterpret_cast<const sockaddr_in*>(found->ai_addr);
  ::inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size());
  ::freeaddrinfo(found);
  return text.data();
}

struct Row {
  const char* what;
  std::vector<std::size_t> tensors;  // ours
  int repeats;
  double most_of_gloo;  // 0: no bar
};

constexpr std::array kColumns{"hvd", "by size", "flat", "messages", "clear", "encrypted", "gloo"};

class Bench {
 public:
  explicit Bench(const std::string& columns) {
    const std::string host = own_host();
    const std::string address = ipv4_of(host);
    for (const auto& member : allgather_object(cat(host, " ", address))) {
      const auto words = split(member, ' ');
      members_.push_back({cat(words[0], "#", members_.size()), words[0], words[1]});
    }
    const auto named = split(columns, ',');
    for (std::size_t i = 0; i < kColumns.size(); ++i) {
      const bool wanted =
          columns.empty() || std::find(named.begin(), named.end(), kColumns.at(i)) != named.end();
      if (!wanted) continue;
      if (kColumns.at(i) == std::string_view("gloo")) {
        gloo_ = stock_gloo(rank(), size(), address, exchange_);
      } else {
        worlds_.at(i) = world(i);
      }
    }
  }

  void compare(const Row& row) {
    std::array<std::function<void()>, kColumns.size()> work;
    std::list<Tensors> tensors;
    std::size_t elements = 0;
    for (const auto each : row.tensors) elements += each;
    for (std::size_t i = 0; i < worlds_.size(); ++i) {
      if (!worlds_.at(i)) continue;
      work.at(i) = [&on = tensors.emplace_back(*worlds_.at(i), row.what, row.tensors)] {
        on.allreduce();
      };
    }
    std::optional<Flat> flat;
    if (gloo_) {
      flat.emplace(gloo_, elements);
      work.back() = [&flat] { flat->allreduce(); };
    }
    std::array<std::vector<double>, kColumns.size()> times;
    std::array<std::vector<double>, kColumns.size()> processor_times;
    for (int i = -3; i < row.repeats; ++i) {  // the first three fill caches of all kinds
      for (std::size_t column = 0; column < work.size(); ++column) {
        if (!work.at(column)) continue;
        barrier();
        const double used = processor_milliseconds();
        const double taken = milliseconds(work.at(column));
        if (i < 0) continue;
        times.at(column).push_back(taken);
        processor_times.at(column).push_back(processor_milliseconds() - used);
      }
    }
    if (rank() != 0) return;
    print(row.what, times, row.most_of_gloo);
    print("  processor time of rank 0", processor_times, 0);
  }

  void leave() {
    for (const auto& world : worlds_) {
      if (!world) continue;
      const auto left = world->shutdown(Clock::now() + std::chrono::seconds(60));
      if (!left.ok()) give_up(left.status);
    }
  }

 private:
  std::unique_ptr<runtime::World> world(std::size_t column) {
    // A token that all processes have, without asking anybody: nobody else is here.
    const auto token = Token::from_hex(std::string(64, '5'));
    if (!token.ok()) give_up(token.status());
    runtime::WorldSpec spec(rank(), members_, column + 1, *token);
    const std::string_view name = kColumns.at(column);
    if (name == "by size") spec.config.link_speed = {std::chrono::microseconds(0), 1};
    if (name == "flat") spec.config.hierarchical_allreduce = false;
    if (name == "messages") {
      spec.config.hierarchical_allreduce = true;
      spec.config.shared_memory = false;
    }
    if (name == "clear") spec.config.data_security = Protection::none;
    if (name == "encrypted") spec.config.data_security = Protection::encrypted;
    auto made = runtime::World::create(spec, exchange_);
    if (!made.ok()) give_up(made.status());
    return std::move(*made);
  }

  // Of all threads of this process.
  static double processor_milliseconds() {
    timespec used{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return static_cast<double>(used.tv_sec) * 1e3 + static_cast<double>(used.tv_nsec) / 1e6;
  }

  static void print(const char* what, const std::array<std::vector<double>, kColumns.size()>& times,
                    double most_of_gloo) {
    std::printf("%-30s", what);
    for (const auto& column : times) {
      std::printf(" %10s", column.empty() ? "-" : cat_milliseconds(median(column)).c_str());
    }
    if (!times.front().empty() && !times.back().empty()) {
      const double ratio = median(times.front()) / median(times.back());
      std::printf(" %7.2f", ratio);
      if (most_of_gloo > 0) {
        std::printf("  at most %.1f%s", most_of_gloo, ratio <= most_of_gloo ? "" : "  <-- missed");
      }
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  static std::string cat_milliseconds(double value) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.3f", value);
    return text.data();
  }

  JobExchange exchange_;
  std::vector<runtime::Member> members_;
  std::array<std::unique_ptr<runtime::World>, kColumns.size()> worlds_;
  std::shared_ptr<gloo::Context> gloo_;
};

void run(int rounds, std::string_view only, const std::string& columns) {
  const runtime::SignalShield shield;
  Bench bench(columns);
  if (rank() == 0) {
    std::printf("%-30s", cat(size(), " workers; medians in ms").c_str());
    for (const auto* const column : kColumns) std::printf(" %10s", column);
    std::printf(" %7s\n", "to gloo");
  }
  const Row rows[] = {{"161 tensors, 102 MB; one flat", resnet50_sizes(), 11, 1.0},
                      {"one tensor of 64 MB", {16 << 20}, 7, 0},
                      {"one tensor of 16 MB", {4 << 20}, 11, 0},
                      {"one tensor of 4 MB", {1 << 20}, 21, 0},
                      {"one tensor of 1 MB", {1 << 18}, 51, 0},
                      {"one tensor of 256 KB", {1 << 16}, 101, 0},
                      {"one tensor of 64 KB", {1 << 14}, 101, 0},
                      {"one tensor of 16 KB", {1 << 12}, 201, 0},
                      {"one tensor of 4 KB", {1 << 10}, 201, 0.5},
                      {"1,000 tensors of 1 KB", std::vector<std::size_t>(1000, 256), 21, 0}};
  for (int round = 0; round < rounds; ++round) {
    for (const Row& row : rows) {
      if (std::string_view(row.what).find(only) != std::string_view::npos) bench.compare(row);
    }
  }
  bench.leave();
}

}  // namespace
}  // namespace hvd::bench

int main(int argc, char** argv) {
  hvd::init();
  hvd::bench::run(argc > 1 ? std::atoi(argv[1]) : 1, argc > 2 ? argv[2] : "",
                  argc > 3 ? argv[3] : "");
  hvd::shutdown();
}
