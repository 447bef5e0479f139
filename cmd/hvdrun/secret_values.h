// Variables that may hold a password, a key or a token. Pure, safe from any thread.
#pragma once

#include <string>
#include <string_view>

namespace hvd::cli {

// By the usual names of such variables, or by what the value looks like: a URL with a password, a
// private key, or a token of one of the services whose tokens have a form of their own.
bool looks_like_secret(const std::string& name, std::string_view value);

}  // namespace hvd::cli
