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

const std::vector<Row<JobState>>& table_of(JobState /*kind*/) {
  using enum JobState;
  static const std::vector<Row<JobState>> kTable{
      {planned, "planned", {preparing, finished}},
      {preparing, "preparing", {choosing, running, stopping}},
      {choosing, "choosing", {starting, stopping}},
      {starting, "starting", {running, stopping, closing}},
      {running, "running", {waiting, ending, stopping, closing}},
      {waiting, "waiting", {running, ending, stopping}},
      // A program may call hvd::init again after hvd::shutdown.
      {ending, "ending", {running, stopping, closing}},
      {stopping, "stopping", {killing, closing}},
      {killing, "killing", {closing}},
      {closing, "closing", {finished}},
      {finished, "finished", {}},
  };
  return kTable;
}

const std::vector<Row<MemberStatus>>& table_of(MemberStatus /*kind*/) {
  using enum MemberStatus;
  static const std::vector<Row<MemberStatus>> kTable{
      {joining, "joining", {standby, member, removed, exited_before_init, completed}},
      {standby, "standby", {member, removed, completed}},
      {member, "member", {removed, exited_before_init, completed}},
      {removed, "removed", {completed}},
      // Others have called hvd::init since: the world lacks this worker.
      {exited_before_init, "exited before init", {removed}},
      {completed, "completed", {}},
  };
  return kTable;
}

const std::vector<Row<HostState>>& table_of(HostState /*kind*/) {
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

const std::vector<Row<WorkerState>>& table_of(WorkerState /*kind*/) {
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

}  // namespace

std::string_view name_of(JobState state) { return row_of(table_of(state), state).name; }
std::string_view name_of(HostState state) { return row_of(table_of(state), state).name; }
std::string_view name_of(WorkerState state) { return row_of(table_of(state), state).name; }
std::string_view name_of(MemberStatus status) { return row_of(table_of(status), status).name; }

std::span<const JobState> successors(JobState state) {
  return row_of(table_of(state), state).successors;
}
std::span<const HostState> successors(HostState state) {
  return row_of(table_of(state), state).successors;
}
std::span<const WorkerState> successors(WorkerState state) {
  return row_of(table_of(state), state).successors;
}
std::span<const MemberStatus> successors(MemberStatus status) {
  return row_of(table_of(status), status).successors;
}

void end_with_bug(std::string_view from, std::string_view to) {
  const std::string text =
      cat("hvdrun: bug in driver/job: \"", to, "\" cannot follow \"", from, "\"\n");
  std::fputs(text.c_str(), stderr);
  std::abort();
}

}  // namespace hvd::driver
