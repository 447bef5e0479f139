// hvd_autotune_bench [RANKS [RANKS_OF_A_HOST [PAIRS]]]: is what the autotuner ends with at least as
// fast as the defaults? Two worlds of the same processes, one with the defaults and one that tunes,
// work in turns. The second one first works until it has settled. Each rank is a process.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <sstream>
#include <unistd.h>

#include "base/text.h"
#include "bench/collectives/ranks.h"
#include "bench/collectives/resnet50.h"
#include "runtime/core/threads.h"

namespace hvd::bench {
namespace {

[[noreturn]] void give_up(const Status& why) {
  std::fprintf(stderr, "%s\n", why.to_string().c_str());
  std::_Exit(1);
}

// Tensors that are reduced together, again and again.
class Step {
 public:
  Step(runtime::World& world, const std::vector<std::size_t>& sizes) : world_(world) {
    for (const auto size : sizes) data_.emplace_back(size, 1.0F);
  }
  void run() {
    {
      const std::lock_guard lock(mutex_);
      open_ = data_.size();
    }
    for (std::size_t i = 0; i < data_.size(); ++i) {
      runtime::Request request;
      request.name = cat("gradient.", i);
      request.kind = runtime::Kind::allreduce;
      request.type = DataType::float32;
      request.op = ReduceOp::average;
      request.shape = {static_cast<std::int64_t>(data_[i].size())};
      const auto refused =
          world_.enqueue({std::move(request), data_[i].data(), data_[i].data(),
                          [this](const runtime::Outcome& outcome) { done(outcome); }});
      if (!refused.ok()) give_up(refused.status);
    }
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_ == 0; });
  }

 private:
  void done(const runtime::Outcome& outcome) {
    if (!outcome.ok()) give_up(outcome.failure.status);
    const std::lock_guard lock(mutex_);
    if (--open_ == 0) changed_.notify_one();
  }

  runtime::World& world_;
  std::vector<std::vector<float>> data_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t open_ = 0;
};

std::string content_of(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return std::move(out).str();
}

// Whether rank 0 says so; all ranks must ask.
bool agreed(runtime::World& world, bool yes) {
  float vote = yes ? 1 : 0;
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  runtime::Request request;
  request.name = "vote";
  request.kind = runtime::Kind::broadcast;
  request.type = DataType::float32;
  request.shape = {1};
  const auto refused =
      world.enqueue({std::move(request), &vote, &vote, [&](const runtime::Outcome& outcome) {
                       if (!outcome.ok()) give_up(outcome.failure.status);
                       const std::lock_guard lock(mutex);
                       done = true;
                       changed.notify_one();
                     }});
  if (!refused.ok()) give_up(refused.status);
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return done; });
  return vote > 0;
}

double seconds(Step& step, int times) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) step.run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

struct Work {
  const char* what;
  std::vector<std::size_t> tensors;
  int steps;  // of one turn
};

std::unique_ptr<runtime::World> world_of(Ranks& ranks, int per_host, const std::string& log) {
  std::vector<runtime::Member> members;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    members.push_back(
        {cat("h", rank / per_host, "#", rank % per_host), cat("h", rank / per_host), "127.0.0.1"});
  }
  // All processes derive the same token; there are no other users to keep out.
  const auto token = Token::from_hex(std::string(64, '5'));
  if (!token.ok()) give_up(token.status());
  runtime::WorldSpec spec(ranks.rank(), std::move(members), 1, *token);
  spec.config.tuning.enabled = !log.empty();
  spec.config.tuning.log_path = log;
  auto world = runtime::World::create(spec, ranks);
  if (!world.ok()) give_up(world.status());
  return std::move(*world);
}

void compare(Ranks& ranks, int per_host, int pairs, const Work& work) {
  const std::string log = cat("/tmp/hvd_autotune_bench.", ::getpgrp(), ".csv");
  const auto plain = world_of(ranks, per_host, "");
  const auto tuned = world_of(ranks, per_host, log);
  Step with_defaults(*plain, work.tensors);
  Step with_tuning(*tuned, work.tensors);
  do {
    for (int i = 0; i < 10; ++i) with_tuning.run();
  } while (
      !agreed(*tuned, ranks.rank() == 0 && content_of(log).find("settled") != std::string::npos));
  seconds(with_tuning, 2 * work.steps);
  std::vector<double> ratios;
  for (int pair = 0; pair < pairs; ++pair) {
    const bool defaults_first = pair % 2 == 0;
    const double first = seconds(defaults_first ? with_defaults : with_tuning, work.steps);
    const double second = seconds(defaults_first ? with_tuning : with_defaults, work.steps);
    ratios.push_back(defaults_first ? first / second : second / first);
  }
  for (auto* const world : {plain.get(), tuned.get()}) {
    const auto left = world->shutdown(Clock::now() + std::chrono::seconds(60));
    if (!left.ok()) give_up(left.status);
  }
  if (ranks.rank() != 0) return;
  std::string line;  // with what it has settled
  for (const auto& candidate : split(content_of(log), '\n')) {
    if (candidate.find("\"watching\"") != std::string::npos) line = candidate;
  }
  std::sort(ratios.begin(), ratios.end());
  std::printf("%-28s %6.3f   (quartiles %.3f to %.3f)  %s\n", work.what, ratios[ratios.size() / 2],
              ratios[ratios.size() / 4], ratios[ratios.size() * 3 / 4], line.c_str());
  std::fflush(stdout);
  ::unlink(log.c_str());
}

int run(int size, int per_host, int pairs) {
  Ranks ranks(size);
  const runtime::SignalShield shield;
  if (ranks.rank() == 0) {
    std::printf(
        "%d processes, %d on a host; tuned speed by the defaults' (at least 0.98), and a "
        "line of the log\n",
        size, per_host);
  }
  compare(ranks, per_host, pairs, {"161 tensors, 102 MB", resnet50_sizes(), 1});
  compare(ranks, per_host, pairs,
          {"1,000 tensors of 1 KB", std::vector<std::size_t>(1'000, 256), 20});
  compare(ranks, per_host, pairs, {"one tensor of 4 KB", {1'024}, 300});
  return 0;
}

}  // namespace
}  // namespace hvd::bench

int main(int argc, char** argv) {
  const int size = argc > 1 ? std::atoi(argv[1]) : 2;
  const int per_host = argc > 2 ? std::atoi(argv[2]) : size;
  const int pairs = argc > 3 ? std::atoi(argv[3]) : 31;
  if (size < 1 || per_host < 1 || pairs < 1) {
    std::fprintf(stderr, "usage: hvd_autotune_bench [RANKS [RANKS_OF_A_HOST [PAIRS]]]\n");
    return 2;
  }
  return hvd::bench::run(size, per_host, pairs);
}
