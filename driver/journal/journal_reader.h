// Reads a job's journal (driver/journal/journal.h) one line after the other. Nothing in it is
// trusted. A line without an end was being written when hvdrun died, or is being written now: the
// journal ends before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/status.h"
#include "driver/job/job.h"
#include "driver/job/job_options.h"

namespace hvd::driver {

struct JournalHead {
  std::string job_id;
  std::string build;
  std::vector<std::string> command;
  std::string directory;
  JobStart start;
};

struct JournalStep {
  Event event;
  TimePoint now;
  nlohmann::json actions;  // an array: the decisions that were taken
};

class JournalReader {
 public:
  // `journal` outlives this.
  explicit JournalReader(std::istream& journal) : journal_(journal) {}

  // The first line. not_found: there is none yet; data_loss: it is not a journal;
  // failed_precondition: it is of another schema. Each error names the line.
  Result<JournalHead> head();
  // The next step; nothing at the end. `job` has gone through the steps before.
  Result<std::optional<JournalStep>> next(const Job& job);

  // Of the line that was read last, from 1 on.
  std::size_t line() const { return line_; }
  // The line itself, with its line feed.
  const std::string& text() const { return text_; }
  // Bytes of the whole lines so far.
  std::uint64_t whole() const { return whole_; }
  // It ends with a part of a line.
  bool is_cut_off() const { return is_cut_off_; }

 private:
  // Nothing at the end.
  Result<std::optional<nlohmann::json>> next_line();
  Status with_line(const Status& status) const;

  std::istream& journal_;
  std::size_t line_ = 0;
  std::string text_;
  std::uint64_t whole_ = 0;
  bool is_cut_off_ = false;
};

}  // namespace hvd::driver
