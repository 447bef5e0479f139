#include "tests/worker/elastic/training_history.h"

#include <algorithm>

#include "base/text.h"

namespace hvd {

TrainingHistory::TrainingHistory(int samples, int batch, std::uint64_t seed)
    : samples_(samples), batch_(batch) {
  SamplerOptions options;
  options.size = samples;
  options.seed = seed;
  states_.push_back({kNothing, 0, 0, Sampler(options), {}, {}});
}

// ---- what the program does ----

int TrainingHistory::train(int state, int rank, int size) {
  const auto& after = at(state).after;
  const auto known = std::find_if(after.begin(), after.end(),
                                  [&](const auto& next) { return next.first == size; });
  Sampler sampler = at(state).sampler;
  if (sampler.done()) sampler.set_epoch(sampler.epoch() + 1);
  auto samples = sampler.next(batch_, rank, size);
  int next = 0;
  if (known != after.end()) {
    next = known->second;
  } else {
    next = static_cast<int>(states_.size());
    at(state).after.emplace_back(size, next);
    const int steps = at(state).steps + 1;
    states_.push_back({state, steps, size, sampler, {}, {}});
    at(next).samples.resize(static_cast<std::size_t>(size));
  }
  if (at(next).sampler.processed() != sampler.processed()) {
    wrong("ranks have come differently far in an epoch");
  }
  at(next).samples[static_cast<std::size_t>(rank)] = std::move(samples);
  return next;
}

bool TrainingHistory::is_on_the_path(int state, int to) const {
  while (to != kNothing && at(to).steps > at(state).steps) to = at(to).parent;
  return to == state;
}

// ---- what the workers agree about ----

void TrainingHistory::resumed(std::uint64_t generation, CommitId id, int state) {
  const auto [known, is_new] = resume_of_.try_emplace(generation, Commit{id, state});
  if (!is_new) {
    if (known->second.id != id || known->second.state != state) {
      wrong(cat("generation ", generation, " resumes from ", to_text(known->second.id),
                " and from ", to_text(id)));
    }
    return;
  }
  for (const auto& [before, commit] : last_commit_of_) {
    if (before < generation && !is_on_the_path(commit.state, state)) {
      wrong(cat("generation ", generation, " resumes from ", to_text(id), " without commit ",
                to_text(commit.id)));
    }
  }
}

void TrainingHistory::decided(CommitId id, int state, CommitId mark) {
  ++commits_;
  if (mark < id)
    wrong(cat("commit ", to_text(id), " is answered, and the mark is at ", to_text(mark)));
  for (const auto& [generation, resume] : resume_of_) {
    if (generation > id.generation && !is_on_the_path(state, resume.state)) {
      wrong(cat("commit ", to_text(id), " is answered, and generation ", generation,
                " has resumed from ", to_text(resume.id)));
    }
  }
  for (const auto& [generation, commit] : last_commit_of_) {
    const bool older = commit.id <= id;
    if (!is_on_the_path(older ? commit.state : state, older ? state : commit.state)) {
      wrong(cat("commits ", to_text(id), " and ", to_text(commit.id), " are of two histories"));
    }
  }
  auto& last = last_commit_of_[id.generation];
  if (last.id <= id) last = {id, state};
  if (newest_ <= id) {
    newest_ = id;
    committed_state_ = state;
  }
}

void TrainingHistory::answered(CommitId id, int state) {
  const auto last = last_commit_of_.find(id.generation);
  if (last == last_commit_of_.end() || last->second.id < id) {
    wrong(cat("commit ", to_text(id), " was answered and never decided"));
  } else if (!is_on_the_path(state, last->second.state)) {
    wrong(cat("a rank has another state at commit ", to_text(id)));
  }
}

void TrainingHistory::mark_written(CommitId before, CommitId after) {
  if (after < before)
    wrong(cat("the mark goes back from ", to_text(before), " to ", to_text(after)));
}

void TrainingHistory::loaded(std::uint64_t generation, int state) {
  last_commit_of_.clear();
  resume_of_.erase(generation);
  resumed(generation, {generation, 0}, state);
  committed_state_ = state;
}

void TrainingHistory::void_commits() {
  // The driver had decided to start all again before it heard that this work had even begun.
  is_finished_ = false;
  last_commit_of_.clear();
  resume_of_.clear();
  newest_ = {};
  committed_state_ = beginning();
}

// ---- at the end ----

void TrainingHistory::check_samples() {
  std::vector<int> path;
  for (int state = committed_state_; at(state).parent != kNothing; state = at(state).parent) {
    path.push_back(state);
  }
  std::reverse(path.begin(), path.end());
  std::vector<int> times(static_cast<std::size_t>(samples_));
  std::int64_t epoch = 0;
  std::int64_t handed_out = 0;
  for (const int state : path) {
    const State& step = at(state);
    if (step.sampler.epoch() != epoch) {
      if (handed_out < samples_) wrong(cat("epoch ", epoch, " ended before its samples did"));
      std::fill(times.begin(), times.end(), 0);
      epoch = step.sampler.epoch();
      handed_out = 0;
    }
    for (const auto& samples : step.samples) {
      if (samples.size() != step.samples.front().size()) wrong("a rank's samples are missing");
      for (const auto sample : samples) ++times[static_cast<std::size_t>(sample)];
      handed_out += static_cast<std::int64_t>(samples.size());
    }
    const auto twice = std::count_if(times.begin(), times.end(), [](int n) { return n > 1; });
    const auto once = std::count_if(times.begin(), times.end(), [](int n) { return n > 0; });
    const bool ends = step.sampler.done();
    if (ends ? once != samples_ || handed_out - samples_ >= step.size : twice != 0) {
      wrong(cat("in epoch ", epoch, " ", once, " of ", samples_, " samples were trained, ", twice,
                " of them twice"));
    }
  }
}

}  // namespace hvd
