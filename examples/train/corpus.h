// SPDX-License-Identifier: Apache-2.0
// The text and the samples in it. A sample is `context` bytes and the one that follows; there is
// one at each place of the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace train {

class Corpus {
 public:
  // Reads all files in the order given, those of a directory by name. Throws UsageError that names
  // the path if one cannot be read, or if all together are too short for one sample.
  Corpus(const std::vector<std::filesystem::path>& paths, std::size_t context);

  std::size_t size() const { return bytes_.size(); }
  std::size_t files() const { return files_; }

  struct Sample {
    const unsigned char* context;
    unsigned char next;
  };
  std::size_t samples() const { return bytes_.size() - context_; }
  Sample sample(std::size_t place) const;

 private:
  void add(const std::filesystem::path& path);

  std::size_t context_;
  std::size_t files_ = 0;
  std::string bytes_;
};

// The part of a batch that one worker computes: [first, last), by rank; all parts differ in size by
// one at most.
struct Shard {
  std::size_t first;
  std::size_t last;
};
Shard shard_of(std::size_t batch, int rank, int size);

}  // namespace train
