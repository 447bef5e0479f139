// SPDX-License-Identifier: Apache-2.0
// The training, of a model that computes on the host or on a GPU: what is particular to hvd stands
// here. Each worker computes its share of every batch; the gradients are summed over all; each then
// takes the same step, so that the weights stay the same everywhere, to the last bit. Workers may
// come and go: each step is committed, and after a change all go on from the newest one.
#pragma once

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <hvd/hvd.h>
#include <hvd/sampler.h>
#include <hvd/shards.h>

#include "corpus.h"
#include "exact_sum.h"
#include "ledger.h"
#include "options.h"
#include "signs.h"

namespace train {

// True if all workers hold the same weights, to the last bit.
inline bool weights_are_identical(std::uint64_t weights) {
  const auto digest = std::bit_cast<std::int64_t>(weights);
  std::vector<std::int64_t> least{digest};
  std::vector<std::int64_t> most{digest};
  hvd::allreduce(least, {.name = "digest.least", .op = hvd::Min});
  hvd::allreduce(most, {.name = "digest.most", .op = hvd::Max});
  return least == most;
}

template <typename Model>
class Training {
 public:
  Training(const Options& options, const Corpus& corpus, Ledger& ledger)
      : options_(options),
        corpus_(corpus),
        ledger_(ledger),
        model_({options.context, options.embedding, options.hidden}, options.seed),
        sampler_({.size = static_cast<std::int64_t>(corpus.samples()), .seed = options.seed}) {
    for (auto* const parameter : model_.parameters()) {
      state_.add(parameter->name, parameter->value);
      state_.add(parameter->name + ".mean", parameter->mean);
      state_.add(parameter->name + ".square", parameter->square);
    }
    state_.add("updates", model_.steps());
    state_.add("progress", progress_);
    state_.add("sampler", sampler_);
  }

  void run() {
    bool identical = true;
    hvd::elastic::run(state_, [&] {
      train();
      identical = weights_are_identical(model_.digest());
    });
    if (!identical) {
      throw std::runtime_error("rank " + std::to_string(hvd::rank()) + " of " +
                               std::to_string(hvd::size()) +
                               ": the weights differ between workers");
    }
    ledger_.done(progress_.step, model_.digest());
    if (hvd::rank() == 0) {
      std::printf("weights identical on all %d worker%s (digest %016llx)\n", hvd::size(),
                  hvd::size() == 1 ? "" : "s", static_cast<unsigned long long>(model_.digest()));
      std::fflush(stdout);
    }
  }

 private:
  using Seconds = std::chrono::duration<double>;
  struct Progress {
    std::size_t step = 0;
    std::int64_t losses = 0;  // since the last line, of all workers, in millionths of a nat
    std::size_t samples = 0;  // of these losses
    std::int64_t told = 0;    // workers that were told to end
  };

  // A part of the batch that the sampler gives to all. Without shards there is one for each worker.
  struct Share {
    int part = 0;
    std::vector<std::int64_t> samples;
    std::vector<unsigned char> contexts;
    std::vector<unsigned char> next;
  };
  // The work of this worker in the next step.
  struct Work {
    std::vector<Share> shares;
    std::size_t batch = 0;  // of all workers
  };
  Work next_work(const std::vector<int>& own, int parts) {
    if (sampler_.done()) sampler_.set_epoch(sampler_.epoch() + 1);
    const auto batch = sampler_.next(static_cast<std::int64_t>(options_.batch), 0, 1);
    Work work;
    work.batch = batch.size();
    for (const int part : own) {
      const Shard shard = shard_of(batch.size(), part, parts);
      work.shares.push_back(
          share_of(part, std::span(batch).subspan(shard.first, shard.last - shard.first)));
    }
    return work;
  }
  Share share_of(int part, std::span<const std::int64_t> samples) {
    Share share;
    share.part = part;
    share.samples.assign(samples.begin(), samples.end());
    for (const auto place : samples) {
      const auto sample = corpus_.sample(static_cast<std::size_t>(place));
      share.contexts.insert(share.contexts.end(), sample.context,
                            sample.context + options_.context);
      share.next.push_back(sample.next);
    }
    return share;
  }

  // Losses of samples, in whole millionths of a nat, whose sum is exact, and how many of the losses
  // are not finite.
  using Losses = std::vector<std::int64_t>;
  static Losses losses_of(double loss) {
    return {std::llround(std::min(loss, kTooMuch) * 1e6), std::isfinite(loss) ? 0 : 1};
  }

