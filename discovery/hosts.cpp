#include "discovery/hosts.h"

#include <arpa/inet.h>
#include <cctype>
#include <map>
#include <optional>
#include <set>

#include "base/text.h"

namespace hvd::discovery {
namespace {

constexpr int kMaxSlots = 65'536;          // of one host; more is a slip of the finger
constexpr std::size_t kMaxHostName = 253;  // of a name in the DNS
constexpr std::size_t kMaxShown = 80;      // of somebody's text in an error

// Somebody's text inside an error: quoted, without control characters, not endless.
std::string shown(std::string_view text) {
  std::string result = "\"";
  for (const char character : text.substr(0, kMaxShown)) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte < 0x20 || byte >= 0x7f) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      result += "\\x";
      result += kDigits[byte >> 4];
      result += kDigits[byte & 15];
    } else {
      result += character;
    }
  }
  if (text.size() > kMaxShown) result += "...";
  return result + "\"";
}

Status bad(std::string message) { return {Code::invalid_argument, std::move(message)}; }

bool is_ipv6_address(const std::string& text) {
  in6_addr address{};
  return ::inet_pton(AF_INET6, text.c_str(), &address) == 1;
}

Status check_name(std::string_view name) {
  if (name.empty()) return bad("the host's name is missing");
  if (name.size() > kMaxHostName) {
    return bad(
        cat("the host's name ", shown(name), " is longer than ", kMaxHostName, " characters"));
  }
  // A name that begins like an option would be taken for one by whatever is started with it.
  if (name.front() == '-') return bad(cat("the host's name ", shown(name), " begins with '-'"));
  for (const char character : name) {
    if (std::isalnum(static_cast<unsigned char>(character)) == 0 && character != '.' &&
        character != '-' && character != '_') {
      return bad(
          cat("the host's name ", shown(name), " may only have letters, digits, '.', '-' and '_'"));
    }
  }
  return {};
}

Result<int> parse_slots(std::string_view text, std::string_view what) {
  const auto number = parse_number<int>(text);
  if (!number || *number < 1 || *number > kMaxSlots) {
    return bad(cat(what, " must be a number from 1 to ", with_thousands(kMaxSlots), ", not ",
                   shown(text)));
  }
  return *number;
}

// "name", "name:4", "[::1]", "[::1]:4".
Result<Host> parse_host(std::string_view text) {
  Host host;
  std::string_view slots;
  bool has_slots = false;
  if (!text.empty() && text.front() == '[') {
    const auto close = text.find(']');
    if (close == std::string_view::npos) return bad(cat(shown(text), " has '[' without ']'"));
    host.name = std::string(text.substr(1, close - 1));
    if (!is_ipv6_address(host.name)) {
      return bad(cat(shown(host.name), " in brackets is not an IPv6 address"));
    }
    std::string_view rest = text.substr(close + 1);
    if (!rest.empty()) {
      if (rest.front() != ':')
        return bad(cat("after ']' of ", shown(text), " only ':' may follow"));
      slots = rest.substr(1);
      has_slots = true;
    }
  } else {
    const auto colon = text.find(':');
    if (colon != std::string_view::npos && text.find(':', colon + 1) != std::string_view::npos) {
      return bad(cat(shown(text), " has more than one ':'; write an IPv6 address as [::1]:4"));
    }
    host.name = std::string(text.substr(0, colon));
    HVD_RETURN_IF_ERROR(check_name(host.name));
    if (colon != std::string_view::npos) {
      slots = text.substr(colon + 1);
      has_slots = true;
    }
  }
  if (has_slots) {
    auto number = parse_slots(slots, cat("the slots of ", host.name));
    if (!number) return number.status();
    host.slots = *number;
  }
  return host;
}

// The words of a line, with "slots = 4" made one word.
std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  bool joins_next = false;
  std::size_t at = 0;
  while (at < line.size()) {
    if (std::isspace(static_cast<unsigned char>(line[at])) != 0) {
      ++at;
      continue;
    }
    std::size_t end = at;
    while (end < line.size() && std::isspace(static_cast<unsigned char>(line[end])) == 0) ++end;
    const std::string word(line.substr(at, end - at));
    at = end;
    if ((joins_next || word.front() == '=') && words.size() > 1) {
      words.back() += word;
    } else {
      words.push_back(word);
    }
    joins_next = word.back() == '=';
  }
  return words;
}

Result<Host> parse_hostfile_line(const std::vector<std::string>& words) {
  auto parsed = parse_host(words.front());
  if (!parsed) return parsed.status();
  Host host = *std::move(parsed);
  std::optional<int> maximum;
  for (std::size_t index = 1; index < words.size(); ++index) {
    const std::string& word = words[index];
    const auto equals = word.find('=');
    if (equals == std::string::npos) {
      return bad(cat(shown(word), " after the host's name is not of the form slots=4"));
    }
    const std::string key = word.substr(0, equals);
    const std::string_view value = std::string_view(word).substr(equals + 1);
    if (key == "slots") {
      if (host.slots != 0) return bad(cat("the slots of ", host.name, " are given twice"));
      auto number = parse_slots(value, "slots");
      if (!number) return number.status();
      host.slots = *number;
    } else if (key == "max_slots" || key == "max-slots") {
      if (maximum) return bad(cat(key, " of ", host.name, " is given twice"));
      auto number = parse_slots(value, key);
      if (!number) return number.status();
      maximum = *number;
    } else {
      return bad(cat("unknown key ", shown(key), "; known are slots and max_slots"));
    }
  }
  if (maximum && host.slots > *maximum) {
    return bad(cat("slots=", host.slots, " of ", host.name, " is above its max_slots=", *maximum));
  }
  return host;
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
    auto host = parse_host(trim(item));
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
  int line_number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto newline = text.find('\n', at);
    std::string_view line = text.substr(at, newline - at);
    at = newline == std::string_view::npos ? text.size() : newline + 1;
    ++line_number;
    line = line.substr(0, line.find('#'));
    const auto words = words_of(line);
    if (words.empty()) continue;
    const auto refuse = [&](const std::string& why) {
      return bad(cat(source, ":", line_number, ": ", why));
    };
    auto host = parse_hostfile_line(words);
    if (!host) return refuse(host.status().message());
    const auto [known, is_new] = index_of.try_emplace(host->name, hosts.size());
    if (is_new) {
      hosts.push_back(*std::move(host));
      continue;
    }
    // Open MPI's reading: each mention adds its slots, and one slot if it says none.
    Host& earlier = hosts[known->second];
    const int sum = (earlier.slots == 0 ? 1 : earlier.slots) + (host->slots == 0 ? 1 : host->slots);
    if (sum > kMaxSlots) {
      return refuse(
          cat("the slots of ", earlier.name, " add up to more than ", with_thousands(kMaxSlots)));
    }
    earlier.slots = sum;
  }
  if (hosts.empty()) {
    return bad(cat(source, ": names no host; write one a line, as in \"worker-0 slots=4\""));
  }
  return hosts;
}

}  // namespace hvd::discovery
