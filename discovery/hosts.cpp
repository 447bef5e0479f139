#include "discovery/hosts.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/machine/capacity.h"
#include "base/text.h"
#include "discovery/host_words.h"

namespace hvd::discovery {
namespace {

// The lines of a text that say something, without their comments.
class HostLines {
 public:
  explicit HostLines(std::string_view text) : rest_(text) {}

  // The words of the next one; none at the end.
  std::vector<std::string> next() {
    while (!rest_.empty()) {
      const auto end = std::min(rest_.find('\n'), rest_.size());
      const std::string_view line = rest_.substr(0, end);
      rest_.remove_prefix(std::min(end + 1, rest_.size()));
      ++number_;
      auto words = words_of(line.substr(0, line.find('#')));
      if (!words.empty()) return words;
    }
    return {};
  }
  // The number of the line that next() has given, from 1 on.
  int number() const { return number_; }

 private:
  std::string_view rest_;
  int number_ = 0;
};

// A host in an answer.
struct Mention {
  std::size_t index = 0;
  int line = 0;
};

// A host that was named before: Open MPI's reading, in which each mention adds its slots, and one
// slot if it says none.
Status add_mention(Host& earlier, const Host& again) {
  if (!again.user.empty() && again.user != earlier.user) {
    return bad(cat("the host ", earlier.name, " was named before without the user ", again.user));
  }
  if (!again.address.empty() && again.address != earlier.address) {
    return bad(
        cat("the host ", earlier.name, " was named before without the address ", again.address));
  }
  const int sum = std::max(earlier.slots, 1) + std::max(again.slots, 1);
  if (sum > kMaxSlots) {
    return bad(
        cat("the slots of ", earlier.name, " add up to more than ", with_thousands(kMaxSlots)));
  }
  earlier.slots = sum;
  return {};
}

}  // namespace

Result<std::vector<Host>> parse_host_list(std::string_view text) {
  const auto refuse = [](const std::string& why) {
    return bad(cat(
        "Invalid host input, please make sure it has format as : worker-0:2,worker-1:2. (-H: ", why,
        ")"));
  };
  if (trim(text).empty()) return refuse("the list is empty");
  std::vector<Host> hosts;
  std::set<std::string> names;
  int position = 0;
  for (const auto& item : split(text, ',')) {
    ++position;
    if (trim(item).empty()) return refuse(cat("item ", position, " of ", shown(text), " is empty"));
    auto host = parse_host_item(trim(item));
    if (!host) return refuse(cat("item ", position, ": ", host.status().message()));
    if (!names.insert(host->name).second) {
      return refuse(cat("item ", position, ": the host ", host->name, " is named twice"));
    }
    hosts.push_back(*std::move(host));
  }
  return hosts;
}

Result<std::vector<Host>> parse_hostfile(std::string_view text, std::string_view source) {
  std::vector<Host> hosts;
  std::map<std::string, std::size_t> index_of;
  bool lists_slots = false;

  HostLines lines(text);
  for (auto words = lines.next(); !words.empty(); words = lines.next()) {
    const auto refuse = [&](const std::string& why) {
      return bad(cat(source, ":", lines.number(), ": ", why));
    };
    auto host = parse_host_line(words);
    if (!host) return refuse(host.status().message());

    const auto [known, is_new] = index_of.try_emplace(host->name, hosts.size());
    if (is_new) {
      hosts.push_back(*std::move(host));
      continue;
    }
    if (const Status added = add_mention(hosts[known->second], *host); !added.ok()) {
      return refuse(added.message());
    }
    lists_slots = lists_slots || host->slots == 0;
  }

  if (lists_slots) {
    for (auto& host : hosts) host.slots = std::max(host.slots, 1);
  }
  if (hosts.empty()) {
    return bad(cat(source, ": names no host; write one a line, as in \"worker-0 slots=4\""));
  }
  return hosts;
}

Result<std::vector<Host>> parse_answer(std::string_view text, int slots_per_host) {
  std::vector<Host> hosts;
  std::unordered_map<std::string, Mention> known;

  HostLines lines(text);
  for (auto words = lines.next(); !words.empty(); words = lines.next()) {
    const auto refuse = [&](const std::string& why) {
      return bad(cat("line ", lines.number(), ": ", why));
    };
    auto host = parse_host_line(words);
    if (!host) return refuse(host.status().message());
    if (host->slots == 0) host->slots = slots_per_host;

    const auto [mention, is_new] =
        known.try_emplace(host->name, Mention{hosts.size(), lines.number()});
    if (!is_new) {
      if (hosts[mention->second.index] == *host) continue;
      return refuse(cat("the host ", host->name, " is named in line ", mention->second.line,
                        " already, and otherwise"));
    }
    if (hosts.size() == kMaxDiscoveredHosts) {
      return refuse(cat("more than ", with_thousands(kMaxDiscoveredHosts), " hosts are named"));
    }
    hosts.push_back(*std::move(host));
  }
  return hosts;
}

}  // namespace hvd::discovery
