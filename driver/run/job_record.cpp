#include "driver/run/job_record.h"

#include <utility>
#include <variant>

#include "base/text.h"

namespace hvd::driver {

JobRecord::JobRecord(const JobContext& context, const JobStart& start,
                     std::optional<Journal> journal, std::optional<Journal> state)
    : context_(context),
      journal_(std::move(journal)),
      state_(std::move(state)),
      metrics_(context.identity, start) {}

void JobRecord::begin(const JobStart& start) {
  if (journal_) warn_of_journal(journal_->begin(context_.identity, start));
  // The state of a job that was left has its beginning.
  if (state_ && context_.epoch == 1) lose_state(state_->begin(context_.identity, start));
}

void JobRecord::relive_head(const std::string& line) {
  if (journal_) warn_of_journal(journal_->begin_with(line));
}

void JobRecord::relive(const std::string& line, const Event& event,
                       const std::vector<Action>& actions, const Job& job, TimePoint then) {
  count(event, actions, job, then);
  if (journal_) warn_of_journal(journal_->copy(line));
}

void JobRecord::count(const Event& event, const std::vector<Action>& actions, const Job& job,
                      TimePoint now) {
  const auto* const entered = std::get_if<event::WorldEntered>(&event);
  if (entered != nullptr && !worlds_.empty() && worlds_.back().generation == entered->generation) {
    worlds_.back().entered = *entered;
  }
  account_.step(event, actions, job, now);
  metrics_.step(event, actions, job, now);
}

void JobRecord::keep() {
  if (state_) lose_state(state_->sync());
}

void JobRecord::lose_state(const Status& written) {
  if (written.ok()) return;
  context_.observer.on_warning(
      cat("the job goes on, and no other hvdrun can take it over any more (--state): ",
          written.message()));
  state_.reset();
  context_.state->forget();
}

void JobRecord::step(const Event& event, const std::vector<Action>& actions, const Job& job,
                     TimePoint now, std::chrono::system_clock::time_point wall_time) {
  count(event, actions, job, now);
  if (journal_) warn_of_journal(journal_->step(event, actions, job, now, wall_time));
  if (state_) lose_state(state_->step(event, actions, job, now, wall_time));
}

void JobRecord::add_world(const WorldDocument& world, const std::string& why) {
  if (worlds_.size() == kMaxPastWorlds) worlds_.erase(worlds_.begin());
  worlds_.push_back(
      {world.generation, std::chrono::system_clock::now(), world.members.size(), why, {}});
}

std::string JobRecord::last_recovery_text() const {
  for (std::size_t i = worlds_.size(); i > 1; --i) {
    const PastWorld& world = worlds_[i - 1];
    if (!world.entered) continue;
    return cat("  the last recovery, into generation ", world.generation, ", took ",
               entry_text(*world.entered), "\n");
  }
  return {};
}

std::string JobRecord::metrics_text(const WorkWatch& work, const Job& job, TimePoint now) {
  metrics_.look_at_work(work, job, now);
  return metrics_.text(job, now);
}

std::string JobRecord::finish() {
  state_.reset();
  if (!journal_) return {};
  warn_of_journal(journal_->flush());
  if (const auto missing = journal_->missing(); missing > 0) {
    tell_of_journal(cat(missing, missing == 1 ? " line" : " lines",
                        " of the journal (--events) are not in ", journal_->file()));
  }
  return journal_->is_open() ? journal_->file() : std::string();
}

void JobRecord::warn_of_journal(const Status& written) {
  if (written.ok()) return;
  const bool hangs = written.code() == Code::deadline_exceeded;
  tell_of_journal(cat("the job goes on, and its journal (--events) ",
                      hangs ? "waits for its file: " : "ends here: ", written.message()));
}

void JobRecord::tell_of_journal(const std::string& text) {
  if (context_.spec.journal->file.empty()) return context_.observer.on_progress(text);
  context_.observer.on_warning(text);
}

}  // namespace hvd::driver
