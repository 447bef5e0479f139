// The journal of a job of a test, in memory; to be gone through again at the end.
#pragma once

#include <algorithm>
#include <sstream>
#include <string>

#include "base/text.h"
#include "driver/journal/journal.h"
#include "driver/journal/replay.h"

namespace hvd::driver {

class KeptJournal {
 public:
  explicit KeptJournal(const JobStart& start) : text_(journal_head({.id = "kept"}, start)) {}

  void step(const Event& event, const std::vector<Action>& actions, const Job& job, TimePoint now) {
    text_ += lines_.step(event, actions, job, now, {});
  }

  const std::string& text() {
    text_ += lines_.rest();
    return text_;
  }
  // The first difference; "" if each decision is taken again.
  std::string wrong() {
    std::istringstream in(text());
    const auto events = static_cast<std::size_t>(std::count(text_.begin(), text_.end(), '\n')) - 1;
    const auto replayed = replay(in);
    if (!replayed.ok()) return cat("the journal: ", replayed.status().to_string());
    if (replayed->difference) {
      const auto& [line, event, then, now] = *replayed->difference;
      return cat("the journal, line ", line, ": after ", event, "\n", join(then, "\n"),
                 "\nwas decided, and now\n", join(now, "\n"));
    }
    return replayed->events == events ? "" : "the journal lacks events";
  }

 private:
  std::string text_;
  JournalLines lines_;
};

}  // namespace hvd::driver
