// Text from outside, as it may be shown to a person: names of hosts, what scripts and other
// machines say, paths of requests. On a terminal a control character in it could hide what stands
// before it, or pretend to be a line of ours. Pure and safe from any thread.
#pragma once

#include <string>
#include <string_view>

namespace hvd {

// One line: control characters (those of Unicode and the marks that turn the direction of writing
// included) and bytes that are no UTF-8 appear as \n, \t, \x1b, ...; everything else as it is.
std::string printable(std::string_view text);

// The same, but ends of lines and tabs stay: for text of several lines.
std::string printable_lines(std::string_view text);

// One word as a person may type it in a shell: shell_quote(), or with control characters $'a\nb',
// which bash and zsh read back as the same bytes.
std::string printable_word(std::string_view word);

// printable() in quotation marks, cut after so many bytes.
std::string quoted(std::string_view text, std::size_t most = 80);
// For std::string these are chosen before std::quoted(), which <filesystem> brings along, and which
// leaves what a terminal would obey.
inline std::string quoted(const std::string& text) { return quoted(std::string_view(text)); }
inline std::string quoted(std::string& text) { return quoted(std::string_view(text)); }
inline std::string quoted(const char* text) { return quoted(std::string_view(text)); }

}  // namespace hvd
