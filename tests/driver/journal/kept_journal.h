// The journal of a job of a test, in memory; to be gone through again at the end.
#pragma once

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
    text_ += journal_line(event, actions, job.hosts(), now, {});
    ++events_;
  }

  const std::string& text() const { return text_; }
  // The first difference; "" if each decision is taken again.
  std::string wrong() const {
    std::istringstream in(text_);
    const auto replayed = replay(in);
    if (!replayed.ok()) return cat("the journal: ", replayed.status().to_string());
    if (replayed->difference) {
      const auto& [line, event, then, now] = *replayed->difference;
      return cat("the journal, line ", line, ": after ", event, "\n", join(then, "\n"),
                 "\nwas decided, and now\n", join(now, "\n"));
    }
    return replayed->events == events_ ? "" : "the journal lacks events";
  }

 private:
  std::string text_;
  std::size_t events_ = 0;
};

}  // namespace hvd::driver
