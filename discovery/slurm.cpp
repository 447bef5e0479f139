#include "discovery/slurm.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <utility>

#include "base/text.h"
#include "discovery/slurm_job.h"

namespace hvd::discovery {
namespace {

// The state of a node in lines of sinfo, without the marks behind it ("down*", "allocated#").
std::string state_word(std::string_view state) {
  const auto is_letter = [](unsigned char c) { return std::isalpha(c) != 0; };
  const auto* const mark = std::find_if_not(state.begin(), state.end(), is_letter);
  return lower_case(state.substr(0, static_cast<std::size_t>(mark - state.begin())));
}

enum class NodeState { works, drains, down };

NodeState state_of(std::string_view word) {
  if (word.starts_with("drain") || word == "drng" || word == "maint") return NodeState::drains;
  constexpr std::array<std::string_view, 4> kDown{"down", "fail", "failing", "future"};
  const bool down = std::find(kDown.begin(), kDown.end(), word) != kDown.end();
  return down ? NodeState::down : NodeState::works;
}

// A node of several partitions has a line for each; the worst counts.
std::map<std::string, NodeState, std::less<>> node_states(std::string_view lines) {
  std::map<std::string, NodeState, std::less<>> states;
  for (const std::string& line : split(lines, '\n')) {
    const std::string_view text = trim(line);
    const auto blank = text.find(' ');
    if (blank == std::string_view::npos) continue;
    NodeState& known = states[std::string(text.substr(0, blank))];
    known = std::max(known, state_of(state_word(trim(text.substr(blank)))));
  }
  return states;
}

bool is_set(const VariableLookup& lookup, std::string_view name) {
  const auto value = lookup(name);
  return value.has_value() && !value->empty();
}

bool is_any_set(const VariableLookup& lookup, std::initializer_list<std::string_view> names) {
  return std::any_of(names.begin(), names.end(),
                     [&](std::string_view name) { return is_set(lookup, name); });
}

// An empty answer: the variable is not set.
Result<std::vector<int>> counts_in(const VariableLookup& lookup, std::string_view name) {
  const auto text = lookup(name);
  if (!text || text->empty()) return std::vector<int>();
  auto counts = expand_counts(*text);
  if (!counts.ok()) return counts.status().with_context(name);
  return counts;
}

// Slots by processors, one for as many as a task has; empty: Slurm does not say it.
Result<std::vector<int>> slots_by_processors(const VariableLookup& lookup) {
  auto processors = counts_in(lookup, "SLURM_JOB_CPUS_PER_NODE");
  if (!processors.ok()) return processors.status();
  auto of_task = counts_in(lookup, "SLURM_CPUS_PER_TASK");
  if (!of_task.ok()) return of_task.status();
  for (int& count : *processors) {
    count = std::max(1, count / (of_task->empty() ? 1 : of_task->front()));
  }
  return processors;
}

// A node that is not in the answer of Slurm has none.
std::vector<int> slots_by_gpus(const SlurmJob& job, const std::vector<std::string>& nodes) {
  std::vector<int> slots;
  for (const auto& node : nodes) {
    const auto found = job.resources.find(node);
    slots.push_back(found == job.resources.end() ? 0 : gpus_in(found->second));
  }
  return slots;
}

// Slots of each of these nodes, 0 where the agents count; empty: they count on all.
Result<std::vector<int>> slots_of_nodes(const VariableLookup& lookup, const SlurmJob& job,
                                        const std::vector<std::string>& nodes) {
  if (is_any_set(lookup, {"SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"})) {
    return counts_in(lookup, "SLURM_TASKS_PER_NODE");
  }
  if (uses_gpus(job)) return slots_by_gpus(job, nodes);
  return slots_by_processors(lookup);
}

}  // namespace

bool is_in_slurm_allocation(const VariableLookup& lookup) {
  return is_set(lookup, "SLURM_JOB_ID") && is_set(lookup, "SLURM_JOB_NODELIST");
}

Result<std::string> slurm_job_id(const VariableLookup& lookup) {
  for (const auto* const name : {"SLURM_JOB_ID", "SLURM_JOB_NODELIST"}) {
    if (is_set(lookup, name)) continue;
    return Status(Code::failed_precondition,
                  cat("this is not an allocation of Slurm: ", name,
                      " is not set; start hvdrun in a batch script, or after salloc"));
  }
  if (is_set(lookup, "SLURM_HET_SIZE") && lookup("SLURM_HET_SIZE") != "1") {
    return Status(Code::failed_precondition,
                  "this is a heterogeneous job of Slurm, which hvdrun cannot use; name hosts (-H), "
                  "which are reached by SSH, or start the program itself by srun --mpi=pmix");
  }
  return *lookup("SLURM_JOB_ID");
}

Result<SlurmAllocation> slurm_allocation(const VariableLookup& lookup, SlurmJob job) {
  auto names = expand_hostlist(*lookup("SLURM_JOB_NODELIST"));
  if (!names.ok()) return names.status().with_context("SLURM_JOB_NODELIST");
  auto slots = slots_of_nodes(lookup, job, *names);
  if (!slots.ok()) return slots.status();
  // In a step of srun the numbers of tasks are those of the step.
  if (slots->size() != names->size()) slots->clear();

  SlurmAllocation allocation{.job = std::move(job), .nodes = {}};
  for (std::size_t i = 0; i < names->size(); ++i) {
    allocation.nodes.push_back(
        {.name = std::move((*names)[i]), .slots = slots->empty() ? 0 : (*slots)[i]});
  }
  const bool all_equal =
      !slots->empty() &&
      std::all_of(slots->begin(), slots->end(), [&](int count) { return count == slots->front(); });
  if (all_equal) allocation.slots_of_newcomer = slots->front();
  return allocation;
}

Result<std::vector<Host>> slurm_nodes(const SlurmAllocation& allocation, std::string_view states,
                                      int least) {
  auto names = expand_hostlist(allocation.job.nodes);
  if (!names.ok()) return names.status();
  std::map<std::string, int> slots;
  for (const Host& node : allocation.nodes) slots[node.name] = node.slots;
  const auto known = node_states(states);
  const auto state = [&](const std::string& name) {
    const auto found = known.find(name);
    return found == known.end() ? NodeState::works : found->second;
  };

  std::vector<Host> usable;
  int without_draining = 0;
  for (const std::string& name : *names) {
    if (state(name) == NodeState::down) continue;
    const auto found = slots.find(name);
    usable.push_back(
        {.name = name,
         .slots = found == slots.end() ? allocation.slots_of_newcomer : found->second});
    if (state(name) == NodeState::works) without_draining += std::max(1, usable.back().slots);
  }

  std::vector<Host> result;
  for (Host& node : usable) {
    if (state(node.name) == NodeState::drains) {
      if (without_draining >= std::max(1, least)) continue;
      without_draining += std::max(1, node.slots);
    }
    result.push_back(std::move(node));
  }
  return result;
}

std::string host_lines(const std::vector<Host>& hosts) {
  std::string text;
  for (const Host& host : hosts) {
    text += host.slots > 0 ? cat(host.name, " slots=", host.slots, "\n") : cat(host.name, "\n");
  }
  return text;
}

}  // namespace hvd::discovery
