// Which samples of a data set this worker works on next.
//
//     hvd::Sampler sampler({.size = images.size(), .seed = 7});
//     for (int epoch = 0; epoch < epochs; ++epoch) {
//       sampler.set_epoch(epoch);
//       while (!sampler.done()) {
//         const auto batch = sampler.next(32);      // 32 indices, others on every rank
//         train(batch);
//       }
//     }
//
// All ranks take their batches in the same steps, as training with collectives does anyway. Then
// one number says how far an epoch has come, and it is the same on all ranks: how many of its
// samples were handed out, to whichever ranks there were. A world of any size that goes on from
// there splits the remaining samples; so after any sequence of failures and changes every sample
// was handed out exactly once in the steps that count, but for padding: so that all ranks get as
// many, the last step of an epoch may repeat up to size() - 1 samples from its beginning.
//
// The order is a permutation that seed and epoch determine, the same everywhere. It is computed
// index by index and takes no memory: a Feistel network over a power of four, walked until it falls
// into the range (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002).
//
// For one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <hvd/export.h>
#include <hvd/standard_library.h>

namespace hvd {

struct SamplerOptions {
  std::int64_t size = 0;  // samples of the data set, numbered from 0
  bool shuffle = true;    // else in order, in every epoch
  std::uint64_t seed = 0;
};

class HVD_API Sampler {
 public:
  // Throws InvalidArgumentError if there are fewer than no samples.
  explicit Sampler(const SamplerOptions& options);

  // The next samples for this rank of the current world: `batch` of them, or fewer in the last step
  // of an epoch, or none after it; as many on every rank. Throws NotInitializedError before init(),
  // InvalidArgumentError if `batch` is less than 1.
  std::vector<std::int64_t> next(std::int64_t batch);
  // The same for a rank of a world that the caller names.
  std::vector<std::int64_t> next(std::int64_t batch, int rank, int size);

  // Begins this epoch, from its first sample; if it is the current one, does nothing. Throws
  // InvalidArgumentError if it is negative.
  void set_epoch(std::int64_t epoch);
  std::int64_t epoch() const { return epoch_; }
  // Samples of this epoch that were handed out, to all ranks together.
  std::int64_t processed() const { return processed_; }
  std::int64_t remaining() const { return options_.size - processed_; }
  bool done() const { return remaining() == 0; }

  // Where it stands, and back to there; load() throws InvalidArgumentError for what is of another
  // data set, another seed, or not of save().
  std::string save() const;
  void load(std::string_view saved);

 private:
  std::int64_t sample_at(std::int64_t position) const;

  SamplerOptions options_;
  std::int64_t epoch_ = 0;
  std::int64_t processed_ = 0;
};

}  // namespace hvd
