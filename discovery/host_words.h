// The words that say one host, wherever they stand: an item of a list, a line of a file or of a
// script's answer. Pure; discovery/hosts.h makes whole lists of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "discovery/hosts.h"

namespace hvd::discovery {

inline constexpr std::size_t kMaxHostName = 253;  // of a name in the DNS

// A name as in a list of hosts, or an IPv6 address without its brackets.
Status check_host_name(std::string_view name);

// The error of words that say no host.
Status bad(std::string message);

// Somebody's text inside an error: quoted, without control characters, not endless.
std::string shown(std::string_view text);

// The words of a line, with "slots = 4" made one word, and without a byte order mark before them.
std::vector<std::string> words_of(std::string_view line);

// "name", "me@name:4", "[::1]:4:port=2222".
Result<Host> parse_host_item(std::string_view text);
// The same, and then words such as "slots=4". There is at least one word.
Result<Host> parse_host_line(const std::vector<std::string>& words);

}  // namespace hvd::discovery
