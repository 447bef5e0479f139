#include "discovery/host_words.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cctype>
#include <cstdint>
#include <net/if.h>
#include <optional>
#include <utility>

#include "base/machine/capacity.h"
#include "base/printable.h"
#include "base/socket.h"
#include "base/text.h"

namespace hvd::discovery {
namespace {

constexpr std::size_t kMaxUserName = 256;
// Beside letters and digits: also users of a directory such as CORP\\me or me@corp.example.
constexpr std::string_view kMoreOfUsers = "._-+$\\@";
constexpr std::size_t kMaxShown = 80;  // of somebody's text in an error

// The address without its scope, and the scope with its '%'.
std::pair<std::string, std::string> split_scope(std::string_view text) {
  const auto percent = std::min(text.find('%'), text.size());
  return {std::string(text.substr(0, percent)), std::string(text.substr(percent))};
}

bool is_interface_name(std::string_view name) {
  return !name.empty() && name.size() < IF_NAMESIZE &&
         std::all_of(name.begin(), name.end(), [](const char character) {
           return std::isalnum(static_cast<unsigned char>(character)) != 0 || character == '.' ||
                  character == '-' || character == '_';
         });
}

// `text` stood in brackets.
Status check_ipv6(std::string_view text) {
  const auto [address, scope] = split_scope(text);
  in6_addr raw{};
  if (address.find('\0') != std::string::npos ||
      ::inet_pton(AF_INET6, address.c_str(), &raw) != 1) {
    return bad(cat(shown(text), " in brackets is not an IPv6 address"));
  }
  const bool link_local = IN6_IS_ADDR_LINKLOCAL(&raw);
  if (link_local && scope.empty()) {
    return bad(cat(shown(text),
                   " holds on one link only: name the interface of this machine that "
                   "leads there, as in [",
                   address, "%eth0]"));
  }
  if (!scope.empty() && !link_local) {
    return bad(cat(shown(text), ": only a link-local address (fe80::...) has an interface"));
  }
  if (!scope.empty() && !is_interface_name(std::string_view(scope).substr(1))) {
    return bad(cat(shown(text), ": after '%' stands no name of an interface"));
  }
  return {};
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

// A host while it is read.
struct Draft {
  std::string written;  // the host itself, without user and brackets
  bool bracketed = false;
  int slots = 0;
  std::optional<int> maximum;
  std::string user;
  int port = 0;
  std::string address;
};

Status take_user(Draft& draft, std::string_view user) {
  if (!draft.user.empty()) return bad(cat("the user of ", draft.written, " is given twice"));
  if (user.empty()) return bad(cat("the user of ", draft.written, " is missing"));
  if (user.size() > kMaxUserName) {
    return bad(cat("the user ", shown(user), " is longer than ", kMaxUserName, " characters"));
  }
  if (user.front() == '-') return bad(cat("the user ", shown(user), " begins with '-'"));
  for (const char character : user) {
    if (std::isalnum(static_cast<unsigned char>(character)) == 0 &&
        kMoreOfUsers.find(character) == std::string_view::npos) {
      return bad(
          cat("the user ", shown(user), " may only have letters, digits and ", kMoreOfUsers));
    }
  }
  draft.user = std::string(user);
  return {};
}

Status take_address(Draft& draft, std::string_view text) {
  if (!draft.address.empty()) return bad(cat("the address of ", draft.written, " is given twice"));
  const bool bracketed = text.size() > 2 && text.front() == '[' && text.back() == ']';
  std::string address(bracketed ? text.substr(1, text.size() - 2) : text);
  const bool is_v6 = address.find(':') != std::string::npos;
  if (!is_ip_address(address) || (bracketed && !is_v6)) {
    return bad(cat("address of ", draft.written, " must be an IP address, not ", shown(text)));
  }
  draft.address = std::move(address);
  return {};
}

// "port=2222".
Status take_key(Draft& draft, std::string_view word) {
  const auto equals = word.find('=');
  const std::string key(word.substr(0, equals));
  const std::string_view value = word.substr(equals + 1);

  if (key == "slots") {
    if (draft.slots != 0) return bad(cat("the slots of ", draft.written, " are given twice"));
    auto number = parse_slots(value, "slots");
    if (!number) return number.status();
    draft.slots = *number;
    return {};
  }
  if (key == "max_slots" || key == "max-slots") {
    if (draft.maximum) return bad(cat(key, " of ", draft.written, " is given twice"));
    auto number = parse_slots(value, key);
    if (!number) return number.status();
    draft.maximum = *number;
    return {};
  }
  if (key == "port") {
    if (draft.port != 0) return bad(cat("the port of ", draft.written, " is given twice"));
    const auto number = parse_number<std::uint16_t>(value);
    if (!number || *number == 0) {
      return bad(cat("port must be a number from 1 to 65,535, not ", shown(value)));
    }
    draft.port = *number;
    return {};
  }

  if (key == "user") return take_user(draft, value);
  if (key == "address") return take_address(draft, value);
  return bad(
      cat("unknown key ", shown(key), "; known are slots, max_slots, port, user and address"));
}

Result<Host> finish(Draft draft) {
  if (draft.maximum && draft.slots > *draft.maximum) {
    return bad(cat("slots=", draft.slots, " of ", draft.written,
                   " is above its max_slots=", *draft.maximum));
  }
  Host host;
  host.name = draft.written;
  if (draft.port != 0) {
    host.name = draft.bracketed ? cat("[", draft.written, "]:", draft.port)
                                : cat(draft.written, ":", draft.port);
    host.destination = std::move(draft.written);
  }
  host.slots = draft.slots;
  host.max_slots = draft.maximum.value_or(0);
  host.user = std::move(draft.user);
  host.port = draft.port;
  host.address = std::move(draft.address);
  return host;
}

// The fields between colons that are not inside brackets.
std::vector<std::string_view> split_at_colons(std::string_view text) {
  std::vector<std::string_view> fields;
  std::size_t begin = 0;
  bool inside = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '[') inside = true;
    if (text[at] == ']') inside = false;
    if (text[at] != ':' || inside) continue;
    fields.push_back(text.substr(begin, at - begin));
    begin = at + 1;
  }
  fields.push_back(text.substr(begin));
  return fields;
}

// "name", "me@name:4", "[::1]:4:port=2222". The text behind the slots must have the form key=value,
// so that an IPv6 address without brackets is noticed.
Result<Draft> parse_host(std::string_view text) {
  Draft draft;
  // The last one before any key: a user of a directory may have one in the name.
  const auto at = text.substr(0, text.find('=')).rfind('@');
  const bool has_user = at != std::string_view::npos;
  const std::string_view user = has_user ? text.substr(0, at) : std::string_view();
  const std::string_view rest = has_user ? text.substr(at + 1) : text;

  std::vector<std::string_view> fields;
  if (!rest.empty() && rest.front() == '[') {
    const auto close = rest.find(']');
    if (close == std::string_view::npos) return bad(cat(shown(rest), " has '[' without ']'"));
    draft.written = std::string(rest.substr(1, close - 1));
    draft.bracketed = true;
    HVD_RETURN_IF_ERROR(check_ipv6(draft.written));
    const std::string_view after = rest.substr(close + 1);
    if (!after.empty() && after.front() != ':') {
      return bad(cat("after ']' of ", shown(rest), " only ':' may follow"));
    }
    fields = split_at_colons(after);
  } else {
    fields = split_at_colons(rest);
    const bool plain =
        fields.size() > 2 && cat(fields[1], fields[2]).find('=') == std::string::npos;
    if (plain) {
      return bad(cat(shown(rest),
                     " has more than one ':'; write an IPv6 address as [::1]:4, and a "
                     "port of SSH as a:4:port=2222"));
    }
    draft.written = std::string(fields.front());
    HVD_RETURN_IF_ERROR(check_name(draft.written));
  }

  if (has_user) HVD_RETURN_IF_ERROR(take_user(draft, user));
  for (std::size_t index = 1; index < fields.size(); ++index) {
    if (fields[index].find('=') != std::string_view::npos) {
      HVD_RETURN_IF_ERROR(take_key(draft, fields[index]));
      continue;
    }
    if (index > 1) {
      return bad(
          cat(shown(fields[index]), " after ", draft.written, " is not of the form port=2222"));
    }
    auto number = parse_slots(fields[index], cat("the slots of ", draft.written));
    if (!number) return number.status();
    draft.slots = *number;
  }
  return draft;
}

}  // namespace