  // Gradients that are summed over all workers, as they come, in one world. Each worker adds up
  // those of its parts first.
  class OverWorkers {
   public:
    OverWorkers(Model& model, int parts)
        : model_(model),
          parts_(parts),
          exact_(ExactSum::of(hvd::size())),
          reducer_({.op = hvd::Sum, .fill_zeros = &Model::fill_zeros}) {
      for (auto* const parameter : model.parameters()) {
        reducer_.add(parameter->name, parameter->gradient);
      }
    }
    int parts() const { return parts_; }
    const std::vector<int>& begin(std::size_t /*step*/) {
      drawn_.clear();
      losses_ = losses_of(0);
      const auto range = hvd::shards_of(parts_, hvd::rank(), hvd::size());
      own_.clear();
      for (const int part : range) own_.push_back(part);
      return own_;
    }
    void ready(const Share& share, std::size_t batch, const Losses& losses) {
      drawn_.insert(drawn_.end(), share.samples.begin(), share.samples.end());
      for (std::size_t i = 0; i < losses.size(); ++i) losses_[i] += losses[i];
      if (share.part != own_.back()) return;
      model_.round_gradients(exact_, 1.0F / static_cast<float>(batch));
      const auto there = model_.gradients_there();
      for (auto* const parameter : model_.parameters()) reducer_.ready(parameter->name, there);
    }
    const std::vector<std::int64_t>& drawn() const { return drawn_; }
    const Losses& synchronize() {
      const auto summed = hvd::allreduce_async(losses_, {.name = "loss", .op = hvd::Sum});
      reducer_.synchronize();
      reducer_.next_step();  // in which this worker may have no part
      summed.wait();
      return losses_;
    }

   private:
    Model& model_;
    int parts_;
    ExactSum exact_;
    hvd::GradientReducer reducer_;
    std::vector<int> own_;
    std::vector<std::int64_t> drawn_;
    Losses losses_;
  };

  // The same in the order of the shards: the sum has the same bits with any number of workers. It
  // outlives worlds: those who are left when a worker is lost in a step do its shards again, and no
  // others.
  class OverShards {
   public:
    OverShards(Model& model, int shards)
        : model_(model), reducer_({.shards = shards, .op = hvd::Sum}) {
      for (auto* const parameter : model.parameters()) {
        reducer_.add(parameter->name, parameter->gradient);
      }
      reducer_.add("loss", losses_);
    }
    int parts() const { return reducer_.shards(); }
    const std::vector<int>& begin(std::size_t step) {
      if (step_ != step) drawn_.clear();
      step_ = step;
      return reducer_.begin(step);
    }
    void ready(const Share& share, std::size_t batch, const Losses& losses) {
      std::copy(losses.begin(), losses.end(), losses_.begin());
      model_.scale_gradients(1.0F / static_cast<float>(batch));
      reducer_.ready(share.part, share.samples);
      drawn_.insert(drawn_.end(), share.samples.begin(), share.samples.end());
      for (auto* const parameter : model_.parameters()) Model::fill_zeros(parameter->gradient);
    }
    // The samples of the shards whose gradients this worker has.
    const std::vector<std::int64_t>& drawn() const { return drawn_; }
    const Losses& synchronize() {
      reducer_.synchronize();
      return losses_;
    }

   private:
    Model& model_;
    hvd::ShardReducer reducer_;
    std::optional<std::size_t> step_;
    std::vector<std::int64_t> drawn_;
    Losses losses_ = losses_of(0);
  };

  // Called again whenever the world has changed: everything that belongs to a world is made here.
  void train() {
    begin();
    for (auto* const parameter : model_.parameters()) Model::fill_zeros(parameter->gradient);
    const int shards = static_cast<int>(options_.shards);
    if (!options_.deterministic) {
      OverWorkers sums(model_, shards == 0 ? hvd::size() : shards);
      train_with(sums);
    } else if constexpr (requires(Model & model) { model.scale_gradients(1.0F); }) {
      if (!over_shards_) over_shards_ = std::make_unique<OverShards>(model_, shards);
      train_with(*over_shards_);
    } else {
      throw UsageError(
          "--deterministic: the gradients of this program lie on a GPU, and are added in the "
          "memory of the host");
    }
  }

