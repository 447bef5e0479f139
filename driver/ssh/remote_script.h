// The one command that runs on a host, and its replies. Pure.
//
// An unknown login shell (sh, bash, zsh, fish, csh) parses the command line, so the script is one
// single-quoted argument for /bin/sh without a single quote, a backslash, an exclamation mark or a
// line end in it: the shells treat those differently. The cache directory, which may contain any
// character, is the first line of its standard input.
//
// The script finds the agent in the cache, or replies `need` and receives it there; then it replies
// `ok` and becomes the agent. On an error it replies `no`, a word for the kind of error, and a
// text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hvd::driver::ssh {

struct RemoteScript {
  std::string nonce;  // hexadecimal digits: no login message contains it by accident
  std::string build_id;
  std::string hash;  // of the agent: SHA-256 in hexadecimal digits
  std::size_t size = 0;
  std::string machine;  // the output of uname -m on a machine that can run the agent
};

std::string remote_command(const RemoteScript& script);
// The first line of standard input.
std::string first_line(const std::string& cache_directory);

// The error message for the reply `no` with this kind and text.
std::string explain(std::string_view kind, std::string_view text);

}  // namespace hvd::driver::ssh
