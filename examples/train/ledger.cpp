// SPDX-License-Identifier: Apache-2.0
#include "ledger.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <stdexcept>
#include <unistd.h>
#include <vector>

#include <hvd/hvd.h>

#include "options.h"

namespace train {
namespace {

std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// "localhost#2"; without hvdrun there is one worker.
std::string worker_name() {
  const char* const name = std::getenv("HVD_WORKER");
  return name != nullptr ? name : "alone#0";
}

std::string hex(std::uint64_t value) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(value));
  return text.data();
}

}  // namespace

Ledger::Ledger(const std::filesystem::path& directory) {
  if (directory.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) throw UsageError("--ledger " + directory.string() + ": " + error.message());
  // A worker that is started again in the same slot writes another file.
  path_ = directory / (worker_name() + "." + std::to_string(now_us()) + ".log");
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
  if (file_ < 0) {
    throw UsageError("--ledger " + directory.string() + ": cannot make " + path_ + ": " +
                     std::strerror(errno));
  }
  line("start " + worker_name() + " " + std::to_string(::getpid()));
}

Ledger::~Ledger() {
  if (file_ >= 0) ::close(file_);
}

void Ledger::world(std::size_t step, std::uint64_t digest) {
  if (!is_kept()) return;
  // A world whose connections broke may be formed again as it was, under the same generation. The
  // worker with the most attempts has been in it each time, so the greatest count was never there
  // before.
  const auto generation = hvd::elastic::generation();
  attempt_ = generation == generation_ ? attempt_ + 1 : 1;
  generation_ = generation;
  std::vector<std::int64_t> attempt{attempt_};
  hvd::allreduce(attempt, {.name = "ledger.attempt", .op = hvd::Max});
  constexpr std::int64_t kMostAttempts = 1'000'000;
  world_ = std::to_string(static_cast<std::int64_t>(generation) * kMostAttempts + attempt[0]);
  line("world " + world_ + " " + std::to_string(hvd::rank()) + " " + std::to_string(hvd::size()) +
       " " + std::to_string(step) + " " + hex(digest));
}

void Ledger::draw(std::size_t step, std::int64_t epoch, std::span<const std::int64_t> samples) {
  if (!is_kept()) return;
  std::string text = "draw " + std::to_string(step) + " " + world_ + " " + std::to_string(epoch);
  for (const auto sample : samples) {
    text += ' ';
    text += std::to_string(sample);
  }
  line(text);
}

void Ledger::commit(std::size_t step) { line("commit " + std::to_string(step) + " " + world_); }

void Ledger::done(std::size_t step, std::uint64_t digest) {
  line("done " + std::to_string(step) + " " + hex(digest));
}

void Ledger::error(const std::string& what) noexcept {
  try {
    line("error " + what.substr(0, what.find('\n')));
  } catch (const std::exception&) {
    // See the header.
  }
}

// In one write(), so that a worker that is killed leaves no half of a line.
void Ledger::line(const std::string& text) {
  if (!is_kept()) return;
  const std::string whole = std::to_string(now_us()) + " " + text + "\n";
  errno = ENOSPC;  // what it means if only a part was taken
  if (::write(file_, whole.data(), whole.size()) != static_cast<ssize_t>(whole.size())) {
    throw std::runtime_error("cannot write " + path_ + ": " + std::strerror(errno));
  }
}

}  // namespace train
