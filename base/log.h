// Levelled logging to stderr, one line a message, each line in one write(2) so that lines of
// several processes do not mix. Safe from any thread. A message that a person must see on the
// terminal is not logged; it goes through cmd/hvdrun. Nothing secret is ever logged.
#pragma once

#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

namespace hvd {

enum class LogLevel { trace, debug, info, warning, error, fatal, off };

// "TRACE", "debug", "Warning", ... as Horovod and we spell them.
std::optional<LogLevel> parse_log_level(std::string_view name);

struct LogOptions {
  LogLevel level = LogLevel::warning;
  bool show_time = true;
  std::string who;  // stands in every line: "hvdrun", "rank 3"
};

void set_log_options(LogOptions options);
bool log_enabled(LogLevel level);
void log_line(LogLevel level, std::string_view message);

// Another way for the lines than stderr. `sink` gets each line, with its line feed, but for fatal
// ones, after which the process ends; empty: they go to stderr. It is called by one thread at a
// time and must neither wait nor log. Safe from any thread.
void set_log_sink(std::function<void(std::string line)> sink);

}  // namespace hvd

// HVD_LOG(warning, "host " << host << " is gone"); the message is not built when the level is off.
#define HVD_LOG(level, message)                                        \
  do {                                                                 \
    if (::hvd::log_enabled(::hvd::LogLevel::level)) {                  \
      std::ostringstream hvd_log_out;                                  \
      hvd_log_out << message; /* NOLINT(bugprone-macro-parentheses) */ \
      ::hvd::log_line(::hvd::LogLevel::level, hvd_log_out.str());      \
    }                                                                  \
  } while (false)
