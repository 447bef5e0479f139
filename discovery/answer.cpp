#include "discovery/answer.h"

#include <string>
#include <unordered_map>
#include <utility>

#include "base/text.h"
#include "discovery/host_words.h"

namespace hvd::discovery {
namespace {

struct Mention {
  std::size_t index = 0;  // in the answer
  int line = 0;
};

}  // namespace

Result<std::vector<Host>> parse_answer(std::string_view text, int slots_per_host) {
  std::vector<Host> hosts;
  std::unordered_map<std::string, Mention> known;
  int number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto newline = text.find('\n', at);
    std::string_view line = text.substr(at, newline - at);
    at = newline == std::string_view::npos ? text.size() : newline + 1;
    ++number;
    line = line.substr(0, line.find('#'));
    const auto words = words_of(line);
    if (words.empty()) continue;
    const auto refuse = [&](const std::string& why) {
      return Status(Code::invalid_argument, cat("line ", number, ": ", why));
    };
    auto host = parse_host_line(words);
    if (!host) return refuse(host.status().message());
    if (host->slots == 0) host->slots = slots_per_host;
    const auto [mention, is_new] = known.try_emplace(host->name, Mention{hosts.size(), number});
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