  template <typename Sums>
  void train_with(Sums& sums) {
    since_ = std::chrono::steady_clock::now();
    samples_since_ = 0;
    while (!is_over()) {
      fail_if_there(options_.fail_on);
      const Work work = next_work(sums.begin(progress_.step), sums.parts());
      for (const auto& share : work.shares) {
        const double loss = model_.learn(share.contexts, share.next, share.next.size());
        sums.ready(share, work.batch, losses_of(loss));
      }
      ledger_.draw(progress_.step + 1, sampler_.epoch(), sums.drawn());

      std::vector<std::int64_t> told{is_there(options_.until) ? 1 : 0};
      const auto all_told = hvd::allreduce_async(told, {.name = "told", .op = hvd::Sum});
      const Losses& losses = sums.synchronize();
      all_told.wait();
      if (losses[1] != 0) {
        throw std::runtime_error("the loss is not a number any more; a smaller --lr may help");
      }

      model_.update(options_.learning_rate);
      ++progress_.step;
      progress_.told = told[0];
      progress_.losses += losses[0];
      progress_.samples += work.batch;
      samples_since_ += work.batch;

      const bool speaks = is_time_to_speak();
      const Progress spoken = progress_;
      if (speaks) progress_.losses = progress_.samples = 0;
      commit();
      if (speaks) speak(spoken);
    }
  }

  bool is_over() const { return progress_.step >= options_.steps || progress_.told != 0; }

  void commit() {
    const std::size_t step = progress_.step;
    const std::uint64_t digest = ledger_.is_kept() ? model_.digest() : 0;
    try {
      state_.commit();
    } catch (const hvd::HostsUpdated&) {
      ledger_.commit(step, digest);  // it is one, and now all go over to another world
      throw;
    }
    ledger_.commit(step, digest);
  }

  void begin() {
    if (ledger_.is_kept()) ledger_.world(progress_.step, model_.digest());
    const int workers = hvd::size();
    const bool is_shared = options_.shards == 0;
    if (progress_.step == 0 && is_shared && options_.batch < static_cast<std::size_t>(workers)) {
      throw UsageError("--batch " + std::to_string(options_.batch) + ": " +
                       std::to_string(workers) + " workers need at least one sample each");
    }
    if (hvd::rank() == 0 && progress_.step == 0) {
      std::printf("%zu bytes of text in %zu file%s, %zu weights, %d worker%s, batch %zu\n",
                  corpus_.size(), corpus_.files(), corpus_.files() == 1 ? "" : "s",
                  model_.parameter_count(), workers, workers == 1 ? "" : "s", options_.batch);
    } else if (hvd::rank() == 0) {
      std::printf("generation %llu: %d worker%s go on after step %zu\n",
                  static_cast<unsigned long long>(hvd::elastic::generation()), workers,
                  workers == 1 ? "" : "s", progress_.step);
    }
    std::fflush(stdout);
  }

  bool is_time_to_speak() const {
    return progress_.step == 1 || progress_.step % options_.log_every == 0 || is_over();
  }

  void speak(const Progress& at) {
    const auto now = std::chrono::steady_clock::now();
    if (hvd::rank() == 0) {
      std::printf("step %5zu  loss %.4f  %8.0f tokens/s\n", at.step,
                  static_cast<double>(at.losses) / 1e6 / static_cast<double>(at.samples),
                  static_cast<double>(samples_since_) / Seconds(now - since_).count());
      std::fflush(stdout);
    }
    since_ = now;
    samples_since_ = 0;
  }

  static constexpr double kTooMuch = 1e9;  // nats: more than any sum that is finite

  const Options& options_;
  const Corpus& corpus_;
  Ledger& ledger_;
  Model model_;
  hvd::Sampler sampler_;
  Progress progress_;
  hvd::elastic::State state_;
  std::unique_ptr<OverShards> over_shards_;  // null: not yet, or without --deterministic
  std::chrono::steady_clock::time_point since_;
  std::size_t samples_since_ = 0;
};

// The body of main(): trains as the command line says, and returns the exit code.
template <typename Model>
int run_program(const char* name, int argc, char** argv) {
  try {
    const auto options = parse_options({argv + 1, argv + argc});
    if (options.help) {
      std::fputs(usage().c_str(), stdout);
      return 0;
    }

    const Corpus corpus(options.texts, options.context);
    Ledger ledger(options.ledger);
    try {
      hvd::init();
      ledger.init();
      Training<Model>(options, corpus, ledger).run();
      hvd::shutdown();
    } catch (const std::exception& error) {
      ledger.error(error.what());
      throw;
    }
    return 0;
  } catch (const UsageError& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    return 1;
  }
}

}  // namespace train
