#include "discovery/slurm_job.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <utility>

#include "base/printable.h"
#include "base/text.h"
#include "discovery/hosts.h"

namespace hvd::discovery {
namespace {

using Words = std::vector<std::string>;

// The words of a line, up to the name of the job, which is free text.
Words words_of(std::string_view line) {
  Words words;
  for (auto& word : split(trim(line), ' ')) {
    if (word.starts_with("JobName=")) break;
    if (!word.empty()) words.push_back(std::move(word));
  }
  return words;
}

// The lines about this job. An empty line ends what is said of one.
std::vector<Words> lines_of_job(std::string_view text, const std::string& id) {
  std::vector<Words> lines;
  for (const auto& line : split(text, '\n')) {
    auto words = words_of(line);
    const bool is_its = !lines.empty() || scontrol_value(words, "JobId") == id;
    if (words.empty() && !lines.empty()) break;
    if (is_its) lines.push_back(std::move(words));
  }
  return lines;
}

// "2-03:04:05", or without the days; nothing: no limit.
std::optional<std::chrono::seconds> parse_duration(std::string_view text) {
  std::int64_t days = 0;
  if (const auto dash = text.find('-'); dash != std::string_view::npos) {
    const auto number = parse_number<std::int64_t>(text.substr(0, dash));
    if (!number) return std::nullopt;
    days = *number;
    text.remove_prefix(dash + 1);
  }
  std::chrono::seconds total = std::chrono::hours(24) * days;
  std::chrono::seconds unit = std::chrono::hours(1);
  const auto parts = split(text, ':');
  if (parts.size() != 3) return std::nullopt;
  for (const auto& part : parts) {
    const auto number = parse_number<std::int64_t>(part);
    if (!number) return std::nullopt;
    total += unit * *number;
    unit /= 60;
  }
  return total;
}

// "gpu:a100:2(IDX:0-1)", or "nic:2(CNT:2)" where nobody numbers them.
std::optional<SlurmResource> parse_resource(std::string_view text) {
  text = text.substr(0, text.find('('));
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const auto count = parse_number<int>(text.substr(colon + 1));
  if (!count || *count < 1) return std::nullopt;
  return SlurmResource{std::string(text.substr(0, colon)), *count};
}

// Commas stand also between the numbers in brackets.
std::vector<SlurmResource> parse_resources(std::string_view text) {
  std::vector<SlurmResource> found;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const char letter = i < text.size() ? text[i] : ',';
    if (letter == '(') ++depth;
    if (letter == ')') --depth;
    if (letter != ',' || depth > 0) continue;
    if (auto resource = parse_resource(text.substr(begin, i - begin))) {
      found.push_back(std::move(*resource));
    }
    begin = i + 1;
  }
  return found;
}

// Slurm ends its processes, or they have ended.
bool has_ended(const SlurmJob& job) {
  return job.state == "COMPLETING" || job.state == "CANCELLED";
}

std::string_view kind_of(const SlurmResource& resource) {
  return std::string_view(resource.name).substr(0, resource.name.find(':'));
}

// "Nodes=sn[1-2] CPU_IDs=0-1 Mem=0 GRES=gpu:2(IDX:0-1)"
Status take_share_of_nodes(const Words& line, SlurmJob& job) {
  auto resources = parse_resources(scontrol_value(line, "GRES"));
  if (resources.empty()) return {};
  const auto nodes = expand_hostlist(scontrol_value(line, "Nodes"));
  if (!nodes.ok()) return nodes.status();
  for (const auto& node : *nodes) job.resources[node] = resources;
  return {};
}

}  // namespace

std::string scontrol_value(const std::vector<std::string>& words, std::string_view name) {
  for (const auto& word : words) {
    if (word.size() > name.size() && word.starts_with(name) && word[name.size()] == '=') {
      return word.substr(name.size() + 1);
    }
  }
  return {};
}

Result<SlurmJob> parse_slurm_job(std::string_view text, const std::string& id) {
  const auto lines = lines_of_job(text, id);
  if (lines.empty()) return Status(Code::not_found, cat("Slurm says nothing of its job ", id));
  Words all;
  for (const auto& line : lines) all.insert(all.end(), line.begin(), line.end());

  SlurmJob job;
  job.id = id;
  job.task_id = id;
  const std::string task = scontrol_value(lines.front(), "ArrayTaskId");
  if (!task.empty()) job.task_id = cat(scontrol_value(lines.front(), "ArrayJobId"), "_", task);
  job.nodes = scontrol_value(all, "NodeList");
  if (job.nodes == "(null)") job.nodes.clear();
  job.state = scontrol_value(all, "JobState");
  if (job.state.empty()) {
    return Status(Code::invalid_argument, cat("Slurm does not say the state of its job ", id));
  }
  // A job that waits again has the times of its next run.
  job.is_requeued = has_ended(job) && scontrol_value(all, "EndTime") == "Unknown";
  job.is_batch = scontrol_value(all, "BatchFlag") == "1";
  job.may_be_requeued = scontrol_value(all, "Requeue") == "1";
  const std::string preempted = scontrol_value(all, "PreemptTime");
  job.is_preempted = !preempted.empty() && preempted != "None";
  job.run_time = parse_duration(scontrol_value(all, "RunTime")).value_or(job.run_time);
  job.time_limit = parse_duration(scontrol_value(all, "TimeLimit"));
  for (const auto& line : lines) {
    if (!line.empty() && line.front().starts_with("Nodes=")) {
      HVD_RETURN_IF_ERROR(take_share_of_nodes(line, job));
    }
  }
  return job;
}

bool is_cancelled(const SlurmJob& job) {
  const bool is_out_of_time = job.time_limit && job.run_time >= *job.time_limit;
  return has_ended(job) && !job.is_requeued && !job.is_preempted && !is_out_of_time;
}

bool uses_gpus(const SlurmJob& job) {
  constexpr std::array<std::string_view, 3> kKinds{"gpu", "mps", "shard"};
  for (const auto& [node, resources] : job.resources) {
    for (const auto& resource : resources) {
      if (std::find(kKinds.begin(), kKinds.end(), kind_of(resource)) != kKinds.end()) return true;
    }
  }
  return false;
}

int gpus_in(const std::vector<SlurmResource>& resources) {
  int gpus = 0;
  for (const auto& resource : resources) {
    if (kind_of(resource) == "gpu") gpus += resource.count;
  }
  return gpus;
}

std::string gpus_text(const std::vector<SlurmResource>& resources) {
  std::vector<std::string> words;
  for (const auto& resource : resources) {
    if (kind_of(resource) != "gpu") continue;
    const auto colon = resource.name.find(':');
    const std::string type =
        colon == std::string::npos ? "" : cat(resource.name.substr(colon + 1), ":");
    words.push_back(cat(type, resource.count));
  }
  return join(words, ",");
}

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

}  // namespace hvd::discovery
