// SPDX-License-Identifier: Apache-2.0
// The flags of the training example. A plain value, checked where it is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

namespace train {

struct Options {
  std::vector<std::filesystem::path> texts;  // files, or directories whose *.md files are read
  std::size_t steps = 400;
  std::size_t batch = 256;  // samples of one step, over all workers together
  std::size_t shards = 0;   // of each batch; 0: as many as there are workers
  bool deterministic = false;
  std::size_t context = 12;  // bytes that the model sees before the one that it predicts
  std::size_t hidden = 128;
  std::size_t embedding = 16;
  double learning_rate = 0.004;
  std::uint64_t seed = 1;
  std::size_t log_every = 20;
  std::filesystem::path ledger;  // a directory; empty: none. The same of the two below.
  std::filesystem::path until;   // files, see signs.h
  std::filesystem::path fail_on;
  bool help = false;
};

// A flag or a file that cannot be used. what() is for the person who typed it.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

Options parse_options(const std::vector<std::string>& arguments);

std::string usage();

}  // namespace train
