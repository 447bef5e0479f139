#include "base/machine/topology.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <map>
#include <memory>
#include <sched.h>
#include <tuple>

#include "base/text.h"

namespace hvd {
namespace {

constexpr int kMostProcessors = 1 << 16;

std::string first_line(const std::filesystem::path& file) {
  std::string line;
  std::getline(std::ifstream(file), line);
  return line;
}

std::map<int, int> nodes_of_processors(const std::filesystem::path& devices) {
  std::map<int, int> nodes;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(devices / "node", error)) {
    const std::string name = entry.path().filename().string();
    const auto node = name.starts_with("node") ? parse_number<int>(name.substr(4)) : std::nullopt;
    if (!node) continue;
    for (const int number : read_processors(first_line(entry.path() / "cpulist"))) {
      nodes[number] = *node;
    }
  }
  return nodes;
}

}  // namespace

Status check(Binding binding) {
  return binding <= Binding::numa ? Status() : Status(Code::data_loss, "no such binding");
}

std::vector<int> allowed_processors() {
  // The kernel refuses a set that is smaller than its own.
  for (int size = CPU_SETSIZE; size <= kMostProcessors; size *= 2) {
    const auto count = static_cast<std::size_t>(size);
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(
        CPU_ALLOC(count), [](cpu_set_t* own) { CPU_FREE(own); });
    const std::size_t bytes = CPU_ALLOC_SIZE(count);
    if (!set) break;
    if (::sched_getaffinity(0, bytes, set.get()) == 0) {
      std::vector<int> numbers;
      for (int number = 0; number < size; ++number) {
        if (CPU_ISSET_S(static_cast<std::size_t>(number), bytes, set.get())) {
          numbers.push_back(number);
        }
      }
      return numbers;
    }
    if (errno != EINVAL) break;
  }
  return {};
}

std::vector<Processor> usable_processors(const std::filesystem::path& devices) {
  const auto nodes = nodes_of_processors(devices);
  std::vector<Processor> processors;
  for (const int number : allowed_processors()) {
    const auto node = nodes.find(number);
    const auto siblings = read_processors(
        first_line(devices / "cpu" / cat("cpu", number) / "topology" / "thread_siblings_list"));
    processors.push_back({.number = number,
                          .core = siblings.empty() ? number : siblings.front(),
                          .node = node == nodes.end() ? 0 : node->second});
  }
  std::sort(processors.begin(), processors.end(), [](const Processor& a, const Processor& b) {
    return std::tie(a.node, a.core, a.number) < std::tie(b.node, b.core, b.number);
  });
  return processors;
}

std::vector<int> part_of(const std::vector<Processor>& processors, Binding binding, int part,
                         int parts) {
  if (binding == Binding::none || parts < 1) return {};
  // The units that are not divided: cores, or nodes.
  std::vector<std::vector<int>> units;
  for (const Processor* before = nullptr; const Processor& one : processors) {
    const bool is_next = before == nullptr || one.node != before->node ||
                         (binding == Binding::cores && one.core != before->core);
    if (is_next) units.emplace_back();
    units.back().push_back(one.number);
    before = &one;
  }

  const auto count = static_cast<long>(units.size());
  const auto begin = part * count / parts;
  const auto end = std::min(std::max((part + 1) * count / parts, begin + 1), count);
  std::vector<int> numbers;
  for (auto unit = begin; unit < end; ++unit) {
    const auto& own = units[static_cast<std::size_t>(unit)];
    numbers.insert(numbers.end(), own.begin(), own.end());
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

std::string processors_text(const std::vector<int>& numbers) {
  std::vector<std::string> ranges;
  for (std::size_t begin = 0; begin < numbers.size();) {
    std::size_t end = begin + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    ranges.push_back(end - begin == 1 ? cat(numbers[begin])
                                      : cat(numbers[begin], "-", numbers[end - 1]));
    begin = end;
  }
  return join(ranges, ",");
}

std::vector<int> read_processors(const std::string& text) {
  std::vector<int> numbers;
  for (const auto& range : split(text, ',')) {
    const auto dash = range.find('-');
    const auto first = parse_number<int>(range.substr(0, dash));
    const auto last = dash == std::string::npos ? first : parse_number<int>(range.substr(dash + 1));
    if (!first || !last || *first < 0 || *last >= kMostProcessors) continue;
    for (int number = *first; number <= *last; ++number) numbers.push_back(number);
  }
  return numbers;
}

}  // namespace hvd
