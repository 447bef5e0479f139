#include "base/log.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <unistd.h>

#include "base/printable.h"
#include "base/text.h"
#include "base/threads.h"

namespace hvd {
namespace {

constexpr std::array<std::string_view, 7> kNames = {"trace", "debug", "info", "warning",
                                                    "error", "fatal", "off"};
constinit std::atomic<LogLevel> current_level{LogLevel::warning};

std::mutex& options_mutex() {
  static auto& kept = *new std::mutex;
  [[maybe_unused]] static const bool is_free_in_children = (keep_free_in_children(kept), true);
  return kept;
}

LogOptions& options() {
  static auto* const kept = new LogOptions;  // outlives every static that may still log
  return *kept;
}

std::function<void(std::string)>& sink() {
  static auto* const kept = new std::function<void(std::string)>;
  return *kept;
}

[[maybe_unused]] const bool log_is_made = (options_mutex(), options(), sink(), true);

std::string time_of_day() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto micros =
      std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count() %
      1'000'000;
  std::tm parts{};
  localtime_r(&seconds, &parts);
  std::array<char, 64> text{};
  const auto length = std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &parts);
  std::snprintf(text.data() + length, text.size() - length, ".%06ld", static_cast<long>(micros));
  return text.data();
}

}  // namespace

std::optional<LogLevel> parse_log_level(std::string_view name) {
  std::string lower = lower_case(name);
  if (lower == "warn") lower = "warning";
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == lower) return static_cast<LogLevel>(i);
  }
  return std::nullopt;
}

void set_log_options(LogOptions new_options) {
  const std::lock_guard lock(options_mutex());
  current_level = new_options.level;
  options() = std::move(new_options);
}

void set_log_sink(std::function<void(std::string)> new_sink) {
  const std::lock_guard lock(options_mutex());
  sink() = std::move(new_sink);
}

bool log_enabled(LogLevel level) { return level >= current_level.load(std::memory_order_relaxed); }

void log_line(LogLevel level, std::string_view message) {
  std::unique_lock lock(options_mutex());
  std::string line = "[";
  if (options().show_time) line.append(time_of_day()).append(" ");
  if (!options().who.empty()) line.append(options().who).append(" ");
  line.append(kNames[static_cast<std::size_t>(level)])
      .append("] ")
      .append(printable_lines(message))
      .append("\n");
  const auto to = sink();
  lock.unlock();  // whoever reads may take its time
  if (to && level < LogLevel::fatal) return to(std::move(line));
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace hvd
