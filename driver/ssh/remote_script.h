// The one command that runs on a host, and the marks by which it answers. Pure.
//
// It stands on a command line that an unknown login shell reads (sh, bash, zsh, fish, csh), so it
// is one single-quoted word for /bin/sh without a single quote, a backslash, an exclamation mark or
// a line end in it: those are what the shells disagree on. The cache directory, which may hold any
// character, comes as the first line of its standard input.
//
// It finds the agent in the cache, or says `need` and receives it there; then it says `ok` and
// becomes the agent. If that cannot be it says `no`, a word for the kind of trouble, and a text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hvd::driver::ssh {

struct RemoteScript {
  std::string nonce;  // hexadecimal digits: no banner can hold it by accident
  std::string build_id;
  std::string hash;  // of the agent: SHA-256 in hexadecimal digits
  std::size_t size = 0;
  std::string machine;  // as uname -m says it of a machine that can run the agent
};

std::string remote_command(const RemoteScript& script);
// The first line of standard input.
std::string first_line(const std::string& cache_directory);

// What is said after "<nonce>:", and in what words a person is told of it.
std::string explain(std::string_view kind, std::string_view text);

}  // namespace hvd::driver::ssh