Status check_host_name(std::string_view name) {
  const bool is_ipv6 = name.find(':') != std::string_view::npos && check_ipv6(name).ok();
  return is_ipv6 ? Status() : check_name(name);
}

Status bad(std::string message) { return {Code::invalid_argument, std::move(message)}; }

std::string shown(std::string_view text) { return quoted(text, kMaxShown); }

std::vector<std::string> words_of(std::string_view line) {
  // Some editors put it before a text, and texts are put together.
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
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

Result<Host> parse_host_item(std::string_view text) {
  auto draft = parse_host(text);
  if (!draft) return draft.status();
  return finish(*std::move(draft));
}

Result<Host> parse_host_line(const std::vector<std::string>& words) {
  const std::string& first = words.front();
  if (first.find(',') != std::string::npos) {
    return bad(cat(shown(first), " names more than one host; write one host a line"));
  }
  auto draft = parse_host(words.front());
  if (!draft) return draft.status();
  for (std::size_t index = 1; index < words.size(); ++index) {
    if (words[index].find('=') == std::string::npos) {
      return bad(cat(shown(words[index]), " after the host's name is not of the form slots=4"));
    }
    HVD_RETURN_IF_ERROR(take_key(*draft, words[index]));
  }
  return finish(*std::move(draft));
}

}  // namespace hvd::discovery
