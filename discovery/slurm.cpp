#include "discovery/slurm.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <set>
#include <utility>

#include "base/printable.h"
#include "base/text.h"
#include "discovery/answer.h"

namespace hvd::discovery {
namespace {

constexpr std::size_t kLongestNumber = 9;  // digits

Status bad_hostlist(std::string_view text, std::string_view why) {
  return {Code::invalid_argument, cat("list of nodes ", quoted(text), ": ", why)};
}

// The commas outside of brackets separate entries.
Result<std::vector<std::string_view>> entries_of(std::string_view text) {
  std::vector<std::string_view> entries;
  std::size_t begin = 0;
  bool in_brackets = false;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == ',' && !in_brackets)) {
      if (i == begin) return bad_hostlist(text, "an entry is empty");
      entries.push_back(text.substr(begin, i - begin));
      begin = i + 1;
    } else if (text[i] == '[' || text[i] == ']') {
      if (in_brackets == (text[i] == '[')) return bad_hostlist(text, "its brackets do not match");
      in_brackets = !in_brackets;
    }
  }
  if (in_brackets) return bad_hostlist(text, "a bracket is not closed");
  return entries;
}

bool is_number(std::string_view text) {
  return !text.empty() && text.size() <= kLongestNumber &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char digit) { return std::isdigit(digit) != 0; });
}

// "01-03,7" is 01, 02, 03, 7: the width of the first number is kept.
Result<std::vector<std::string>> expand_range(std::string_view ranges, std::string_view whole) {
  std::vector<std::string> numbers;
  for (const std::string& range : split(ranges, ',')) {
    const auto dash = range.find('-');
    const std::string first = range.substr(0, dash);
    const std::string last = dash == std::string::npos ? first : range.substr(dash + 1);
    if (!is_number(first) || !is_number(last)) {
      return bad_hostlist(whole, cat(quoted(range), " is not a range of numbers"));
    }

    const int begin = *parse_number<int>(first);
    const int end = *parse_number<int>(last);
    if (end < begin || static_cast<std::size_t>(end - begin) >= kMaxDiscoveredHosts) {
      return bad_hostlist(whole, cat("the range ", quoted(range), " is empty or too long"));
    }
    for (int number = begin; number <= end; ++number) {
      std::string digits = std::to_string(number);
      if (digits.size() < first.size()) digits.insert(0, first.size() - digits.size(), '0');
      numbers.push_back(std::move(digits));
    }
    if (numbers.size() > kMaxDiscoveredHosts) return bad_hostlist(whole, "it has too many nodes");
  }
  if (numbers.empty()) return bad_hostlist(whole, "a pair of brackets is empty");
  return numbers;
}

// All names of one entry: what stands before, in and after each of its brackets.
Result<std::vector<std::string>> expand_entry(std::string_view entry, std::string_view whole) {
  std::vector<std::string> names{""};
  while (!entry.empty()) {
    const auto open = entry.find('[');
    for (auto& name : names) name += entry.substr(0, open);
    if (open == std::string_view::npos) break;

    const auto close = entry.find(']', open);
    auto numbers = expand_range(entry.substr(open + 1, close - open - 1), whole);
    if (!numbers.ok()) return numbers.status();
    if (names.size() * numbers->size() > kMaxDiscoveredHosts) {
      return bad_hostlist(whole, "it has too many nodes");
    }

    std::vector<std::string> longer;
    longer.reserve(names.size() * numbers->size());
    for (const auto& name : names) {
      for (const auto& number : *numbers) longer.push_back(name + number);
    }
    names = std::move(longer);
    entry.remove_prefix(close + 1);
  }
  return names;
}

// What Slurm calls a node in lines of sinfo, without the marks behind it ("down*", "allocated#").
std::string state_word(std::string_view state) {
  std::string word;
  for (const char letter : state) {
    const auto code = static_cast<unsigned char>(letter);
    if (std::isalpha(code) == 0) break;
    word += static_cast<char>(std::tolower(code));
  }
  return word;
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

// Slots of each of so many nodes; empty: the agents count.
Result<std::vector<int>> slots_of_nodes(const VariableLookup& lookup, std::size_t nodes) {
  std::vector<int> slots;
  if (is_any_set(lookup, {"SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"})) {
    auto tasks = counts_in(lookup, "SLURM_TASKS_PER_NODE");
    if (!tasks.ok()) return tasks.status();
    slots = std::move(*tasks);
  } else if (!is_any_set(lookup, {"SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK",
                                  "SLURM_GPUS_ON_NODE", "SLURM_JOB_GPUS"})) {
    auto processors = counts_in(lookup, "SLURM_JOB_CPUS_PER_NODE");
    if (!processors.ok()) return processors.status();
    auto of_task = counts_in(lookup, "SLURM_CPUS_PER_TASK");
    if (!of_task.ok()) return of_task.status();
    slots = std::move(*processors);
    for (int& count : slots) count = std::max(1, count / (of_task->empty() ? 1 : of_task->front()));
  }
  // In a step of srun the numbers of tasks are those of the step.
  if (slots.size() != nodes) slots.clear();
  return slots;
}

}  // namespace

Result<std::vector<std::string>> expand_hostlist(std::string_view text) {
  auto entries = entries_of(text);
  if (!entries.ok()) return entries.status();
  std::vector<std::string> names;
  for (const auto entry : *entries) {
    auto more = expand_entry(entry, text);
    if (!more.ok()) return more.status();
    std::move(more->begin(), more->end(), std::back_inserter(names));
    if (names.size() > kMaxDiscoveredHosts) return bad_hostlist(text, "it has too many nodes");
  }
  return names;
}

Result<std::vector<int>> expand_counts(std::string_view text) {
  std::vector<int> counts;
  for (const std::string& entry : split(text, ',')) {
    const auto bracket = entry.find("(x");
    const std::string_view number = std::string_view(entry).substr(0, bracket);
    std::string_view times = "1";
    if (bracket != std::string::npos) {
      times = std::string_view(entry).substr(bracket + 2);
      if (times.ends_with(')'))
        times.remove_suffix(1);
      else
        times = {};
    }
    const auto count = parse_number<int>(number);
    const auto repeated = parse_number<std::size_t>(times);
    if (!is_number(number) || !is_number(times) || *count < 1 ||
        counts.size() + *repeated > kMaxDiscoveredHosts) {
      return Status(Code::invalid_argument, cat(quoted(text), ": must be numbers such as 2(x3),1"));
    }
    counts.insert(counts.end(), *repeated, *count);
  }
  return counts;
}

bool is_in_slurm_allocation(const VariableLookup& lookup) {
  return is_set(lookup, "SLURM_JOB_ID") && is_set(lookup, "SLURM_JOB_NODELIST");
}

Result<SlurmAllocation> slurm_allocation(const VariableLookup& lookup) {
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

  SlurmAllocation allocation;
  allocation.job_id = *lookup("SLURM_JOB_ID");
  auto names = expand_hostlist(*lookup("SLURM_JOB_NODELIST"));
  if (!names.ok()) return names.status().with_context("SLURM_JOB_NODELIST");
  auto slots = slots_of_nodes(lookup, names->size());
  if (!slots.ok()) return slots.status();

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

Result<std::vector<Host>> slurm_nodes(const SlurmAllocation& allocation, std::string_view nodes,
                                      std::string_view states, int least) {
  auto names = expand_hostlist(trim(nodes));
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
