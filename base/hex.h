// Bytes as hexadecimal digits, and the reverse.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace hvd {

// Two digits for each byte, in lower case.
void append_hex(std::string& out, std::string_view bytes);
std::string to_hex(std::string_view bytes);
// The value of a hexadecimal digit in either case; -1 for any other character.
int hex_value(char digit);
// invalid_argument if the length is odd or a character is not a hexadecimal digit.
Result<std::string> from_hex(std::string_view digits);

}  // namespace hvd
