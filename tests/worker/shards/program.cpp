// hvd::ShardReducer, by as many ranks as there are: `hvd_shards_program SCENARIO`.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include <hvd/hvd.h>
#include <hvd/shards.h>

#include "tests/e2e/programs/check.h"

namespace {

using check::same;
using hvd::ShardRange;

using Floats = std::vector<float>;

// Numbers of all magnitudes: any other order of additions gives another sum.
Floats gradient_of(int shard, std::uint64_t step, std::size_t size) {
  hvd::ShardRandom random(7, shard, step);
  Floats values(size);
  for (auto& value : values) {
    value = (random.uniform() - 0.5F) * static_cast<float>(1U << random() % 24);
  }
  return values;
}

// As one process computes it that has all shards, without the reducer.
Floats sum_of(int first, int last, std::uint64_t step, std::size_t size) {
  if (last - first == 1) return gradient_of(first, step, size);
  int left = 1;
  while (2 * left < last - first) left *= 2;
  auto sum = sum_of(first, first + left, step, size);
  const auto right = sum_of(first + left, last, step, size);
  for (std::size_t i = 0; i < size; ++i) sum[i] += right[i];
  return sum;
}

// Two steps, with sizes that no number of ranks divides.
void check_shards(int shards, hvd::ReduceOp op) {
  hvd::ShardReducer reducer({.shards = shards, .op = op});
  Floats weight(20'003);
  Floats bias(7);
  Floats none;
  std::vector<std::int64_t> counts(3);
  reducer.add("weight", weight);
  reducer.add("bias", bias);
  reducer.add("none", none);
  reducer.add("counts", counts);
  for (std::uint64_t step = 0; step < 2; ++step) {
    for (const int shard : reducer.begin(step)) {
      const auto all = gradient_of(shard, step, weight.size() + bias.size());
      weight.assign(all.begin(), all.end() - 7);
      bias.assign(all.end() - 7, all.end());
      counts.assign(3, shard + 1);
      reducer.ready(shard);
    }
    reducer.synchronize();

    auto expected = sum_of(0, shards, step, weight.size() + bias.size());
    std::int64_t count = std::int64_t{shards} * (shards + 1) / 2;
    if (op == hvd::Average) {
      for (auto& value : expected) value /= static_cast<float>(shards);
      count /= shards;
    }
    same(weight, Floats(expected.begin(), expected.end() - 7), "weight");
    same(bias, Floats(expected.end() - 7, expected.end()), "bias");
    same(counts, std::vector<std::int64_t>(3, count), "counts");
  }
}

// The last rank begins when the others have waited in vain.
void in_slices() {
  hvd::ShardReducer reducer({.shards = 8});
  Floats weight(1000);
  reducer.add("weight", weight);
  const auto step = [&] {
    for (const int shard : reducer.own()) {
      weight.assign(1000, static_cast<float>(shard));
      reducer.ready(shard);
    }
  };
  step();
  const bool is_last = hvd::rank() == hvd::size() - 1;
  if (hvd::size() > 1 && !is_last) {
    while (reducer.synchronize_for(std::chrono::milliseconds(1))) {
    }
    check::that(reducer.in_flight(), "it waits for the last rank");
    check::throws<hvd::InvalidArgumentError>("in the middle", {"synchronize_for()"},
                                             [&] { reducer.ready(reducer.own().first); });
  }
  hvd::barrier();
  while (!reducer.synchronize_for(std::chrono::milliseconds(1))) {
  }
  check::that(!reducer.in_flight(), "it is at its end");
  same(weight, Floats(1000, 3.5F), "in slices");
}

void work() {
  hvd::init();
  in_slices();
  for (const int shards : {1, 2, 13, 16, 64}) {
    check_shards(shards, hvd::Sum);
    check_shards(shards, hvd::Average);
  }
  check::say_ok();
}

// A worker is lost in the middle of a step, with all its shards. Each shard that is computed is
// printed.
void loss() {
  constexpr int kShards = 16;
  constexpr std::int64_t kSteps = 6;
  constexpr std::int64_t kLostIn = 3;
  hvd::init();
  Floats weight(20'003);
  hvd::ShardReducer reducer({.shards = kShards, .op = hvd::Sum});
  reducer.add("weight", weight);
  std::int64_t step = 0;
  hvd::elastic::State state;
  state.add("step", step);
  hvd::elastic::run(state, [&] {
    while (step < kSteps) {
      for (const int shard : reducer.begin(static_cast<std::uint64_t>(step))) {
        const auto own = gradient_of(shard, step, weight.size());
        std::copy(own.begin(), own.end(), weight.begin());
        reducer.ready(shard);
        std::printf("computed %d.%d\n", static_cast<int>(step), shard);
      }
      std::fflush(stdout);
      const bool is_first_world = hvd::elastic::generation() == 1;
      if (step == kLostIn && hvd::rank() == 2 && is_first_world) std::raise(SIGKILL);
      reducer.synchronize();
      check::that(weight == sum_of(0, kShards, step, weight.size()), "the sum is right");
      ++step;
      state.commit();
    }
  });
  check::say_ok();
}

void refused(const std::string& said, const std::function<void()>& call) {
  check::throws<hvd::InvalidArgumentError>("a mistake", {said}, call);
}

void mistakes() {
  hvd::init();
  refused("from 1 to", [] { hvd::ShardReducer({.shards = 0}); });
  refused("Average or Sum", [] { hvd::ShardReducer({.shards = 2, .op = hvd::Max}); });
  hvd::ShardReducer reducer({.shards = 16});
  Floats weight(3);
  reducer.add("weight", weight);
  refused("was added before", [&] { reducer.add("weight", weight); });
  refused("the name is empty", [&] { reducer.add("", weight); });
  refused("no gradient 1", [&] { reducer.rebind(1, weight.data()); });

  const ShardRange own = reducer.own();
  if (hvd::size() > 1) {
    const auto other = static_cast<std::uint64_t>(hvd::rank());
    refused("another rank has come to step", [&] { reducer.begin(other); });
  }
  refused("the next one is", [&] { reducer.ready(own.first + 1); });
  refused("the next one is", [&] { reducer.synchronize(); });
  reducer.ready(own.first);
  refused("a step has begun", [&] { reducer.add("bias", weight); });
  reducer.reset();
  for (const int shard : own) reducer.ready(shard);
  refused("all of them are ready", [&] { reducer.ready(own.last); });
  reducer.synchronize();
  check::say_ok();
}

// The last rank takes no part any more.
void joined() {
  hvd::init();
  Floats weight(3, 1.0F);
  hvd::ShardReducer reducer({.shards = 16});
  reducer.add("weight", weight);
  if (hvd::rank() < hvd::size() - 1) {
    for (const int shard : reducer.own()) reducer.ready(shard);
    check::throws<hvd::InvalidArgumentError>("a rank has joined", {"has joined"},
                                             [&] { reducer.synchronize(); });
  }
  hvd::join();
  check::say_ok();
}

}  // namespace

int main(int argc, char** argv) {
  return check::run(argc, argv,
                    {{"joined", joined}, {"work", work}, {"mistakes", mistakes}, {"loss", loss}});
}
