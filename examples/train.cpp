// Trains a small language model on any text, with as many workers as hvdrun starts:
//
//     hvdrun -np 4 build/release/bin/train --text README.md --text docs
//
// Each worker computes its share of every batch; the gradients are summed over all; each then takes
// the same step, so that the weights stay the same everywhere, to the last bit. What is particular
// to hvd stands in this file; model and data are in train/.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include <hvd/hvd.h>

#include "train/corpus.h"
#include "train/model.h"
#include "train/options.h"

namespace train {
namespace {

using Seconds = std::chrono::duration<double>;

// Rounds to a grid on which the sum over all workers is exact: multiples of 2^-k that need no more
// than the 24 bits of a float. A sum of floats depends on its order, and the order on which tensors
// the runtime happens to fuse; these sums do not, so equal runs give equal curves. The grid is at
// least a thousand times finer than a gradient that matters here.
class ExactSum {
 public:
  explicit ExactSum(int workers)
      : grid_(kLimit * static_cast<float>(std::bit_ceil(static_cast<unsigned>(workers))) *
              0x1p-24F) {}

  void round(std::vector<float>& values, float scale) const {
    const float to_grid = scale / grid_;
    for (float& value : values) {
      const float steps = std::clamp(value * to_grid, -kLimit / grid_, kLimit / grid_);
      value = std::nearbyint(steps) * grid_;
    }
  }

 private:
  static constexpr float kLimit = 0.25F;  // of one worker's part of a gradient
  float grid_;
};

// True if all workers hold the same weights, to the last bit.
bool weights_are_identical(const Model& model) {
  const auto digest = std::bit_cast<std::int64_t>(model.digest());
  std::vector<std::int64_t> least{digest};
  std::vector<std::int64_t> most{digest};
  hvd::allreduce(least, {.name = "digest.least", .op = hvd::Min});
  hvd::allreduce(most, {.name = "digest.most", .op = hvd::Max});
  if (least == most) return true;
  std::fprintf(stderr, "train: rank %d of %d: the weights differ between workers; mine: %016llx\n",
               hvd::rank(), hvd::size(), static_cast<unsigned long long>(model.digest()));
  return false;
}

int train(const Options& options, const Corpus& corpus) {
  const int workers = hvd::size();
  const bool speaks = hvd::rank() == 0;
  if (options.batch < static_cast<std::size_t>(workers)) {
    throw UsageError("--batch " + std::to_string(options.batch) + ": " + std::to_string(workers) +
                     " workers need at least one sample each");
  }
  Model model({options.context, options.embedding, options.hidden}, options.seed);
  if (speaks) {
    std::printf("%zu bytes of text in %zu file%s, %zu weights, %d worker%s, batch %zu\n",
                corpus.size(), corpus.files(), corpus.files() == 1 ? "" : "s",
                model.parameter_count(), workers, workers == 1 ? "" : "s", options.batch);
    std::fflush(stdout);
  }

  const Shard shard = shard_of(options.batch, hvd::rank(), workers);
  const std::size_t count = shard.last - shard.first;
  const ExactSum exact(workers);
  hvd::GradientReducer reducer({.op = hvd::Sum});
  for (Parameter* const parameter : model.parameters()) {
    reducer.add(parameter->name, parameter->gradient);
  }
  std::vector<unsigned char> contexts(count * options.context);
  std::vector<unsigned char> next(count);
  double losses = 0;  // of this worker's samples since the last line
  std::size_t steps = 0;
  auto since = std::chrono::steady_clock::now();

  for (std::size_t step = 1; step <= options.steps; ++step) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto sample = corpus.sample(options.seed, step, shard.first + i);
      std::copy_n(sample.context, options.context, contexts.data() + i * options.context);
      next[i] = sample.next;
    }
    losses += model.learn(contexts, next, count);
    for (Parameter* const parameter : model.parameters()) {
      exact.round(parameter->gradient, 1.0F / static_cast<float>(options.batch));
      reducer.ready(parameter->name);
    }
    reducer.synchronize();
    model.update(options.learning_rate);

    ++steps;
    if (step != 1 && step % options.log_every != 0 && step != options.steps) continue;
    if (!std::isfinite(losses)) {
      throw std::runtime_error("the loss is not a number any more; a smaller --lr may help");
    }
    // In whole millionths of a nat, whose sum is exact too.
    std::vector<std::int64_t> sum{std::llround(losses * 1e6)};
    hvd::allreduce(sum, {.name = "loss", .op = hvd::Sum});
    const auto samples = static_cast<double>(steps * options.batch);
    const double loss = static_cast<double>(sum[0]) / 1e6 / samples;
    const auto now = std::chrono::steady_clock::now();
    if (speaks) {
      std::printf("step %5zu  loss %.4f  %8.0f tokens/s\n", step, loss,
                  samples / Seconds(now - since).count());
      std::fflush(stdout);
    }
    losses = 0;
    steps = 0;
    since = now;
  }

  if (!weights_are_identical(model)) return 1;
  if (speaks) {
    std::printf("weights identical on all %d worker%s (digest %016llx)\n", workers,
                workers == 1 ? "" : "s", static_cast<unsigned long long>(model.digest()));
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace train

int main(int argc, char** argv) {
  try {
    const auto options = train::parse_options({argv + 1, argv + argc});
    if (options.help) {
      std::fputs(train::usage().c_str(), stdout);
      return 0;
    }
    const train::Corpus corpus(options.texts, options.context);
    hvd::init();
    const int code = train::train(options, corpus);
    hvd::shutdown();
    return code;
  } catch (const train::UsageError& error) {
    std::fprintf(stderr, "train: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train: %s\n", error.what());
    return 1;
  }
}
