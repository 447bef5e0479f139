// SPDX-License-Identifier: Apache-2.0
#include "ledger.h"

#include <algorithm>
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
  // Generations begin anew when a suspended job is taken up, and a world whose connections broke
  // may be formed again under the same one. Clocks of hosts differ, but whoever was in the last
  // world knows its number.
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::vector<std::int64_t> number{std::max<std::int64_t>(
      number_ + 1, std::chrono::duration_cast<std::chrono::microseconds>(now).count())};
  hvd::allreduce(number, {.name = "ledger.world", .op = hvd::Max});
  number_ = number[0];
  world_ = std::to_string(number_);
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

void Ledger::commit(std::size_t step, std::uint64_t digest) {
  line("commit " + std::to_string(step) + " " + world_ + " " + hex(digest));
}

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
