// SPDX-License-Identifier: Apache-2.0
// A log of this worker's steps, so that a test can check that no committed step was lost,
// that each sample of an epoch was used once, that all workers held the same weights. Each process
// writes a file of its own, DIR/WORKER.TIME.log, a line for each event, microseconds of the
// monotonic clock first:
//
//   start WORKER PID | init | world WORLD RANK SIZE STEP DIGEST | draw STEP WORLD EPOCH samples...
//   | commit STEP WORLD DIGEST | done STEP DIGEST | error TEXT
//
// WORLD is a number that grows from one world to the next, also from one job to the next; the STEP
// after it is the one from which it goes on. A draw counts only where the step was committed in the
// same world; a digest is that of all weights. Either all workers keep one, or none. One thread at
// a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace train {

class Ledger {
 public:
  // In this directory, which is made; an empty path keeps none. Throws UsageError that names the
  // path if it cannot be written.
  explicit Ledger(const std::filesystem::path& directory);
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  bool is_kept() const { return file_ >= 0; }

  // Each throws std::runtime_error if the line cannot be written.
  void init() { line("init"); }
  // Of the world that this process is in now. A collective call, which throws what those throw.
  void world(std::size_t step, std::uint64_t digest);
  void draw(std::size_t step, std::int64_t epoch, std::span<const std::int64_t> samples);
  void commit(std::size_t step, std::uint64_t digest);
  void done(std::size_t step, std::uint64_t digest);
  // Says nothing if it cannot be written: something worse has happened already.
  void error(const std::string& what) noexcept;

 private:
  void line(const std::string& text);

  std::string path_;
  int file_ = -1;
  std::int64_t number_ = 0;  // of the world
  std::string world_;
};

}  // namespace train
