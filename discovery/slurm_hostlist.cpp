#include "discovery/slurm_hostlist.h"

#include <algorithm>
#include <cctype>
#include <iterator>
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
