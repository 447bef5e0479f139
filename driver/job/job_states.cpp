#include "driver/job/job_states.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/text.h"

namespace hvd::driver {
namespace {

template <typename State>
struct Row {
  State state;
  std::string_view name;
  std::vector<State> successors;
};

const std::vector<Row<JobState>>& job_table() {
  using enum JobState;
  static const std::vector<Row<JobState>> kTable{
      {planned, "planned", {preparing, finished}},
      {preparing, "preparing", {choosing, stopping}},
      {choosing, "choosing", {starting, stopping}},
      {starting, "starting", {running, stopping, killing, closing}},
      {running, "running", {stopping, killing, closing}},
      {stopping, "stopping", {killing, closing}},
      {killing, "killing", {closing}},
      {closing, "closing", {finished}},
      {finished, "finished", {}},
  };
  return kTable;
}

const std::vector<Row<ElasticState>>& elastic_table() {
  using enum ElasticState;
  static const std::vector<Row<ElasticState>> kTable{
      {planned, "planned", {gathering, finished}},
      {gathering, "gathering", {training, stopping}},
      {training, "training", {waiting, ending, stopping, closing}},
      {waiting, "waiting", {training, ending, stopping}},
      // A program may call hvd::init again after hvd::shutdown.
      {ending, "ending", {training, stopping, closing}},
      {stopping, "stopping", {killing, closing}},
      {killing, "killing", {closing}},
      {closing, "closing", {finished}},
      {finished, "finished", {}},
  };
  return kTable;
}

const std::vector<Row<Standing>>& standing_table() {
  using enum Standing;
  static const std::vector<Row<Standing>> kTable{
      {coming, "coming", {warm, member, out}},
      {warm, "warm", {member, out}},
      {member, "member", {out}},
      {out, "out", {}},
  };
  return kTable;
}

const std::vector<Row<HostState>>& host_table() {
  using enum HostState;
  static const std::vector<Row<HostState>> kTable{
      {planned, "planned", {starting}},
      {starting, "starting", {ready, dropping, gone}},
      {ready, "ready", {closing, dropping, gone}},
      {closing, "closing", {dropping, gone}},
      {dropping, "dropping", {gone}},
      {gone, "gone", {}},
  };
  return kTable;
}

const std::vector<Row<WorkerState>>& worker_table() {
  using enum WorkerState;
  static const std::vector<Row<WorkerState>> kTable{
      {planned, "planned", {launching, never_started}},
      {launching, "launching", {running, never_started, lost}},
      {running, "running", {initialised, exited, lost}},
      {initialised, "initialised", {done, exited, lost}},
      // A program may call hvd::init again after hvd::shutdown.
      {done, "done", {initialised, exited, lost}},
      {exited, "exited", {}},
      {never_started, "never started", {}},
      {lost, "lost", {}},
  };
  return kTable;
}

template <typename State>
const Row<State>& row_of(const std::vector<Row<State>>& table, State state) {
  return table[static_cast<std::size_t>(state)];  // rows stand in the order of the enum
}

template <typename State>
bool contains(std::span<const State> states, State wanted) {
  return std::find(states.begin(), states.end(), wanted) != states.end();
}

}  // namespace

std::string_view name_of(ElasticState state) { return row_of(elastic_table(), state).name; }
std::string_view name_of(Standing standing) { return row_of(standing_table(), standing).name; }
std::string_view name_of(JobState state) { return row_of(job_table(), state).name; }
std::string_view name_of(HostState state) { return row_of(host_table(), state).name; }
std::string_view name_of(WorkerState state) { return row_of(worker_table(), state).name; }

std::span<const ElasticState> successors(ElasticState state) {
  return row_of(elastic_table(), state).successors;
}
std::span<const Standing> successors(Standing standing) {
  return row_of(standing_table(), standing).successors;
}
std::span<const JobState> successors(JobState state) {
  return row_of(job_table(), state).successors;
}
std::span<const HostState> successors(HostState state) {
  return row_of(host_table(), state).successors;
}
std::span<const WorkerState> successors(WorkerState state) {
  return row_of(worker_table(), state).successors;
}

bool may_follow(ElasticState from, ElasticState to) { return contains(successors(from), to); }
bool may_follow(Standing from, Standing to) { return contains(successors(from), to); }
bool may_follow(JobState from, JobState to) { return contains(successors(from), to); }
bool may_follow(HostState from, HostState to) { return contains(successors(from), to); }
bool may_follow(WorkerState from, WorkerState to) { return contains(successors(from), to); }

void end_with_bug(std::string_view from, std::string_view to) {
  const std::string text =
      cat("hvdrun: bug in driver/job: \"", to, "\" cannot follow \"", from, "\"\n");
  std::fputs(text.c_str(), stderr);
  std::abort();
}

bool has_ended(WorkerState state) {
  return state == WorkerState::exited || state == WorkerState::never_started ||
         state == WorkerState::lost;
}

}  // namespace hvd::driver
