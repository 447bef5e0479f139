// The address and the token of a rendezvous service, for its clients and for its host.
#pragma once

#include <string>
#include <string_view>

#include "base/security/crypto.h"
#include "base/socket.h"
#include "base/status.h"

namespace hvd::rendezvous {

// "ADDRESS:PORT" or "[IPV6]:PORT"; the address must be an IP address.
Result<SocketAddress> parse_bind_address(std::string_view text);

// The path names a descriptor that this process has inherited, such as /dev/fd/3. It may be a pipe,
// from which a token can be read once.
bool is_inherited(std::string_view path);
// The content of the token file, without blanks around it; Code::not_found if there is none. Waits
// for the writer of a pipe, for a while.
Result<std::string> read_token_file(const std::string& path);
// The token in it, which are 64 hexadecimal digits.
Result<Token> load_token(const std::string& path);
// Reads the token file, or makes it. The error names the file and what is wrong with it.
Result<Token> load_or_create_token(const std::string& path);

}  // namespace hvd::rendezvous
